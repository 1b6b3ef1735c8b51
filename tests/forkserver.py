"""A process that has imported what programs need, and runs each in a fork of itself: most of their time is imports.

`ForkServer.python` is a command line that takes the arguments of Python: ``-c PROGRAM …``, ``-m MODULE …``, or a file.
A Python that others have started can hand its program over, by `run_in_fork`.
Folder, environment, input and output are the caller's, and so is the way it ends, also by a signal. The process id is
that of a client that waits. To kill or stop a program from outside, start a Python of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys

__all__ = ["ForkServer", "run_in_fork"]

_SIZE_MAX = 1 << 20


class ForkServer:
    """The owner's end; `modules` are imported before the first fork."""

    def __init__(self, *modules: str) -> None:
        self._modules = modules

    def __enter__(self) -> ForkServer:
        # Imported here: the client is started for each program, and needs neither.
        import subprocess
        import tempfile

        self._folder = tempfile.TemporaryDirectory(prefix="forks-")
        self.address = f"{self._folder.name}/socket"
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(self.address)
        self._socket.listen(64)
        server = [sys.executable, __file__, "--serve", str(self._socket.fileno()), *self._modules]
        self._process = subprocess.Popen(
            server, pass_fds=[self._socket.fileno()], stdin=subprocess.PIPE, cwd=os.path.dirname(_TESTS)
        )
        self.python = [sys.executable, "-S", "-E", __file__, self.address]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # closes its input
        self._socket.close()
        self._folder.cleanup()


_TESTS = os.path.dirname(os.path.abspath(__file__))


def _call(address: str, arguments: list[str]) -> int:
    """Run one program, as its client; return its exit code, or minus the signal that has ended it."""
    asked = json.dumps({"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [len(asked).to_bytes(4, "big")], [0, 1, 2])
        connection.sendall(asked)
        answer = connection.recv(16)
    return int(answer or b"1")


def run_in_fork(address: str, arguments: list[str]) -> None:
    """Have a fork of the server at `address` run one program, and end as it ends."""
    code = _call(address, arguments)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    os._exit(code)


def _received(connection: socket.socket) -> tuple[dict[str, object], list[int]]:
    size, descriptors, _, _ = socket.recv_fds(connection, 4, 3)
    asked = b""
    while len(asked) < int.from_bytes(size, "big"):
        asked += connection.recv(_SIZE_MAX)
    return json.loads(asked), descriptors


def _serve(descriptor: int) -> list[str]:
    """Fork for each call; return its arguments in the process that is to run the program."""
    with socket.socket(fileno=descriptor) as listening:
        while True:
            if 0 in select.select([0, descriptor], [], [])[0]:
                os._exit(0)  # the owner has closed its end, or was killed
            connection, _ = listening.accept()
            while any(_reaped()):
                pass
            if os.fork() == 0:
                break
            connection.close()
    asked, descriptors = _received(connection)
    program = os.fork()
    if program:
        for one in descriptors:
            os.close(one)
        code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
        with contextlib.suppress(BrokenPipeError):  # the caller was killed
            connection.sendall(str(code).encode())
        os._exit(0)
    connection.close()
    for target, source in enumerate(descriptors):
        os.dup2(source, target)
        os.close(source)
    os.chdir(str(asked["folder"]))
    os.environ.clear()
    os.environ.update(asked["environment"])  # type: ignore[call-overload]
    return asked["arguments"]  # type: ignore[return-value]


def _reaped() -> list[int]:
    """Return a child that has ended, if there is one: what it has used counts from now on as this process's."""
    try:
        return [pid for pid in (os.waitpid(-1, os.WNOHANG)[0],) if pid]
    except ChildProcessError:
        return []


def _run(arguments: list[str]) -> None:
    """Run what Python runs for the arguments."""
    import runpy

    kind, *rest = arguments
    if kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path[0] = ""
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    elif kind == "-m":
        sys.argv = rest
        sys.path[0] = ""
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = os.path.dirname(os.path.abspath(kind))
        runpy.run_path(kind, run_name="__main__")


def _main() -> None:
    if sys.argv[1] != "--serve":
        run_in_fork(sys.argv[1], sys.argv[2:])
        return
    import gc
    import importlib

    sys.path[0] = os.path.dirname(_TESTS)
    # Where pandas is installed, pyarrow imports it for the first Python value that it converts: 0.4 s of a processor.
    for module in ("pandas", *sys.argv[3:]):
        importlib.import_module(module)
    gc.freeze()  # else each program would traverse all that was imported, and copy it
    _run(_serve(int(sys.argv[2])))


if __name__ == "__main__":
    _main()
