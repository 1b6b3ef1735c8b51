"""A process that has imported what programs need, and runs each in a fork of itself: most of their time is imports.

`ForkServer.python` is a command line that takes the arguments of Python: ``-c PROGRAM …``, ``-m MODULE …``, or a file.
A Python that others have started can hand its program over, by `run_in_fork`.
Folder, environment, input and output are the caller's, and so is the way it ends, also by a signal. The process id is
that of a client that waits: it passes Ctrl-C and SIGTERM on, and the program does not outlive it. After SIGKILL the
program has ended once its output has. To stop a program, or to be sure of its last step, start a Python of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading

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


_PASSED_ON = (signal.SIGINT, signal.SIGTERM)
_TESTS = os.path.dirname(os.path.abspath(__file__))


def _call(address: str, arguments: list[str]) -> int:
    """Run one program, as its client; return its exit code, or minus the signal that has ended it."""
    ignored = [number for number in _PASSED_ON if signal.getsignal(number) is signal.SIG_IGN]
    asked = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ), "ignored": ignored}
    message = json.dumps(asked).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [len(message).to_bytes(4, "big")], [0, 1, 2])
        connection.sendall(message)
        for number in set(_PASSED_ON).difference(ignored):
            signal.signal(number, lambda received, _: _pass_on(connection, received))
        answer = connection.recv(16)
    return int(answer or b"1")


def _pass_on(connection: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # the program has ended
        connection.sendall(bytes([number]))


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
        code = _attended(program, connection)
        with contextlib.suppress(BrokenPipeError):  # the caller was killed
            connection.sendall(str(code).encode())
        os._exit(0)
    connection.close()
    for number in _PASSED_ON:
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in asked["ignored"] else usual)  # type: ignore[operator]
    for target, source in enumerate(descriptors):
        os.dup2(source, target)
        os.close(source)
    os.chdir(str(asked["folder"]))
    os.environ.clear()
    os.environ.update(asked["environment"])  # type: ignore[call-overload]
    return asked["arguments"]  # type: ignore[return-value]


def _attended(program: int, connection: socket.socket) -> int:
    """Pass the signals of the client on to the program, and end it with its client; return how it has ended."""
    living = threading.Lock()  # held where the process id must be the program's still

    def attend() -> None:
        is_there = True
        while is_there:
            received = b""
            with contextlib.suppress(ConnectionError):
                received = connection.recv(1)
            is_there = bool(received)
            with living:
                os.kill(program, received[0] if is_there else signal.SIGKILL)

    threading.Thread(target=attend, daemon=True).start()
    os.waitid(os.P_PID, program, os.WEXITED | os.WNOWAIT)
    living.acquire()  # to the end of this process
    return os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])


def _reaped() -> list[int]:
    """Return a child that has ended, if there is one: what it has used counts from now on as this process's."""
    try:
        return [pid for pid in (os.waitpid(-1, os.WNOHANG)[0],) if pid]
    except ChildProcessError:
        return []


def _run(arguments: list[str]) -> None:
    """Run what Python runs for the arguments."""
    import runpy

    # The folders of PYTHONPATH that the server was not started with, where Python would put them.
    sys.path[1:1] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in ["", *sys.path]]
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
