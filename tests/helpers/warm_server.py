"""The process that warm_python.py starts: it imports what takes long, once, and forks for every command it is sent.

Nothing of ours is imported, and nothing is computed: it has one thread, and each fork imports nerf itself.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import socket
import struct
import sys
from pathlib import Path

MODULES = (
    "torch", "torch.utils.tensorboard", "numpy.typing", "hydra", "hydra.core.plugins", "hydra.core.config_search_path",
    "PIL.Image", "PIL.ImageDraw", "PIL.ImageFont", "PIL.ImageOps", "imageio.v3", "imageio_ffmpeg", "pillow_heif",
    "html", "secrets", "statistics", "fractions",
)  # fmt: skip


def receive(connection: socket.socket) -> tuple[list, list[int]]:
    """What a fork is to do, and its three standard streams. Ends this process when the tests have ended."""
    head, streams, *_ = socket.recv_fds(connection, 4, 3)
    if not head:
        sys.exit()
    (size,), content = struct.unpack("!I", head), b""
    while len(content) < size:
        content += connection.recv(size - len(content))
    return json.loads(content), streams


def serve(connection: socket.socket) -> tuple[list, list[int]]:
    """Forks for every command. Returns in a fork: what it is to do, and its standard streams."""
    while True:
        job, streams = receive(connection)
        child = os.fork()
        if not child:
            # A fork of a fork: with its parent gone it is the child of the tests' process, which waits for it.
            reader, writer = os.pipe()
            grandchild = os.fork()
            if grandchild:
                os.close(reader)
                connection.sendall(f"{grandchild}".encode())
                os._exit(0)
            os.close(writer)
            os.read(reader, 1)  # until its parent is gone
            os.close(reader)
            return job, streams
        os.waitpid(child, 0)
        connection.sendall(b"\n")
        for stream in streams:
            os.close(stream)


def become(arguments: list[str], cwd: str, environment: dict[str, str], streams: list[int]) -> None:
    """Makes this fork what `python ARGUMENTS` is at its start, but for what is imported, and runs it."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # else each fork has the server's
    what, *rest = arguments
    given = environment.get("PYTHONPATH")
    folders = [str(Path(folder).absolute()) for folder in given.split(os.pathsep)] if given else []
    first = {"-c": "", "-m": cwd}.get(what, str(Path(what).resolve().parent))
    sys.path[:] = list(dict.fromkeys([first, *folders, *sys.path[1:]]))
    importlib.invalidate_caches()
    del sys.modules[__name__]
    main = sys.modules["__main__"].__dict__
    kept = {name: main[name] for name in ("__name__", "__builtins__")}
    main.clear()
    main.update(kept, __annotations__={}, __doc__=None, __package__=None, __spec__=None, __loader__=None)
    if what == "-m":
        sys.argv = ["-m", *rest[1:]]
        runpy._run_module_as_main(rest[0])
    elif what == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(rest[0], main)
    else:
        sys.argv = arguments
        main.update(__file__=what, __cached__=None)
        exec(compile(Path(what).read_bytes(), what, "exec"), main)


def main(descriptor: int, compiled: str) -> None:
    """Serves the socket of that descriptor. Returns in forks, when they have run.

    compiled: a folder for the byte code of what forks import, even where PYTHONDONTWRITEBYTECODE keeps it out of the
    sources: else each of them compiles all of nerf.
    """
    connection = socket.socket(fileno=descriptor)
    for name in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        sys.exit(f"{threads} threads: a fork would have one of them")
    sys.pycache_prefix, sys.dont_write_bytecode = compiled, False
    gc.collect()
    gc.freeze()
    names = sorted({name.partition(".")[0] for name in sys.modules})
    connection.sendall(json.dumps([names, sys.path[1:]]).encode() + b"\n")
    job, streams = serve(connection)
    os.close(connection.detach())
    become(*job, streams)
