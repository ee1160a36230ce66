"""``python -m tests.sanitize SECONDS [SEED]``: builds the kernel with sanitizers, and has it work for that long.

A third of the time each: random documents under ASan and UBSan, the property tests of the kernel under both, threads
under TSan. Ends with 1 when a sanitizer reports anything, or a result is wrong. Needs gcc and its sanitizers.
"""

from __future__ import annotations

import os
import random
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
BUILD = Path(sys.prefix) / "sanitize"
TESTS = (
    *(f"tests/property/test_{name}.py" for name in ("kernel_forms", "part_forms", "compression", "interleaving")),
    *("tests/property/test_decoding.py", "tests/property/test_kernel_threads.py"),
    *(
        f"tests/unit/catalog/kernel/test_{name}.py"
        for name in ("decoding", "comparing", "bucket", "measurement", "merging")
    ),
)
FULL_PASS_SECONDS = 600.0
"""What the property tests take with all of their examples; in less time there are fewer."""


@dataclass(frozen=True)
class Variant:
    """A build of the kernel, and what a process that loads it needs."""

    name: str
    flags: tuple[str, ...]
    preload: tuple[str, ...]
    options: dict[str, str] = field(default_factory=dict)

    @property
    def library(self) -> Path:
        return BUILD / self.name / "_kernel.so"

    def build(self, compiler: list[str]) -> None:
        self.library.parent.mkdir(parents=True, exist_ok=True)
        flags = ("-g", "-O1", "-fno-omit-frame-pointer", "-fPIC", "-shared", "-Wall", *self.flags)
        include = f"-I{sysconfig.get_paths()['include']}"
        source = "catalog/kernel/_kernel.c"
        subprocess.run([*compiler, *flags, include, source, "-o", self.library], cwd=ROOT, check=True)

    def environment(self, compiler: list[str]) -> dict[str, str]:
        found = [_library(compiler, name) for name in self.preload]
        # Each object of Python is a piece of memory of its own, so that a step beyond its end shows.
        own = {"LD_PRELOAD": " ".join(found), "PYTHONMALLOC": "malloc", "TSPROXY_SANITIZED_KERNEL": str(self.library)}
        return {**os.environ, **self.options, **own}


MEMORY = Variant(
    "address",
    ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    ("libasan.so", "libubsan.so"),
    {
        # The interpreter itself leaves memory behind when it ends.
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:exitcode=66",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:exitcode=66",
    },
)
RACES = Variant("thread", ("-fsanitize=thread",), ("libtsan.so",), {"TSAN_OPTIONS": "halt_on_error=1:exitcode=66"})


def _library(compiler: list[str], name: str) -> str:
    ran = subprocess.run([*compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    found = ran.stdout.strip()
    if not Path(found).is_absolute():
        sys.exit(f"{name} is missing: the sanitizers of gcc are needed (CC names the compiler)")
    return found


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CC") or str(sysconfig.get_config_var("CC") or "cc"))


def _prefix(environment: dict[str, str]) -> list[str]:
    """TSan needs addresses where it expects them, which some systems choose too freely."""
    for prefix in ([], ["setarch", "-R"]):
        if prefix and not shutil.which(prefix[0]):
            continue
        command = [*prefix, sys.executable, "-c", ""]
        if subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0:
            return prefix
    sys.exit("a process under TSan cannot be started here")


def _run(command: list[str], environment: dict[str, str]) -> bool:
    print("$", shlex.join(command), flush=True)
    return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode == 0


def _work(way: str, variant: Variant, seconds: float, seed: int, prefix: list[str]) -> bool:
    command = [*prefix, sys.executable, "-m", "tests.sanitize.work", way, str(seconds), str(seed)]
    return _run(command, variant.environment(_compiler()))


def _property_tests(seconds: float, seed: int) -> bool:
    """As often as there is time for, each time with other examples; once in any case."""
    scale = min(1.0, seconds / FULL_PASS_SECONDS)
    environment = MEMORY.environment(_compiler()) | {"TSPROXY_TEST_SCALE": f"{scale:.3f}"}
    until, took = time.monotonic() + seconds, 0.0
    while took == 0.0 or time.monotonic() + took < until:
        since, seed = time.monotonic(), seed + 1
        options = ("-q", "-x", "-p", "tests.sanitize.plugin", "-p", "no:cacheprovider", "-o", "timeout=900")
        command = [sys.executable, "-m", "pytest", *options, f"--hypothesis-seed={seed}", *TESTS]
        if not _run(command, environment):
            return False
        took = time.monotonic() - since
    return True


def main() -> None:
    """See the module."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 31)
    since = time.monotonic()
    for variant in (MEMORY, RACES):
        variant.build(_compiler())
    share = seconds / 3
    held = {
        "documents under ASan and UBSan": _work("alone", MEMORY, share, seed, []),
        "property tests under ASan and UBSan": _property_tests(share, seed),
        "threads under TSan": _work("threads", RACES, share, seed, _prefix(RACES.environment(_compiler()))),
    }
    for what, good in held.items():
        print(f"{what}: {'no report' if good else 'FAILED'}")
    verdict = "no report" if all(held.values()) else "FAILED"
    print(f"sanitizers, seed {seed}, {time.monotonic() - since:.0f} s: {verdict}", flush=True)
    sys.exit(not all(held.values()))


if __name__ == "__main__":
    main()
