"""A child process with a log file that cannot outlive the test run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

# Asks the kernel to send SIGTERM when the parent dies, then becomes the real program; so servers end also when the
# run is killed outright. Written as a program of its own because code between fork and exec is unsafe with threads.
_GUARD = (
    "import ctypes, os, sys\n"
    "parent = int(sys.argv[1])\n"
    "ctypes.CDLL(None).prctl(1, 15)\n"
    "os.getppid() == parent or sys.exit(1)\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)


class ProcessFailed(AssertionError):
    """A child ended or did not get ready; the message ends with its log."""


class ChildProcess:
    """One child at a time, started again at will; its output is appended to ``log_path``."""

    def __init__(self, name: str, log_path: Path) -> None:
        self.name = name
        self.log_path = log_path
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of the running child."""
        assert self._child is not None, f"{self.name} is not running"
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether the child lives."""
        return self._child is not None and self._child.poll() is None

    @property
    def log(self) -> str:
        """What the child has written so far, standard output and error together."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def spawn(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, *, descriptors: Sequence[int] = ()
    ) -> None:
        """Start ``command``, which inherits ``descriptors``; ``environment`` is added to that of the tests."""
        assert not self.running, f"{self.name} is already running"
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-c", _GUARD, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=descriptors,
                env={**os.environ, **(environment or {})},
                # Ctrl-C at a terminal is for the run of the tests, which ends its servers in order.
                process_group=0,
            )

    def wait_until(self, ready: Callable[[], bool], timeout_seconds: float = 60) -> None:
        """Wait for ``ready``; ``ProcessFailed`` when the child ends before or it takes too long."""
        deadline = time.monotonic() + timeout_seconds
        while not ready():
            if not self.running:
                raise ProcessFailed(f"{self.name} ended with {self.returncode}:\n{self.log[-4000:]}")
            if time.monotonic() > deadline:
                raise ProcessFailed(f"{self.name} not ready in {timeout_seconds} s:\n{self.log[-4000:]}")
            time.sleep(0.02)

    @property
    def returncode(self) -> int | None:
        """The exit code, ``None`` while the child runs, negative for a signal."""
        return None if self._child is None else self._child.poll()

    def wait(self, timeout_seconds: float = 60) -> int:
        """Wait for the end and return the exit code."""
        assert self._child is not None, f"{self.name} was never started"
        return self._child.wait(timeout_seconds)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._child is not None, f"{self.name} was never started"
        self._child.send_signal(number)

    def pause(self) -> None:
        """Freeze the child (SIGSTOP); the signal reaches its threads one after the other, so wait for all of them."""
        self.signal(signal.SIGSTOP)
        self.wait_until(self._is_frozen)

    def _is_frozen(self) -> bool:
        try:
            threads = [each.read_text() for each in Path(f"/proc/{self.pid}/task").glob("*/stat")]
        except OSError:  # a thread has ended just now
            return False
        return {each.rpartition(")")[2].split()[0] for each in threads} == {"T"}

    def resume(self) -> None:
        """Let a frozen child go on (SIGCONT)."""
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the child without a chance to tidy up (SIGKILL)."""
        if self.running:
            self.signal(signal.SIGKILL)
            self.wait()

    def stop(self, timeout_seconds: float = 60) -> int | None:
        """Ask the child to end (SIGTERM), kill it when it does not; the exit code, ``None`` if it never ran."""
        if self.running:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            try:
                self.wait(timeout_seconds)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.returncode
