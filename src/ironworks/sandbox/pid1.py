"""The first process inside a local sandbox: starts commands for the host, reaps, and passes the listener out.

It runs as `python3 -I -S pid1.py CONTROL LOCK PORT` with the system's Python, so it imports only the standard
library; it holds no privilege that the commands it starts lack. Each message on CONTROL is one JSON object;
what may be long (argv, env, a path) comes in a memory file beside the streams of the command.
"""

# Path objects would only make it slower to start.
# ruff: noqa: PTH103, PTH104, PTH108, PTH118, PTH123, PTH208

import array
import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import stat
import sys
from typing import Any, NoReturn

PR_SET_DUMPABLE = 4
MISSING, REFUSED, NOT_RUNNABLE, NOT_FOUND = 2, 3, 126, 127
MAX_FDS = 4
COPY_BYTES = 1 << 20
KILL_ROUNDS = 500
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

Task = dict[str, Any]


def main() -> NoReturn:
    control_fd, lock_fd, port = (int(word) for word in sys.argv[1:4])
    # What is not dumpable cannot be traced, nor its memory and descriptors opened, by the commands beside it.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    os.umask(0o022)
    os.set_inheritable(lock_fd, False)
    control = socket.socket(fileno=control_fd)
    control.set_inheritable(False)
    listener = socket.create_server(("127.0.0.1", port), backlog=512)
    socket.send_fds(control, [b'{"ready":true}'], [listener.fileno()])
    listener.close()
    Keeper(control).run()


class Keeper:
    """Holds the running commands by pid, and answers the host."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.running: dict[int, int] = {}
        self.wake, wake_in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)

    def run(self) -> NoReturn:
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self.wake in ready:
                self.reap()
            if self.control.fileno() in ready:
                self.receive()

    def receive(self) -> None:
        data, fds = receive(self.control)
        if not data:
            os._exit(0)
        message = json.loads(data)
        if message["op"] == "exec":
            self.start(message["id"], fds)
        else:
            self.answer(message["id"], getattr(self, message["op"])(message))

    def answer(self, id: int, result: Task) -> None:
        try:
            self.control.send(json.dumps({"id": id, **result}).encode())
        except OSError:
            os._exit(0)

    def start(self, id: int, fds: list[int]) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            os.write(fds[3], f"cannot start a process: {error.strerror}\n".encode())
            self.answer(id, {"status": NOT_RUNNABLE << 8})
        else:
            if pid == 0:
                become(self.control, fds)
            self.running[pid] = id
        for fd in fds:
            os.close(fd)

    def reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake, 4096)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid in self.running:
                    self.answer(self.running.pop(pid), {"status": status})

    def kill(self, message: Task) -> Task:
        """End one command's whole session, however many process groups it has made."""
        leader = next((pid for pid, id in self.running.items() if id == message["target"]), None)
        for _ in range(KILL_ROUNDS):
            # The leader itself may not have got round to making its session.
            members = [pid for pid, session in sessions() if leader in (pid, session)]
            if not members:
                break
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.reap()
            select.select([], [], [], 0.002)
        return {}

    def kill_all(self, _: Task) -> Task:
        while True:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            self.reap()
            try:
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                return {}

    def pause(self, _: Task) -> Task:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGSTOP)
        return {}

    def resume(self, _: Task) -> Task:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGCONT)
        return {}

    def usage(self, _: Task) -> Task:
        """CPU seconds of the ended and the living, and the largest process's peak memory."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        living_s = sum(sum(map(int, fields[11:15])) for _, fields in processes()) / TICKS_PER_S
        return {
            "cpu_s": ended.ru_utime + ended.ru_stime + living_s,
            "memory_peak_bytes": ended.ru_maxrss * 1024,
        }


def receive(control: socket.socket) -> tuple[bytes, list[int]]:
    room = socket.CMSG_SPACE(MAX_FDS * array.array("i").itemsize)
    data, ancillary, _, _ = control.recvmsg(4096, room, socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(payload)
    return data, list(fds)


def processes() -> list[tuple[int, list[str]]]:
    """Every process but ours, with its `/proc/PID/stat` after the name, which may hold anything."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and name != "1":
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    found.append((int(name), file.read().rpartition(")")[2].split()))
            except OSError:
                continue
    return found


def sessions() -> list[tuple[int, int]]:
    return [(pid, int(fields[3])) for pid, fields in processes() if fields[0] != "Z"]


def become(control: socket.socket, fds: list[int]) -> NoReturn:
    """In the forked child: take the streams, then turn into the command or do the file task."""
    try:
        control.close()
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for target, fd in enumerate(fds[1:]):
            os.dup2(fd, target)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        with open(fds[0], "rb", closefd=False) as file:
            task = json.load(file)
        os._exit(perform(task))
    except BaseException as error:
        complain(f"{type(error).__name__}: {error}")
    finally:
        os._exit(NOT_RUNNABLE)


def perform(task: Task) -> int:
    if task["call"] == "put":
        return put(task["path"], task["mode"])
    if task["call"] == "get":
        return get(task["path"], task["max_bytes"])
    return execute(task["argv"], task["env"], task["cwd"])


def execute(argv: list[str], env: dict[str, str], cwd: str) -> int:
    try:
        os.chdir(cwd)
        os.execvpe(argv[0], argv, env)
    except FileNotFoundError as error:
        complain(f"{error.filename or argv[0]}: not found")
        return NOT_FOUND
    except (OSError, ValueError) as error:
        complain(f"{argv[0]}: {error}")
        return NOT_RUNNABLE


def put(path: str, mode: int) -> int:
    """Write stdin to a file, replacing whatever stood there in one step."""
    folder, name = os.path.split(path)
    partial = os.path.join(folder, f".ironworks-{os.getpid()}")
    try:
        os.makedirs(folder, exist_ok=True)
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            while data := os.read(0, COPY_BYTES):
                write(fd, data)
            os.fchmod(fd, mode)
            os.rename(partial, os.path.join(folder, name))
        except BaseException:
            os.unlink(partial)
            raise
    except OSError as error:
        complain(error.strerror or "failed")
        return REFUSED
    return 0


def get(path: str, max_bytes: int) -> int:
    """Copy a regular file to stdout."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        return MISSING
    except OSError as error:
        complain(error.strerror or "failed")
        return REFUSED
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        complain("not a regular file")
        return REFUSED
    left = max_bytes + 1
    while left > 0 and (data := os.read(fd, min(COPY_BYTES, left))):
        write(1, data)
        left -= len(data)
    return 0


def write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def complain(text: str) -> None:
    os.write(2, (text + "\n").encode("utf-8", "backslashreplace"))


if __name__ == "__main__":
    main()
