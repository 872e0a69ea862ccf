"""Starts of Python that take 0.2 s in place of 2 s: each is a fork of one process that has imported PyTorch and Hydra.

`Popen` and `run` take the place of subprocess'. A fork gets arguments, environment, current folder and standard streams
as a process of its own would, becomes a child of the test's process, and ends as the interpreter does. It shares what
the server (warm_server.py) has from its own start: the seed of hashes and the names of sys.orig_argv and of ps.

Everything else is started as ever: another program, options of the interpreter, what only an exec can do (preexec_fn, a
session of its own), other systems than Linux, several threads, an environment that differs in more than READ_LATE from
the server's, and paths that hold other modules than those that are imported already. Tests of the start itself, of
signals while modules are imported, of limits of memory and of how OpenMP's threads wait stay with subprocess.
"""

import contextlib
import ctypes
import inspect
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

# Variables that are read when they are used, by our code and by what is imported. All others, such as OMP_NUM_THREADS,
# LD_PRELOAD and PYTHONHASHSEED, may be read at the start: where they differ, the process is a true one.
READ_LATE = {
    *("PYTHONPATH", "PYTEST_CURRENT_TEST", "CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG", "HYDRA_FULL_ERROR"),
    *("IMAGEIO_FFMPEG_EXE", "PATH", "COLUMNS", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"),
    "TORCHINDUCTOR_CACHE_DIR",  # set by PyTorch itself, when its compiler is first imported
    "MKL_CBWR",  # set by `import nerf`, and read at the first product: the server makes none
}
AT_START = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
# A fork has one thread: so has the server, as `make test` asks for.
POSSIBLE = sys.platform == "linux" and AT_START.get("OMP_NUM_THREADS") == "1"
PR_SET_CHILD_SUBREAPER = 36  # of <sys/prctl.h>


def differing(environment: Mapping[str, str], other: Mapping[str, str]) -> set[str]:
    """The variables for which a process must be a true one."""
    names = {name for name, _ in environment.items() ^ other.items()}
    return {name for name in names if name not in READ_LATE and not name.startswith("NERF")}


class Server:
    """The process that forks. Its environment is AT_START, whatever a test has changed for itself."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        folder = str(Path(__file__).parent)
        self.compiled = tempfile.TemporaryDirectory()
        program = f"import sys; sys.path[0] = {folder!r}; import warm_server; "
        program += f"warm_server.main({theirs.fileno()}, {self.compiled.name!r})"
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        command = [sys.executable, "-c", program]
        self.process = subprocess.Popen(command, env=AT_START, pass_fds=[theirs.fileno()], **pipes)
        theirs.close()
        self.connection = ours
        self.lock = threading.Lock()
        modules, self.path = json.loads(self._line())
        self.modules = set(modules)

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            got = self.connection.recv(1 << 16)
            if not got:
                raise RuntimeError(f"the server of forks ended: {self.process.stdout.read().decode()}")
            line += got
        return line

    def shadows(self, folder: Path) -> bool:
        """Whether a folder of Python's path has a module in the place of one that is imported already."""
        with contextlib.suppress(OSError):
            return str(folder) not in self.path and any(
                path.name.partition(".")[0] in self.modules for path in folder.iterdir()
            )
        return False

    def fork(self, arguments: Sequence[str], cwd: str, environment: Mapping[str, str], streams: Sequence[int]) -> int:
        """The process id of a new child of this process, which runs `python ARGUMENTS`."""
        content = json.dumps([list(arguments), cwd, dict(environment)]).encode()
        with self.lock, _parent_of_orphans():
            socket.send_fds(self.connection, [struct.pack("!I", len(content))], list(streams))
            self.connection.sendall(content)
            return json.loads(self._line())


@contextlib.contextmanager
def _parent_of_orphans() -> Iterator[None]:
    """Meanwhile a process below this one whose parent ends becomes this process' child: so does the server's fork."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    try:
        yield
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def server() -> Server | None:
    """One for each process of tests, started when it is first needed. None where there can be none."""
    return _server_of(os.getpid()) if POSSIBLE else None


@cache
def _server_of(process: int) -> Server | None:
    try:
        return Server()
    except RuntimeError as error:
        warnings.warn(f"every command that tests run imports PyTorch itself: {error}", stacklevel=2)
        return None


def _fork(*job: object) -> int:
    """Server.fork of the server; of a new one where that has been killed, as by a test that ends what it finds."""
    try:
        return server().fork(*job)
    except (BrokenPipeError, ConnectionResetError):  # nothing was sent
        _server_of.cache_clear()
        return server().fork(*job)


class Popen(subprocess.Popen):
    """subprocess.Popen, by a fork where it makes no difference. forked: whether it was one."""

    forked = False

    def _execute_child(self, *given: object) -> None:
        asked = inspect.signature(super()._execute_child).bind(*given).arguments
        command, given_env = _command(asked["args"]), os.environ if asked["env"] is None else asked["env"]
        environment = {os.fsdecode(name): os.fsdecode(value) for name, value in given_env.items()}
        if command is None or _needs_exec(asked) or not _server_serves(command, asked["cwd"], environment):
            super()._execute_child(*given)
            return
        ends = [("p2cread", 0), ("c2pwrite", 1), ("errwrite", 2)]
        streams = [asked[name] if asked[name] != -1 else inherited for name, inherited in ends]
        try:
            self.pid = _fork(command, str(asked["cwd"] or Path.cwd()), environment, streams)
            self._child_created = self.forked = True
        finally:
            names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            self._close_pipe_fds(*(asked[name] for name in names))


def run(command: Sequence[str], **how: object) -> subprocess.CompletedProcess:
    """As subprocess.run, for a command whose output is kept (capture_output) and read as text."""
    check, timeout, given = how.pop("check", False), how.pop("timeout", None), how.pop("input", None)
    if how.pop("capture_output", False):
        how |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if given is not None:
        how["stdin"] = subprocess.PIPE
    with Popen(command, **how) as process:
        try:
            output, errors = process.communicate(given, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    found = subprocess.CompletedProcess(process.args, process.returncode, output, errors)
    if check:
        found.check_returncode()
    return found


def _command(arguments: object) -> list[str] | None:
    """The arguments behind `python`; None for another program or for options that are the interpreter's."""
    if isinstance(arguments, (str, bytes, os.PathLike)):
        return None
    program, *command = map(os.fsdecode, arguments)
    if program != sys.executable or not command:
        return None
    whole = command[0] in ("-c", "-m") and len(command) > 1
    return command if whole or not command[0].startswith("-") else None


def _needs_exec(asked: Mapping[str, object]) -> bool:
    """Whether a keyword of Popen asks for what a fork of the server does not do."""
    plain = {"preexec_fn": None, "pass_fds": (), "shell": False, "executable": None, "close_fds": True}
    plain |= {"restore_signals": True, "start_new_session": False, "process_group": -1, "umask": -1}
    plain |= {"gid": None, "gids": None, "uid": None}
    return any(asked[name] != value for name, value in plain.items() if name in asked)


def _server_serves(command: Sequence[str], cwd: object, environment: Mapping[str, str]) -> bool:
    if differing(environment, AT_START) or server() is None:
        return False
    here = Path(cwd or Path.cwd())
    first = here if command[0].startswith("-") else (here / command[0]).resolve().parent
    given = environment.get("PYTHONPATH")
    return not any(server().shadows(here / folder) for folder in [first, *(given.split(os.pathsep) if given else [])])
