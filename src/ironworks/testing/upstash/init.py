"""The first process inside an emulated box: starts commands for the emulator, signals their trees, and reaps.

It runs as `python3 -I -S init.py CONTROL PORT` and imports the standard library only.
Each message on CONTROL is one JSON object; what a command is to be comes in a memory file beside its streams.
"""

# Path objects would only make it slower to start.
# ruff: noqa: PTH123, PTH208

import array
import contextlib
import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import termios
from typing import Any, NoReturn

MAX_FDS = 4
KILL_ROUNDS = 200
NOT_RUNNABLE, NOT_FOUND = 126, 127
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

Message = dict[str, Any]


def main() -> NoReturn:
    control_fd, port = (int(word) for word in sys.argv[1:3])
    os.umask(0o022)
    control = socket.socket(fileno=control_fd)
    control.set_inheritable(False)
    with socket.create_server(("127.0.0.1", port), backlog=128) as listener:
        socket.send_fds(control, [b'{"ready":true}'], [listener.fileno()])
    Init(control).run()


class Init:
    """Holds the running commands: pid → number of the request."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.running: dict[int, int] = {}
        self.ended_ns = 0
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
            os._exit(0)  # The emulator is gone or wants an end: the kernel ends all others with us.
        message = json.loads(data)
        if message["op"] == "start":
            self.start(message["id"], fds)
        else:
            self.answer({"id": message["id"], **getattr(self, message["op"])(message)})

    def answer(self, message: Message, fds: tuple[int, ...] = ()) -> None:
        try:
            socket.send_fds(self.control, [json.dumps(message).encode()], fds)
        except OSError:
            os._exit(0)

    def start(self, number: int, fds: list[int]) -> None:
        """Start a command on three given streams, or on a terminal of its own, which is then passed out."""
        with open(fds[0], "rb") as file:
            task = json.load(file)
        outside: tuple[int, ...] = ()
        streams = fds[1:]
        if task["tty"]:
            master, slave = os.openpty()
            size = struct.pack("HHHH", task["tty"][0], task["tty"][1], 0, 0)
            fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
            outside, streams = (master,), [slave]
        pid = os.fork()
        if pid == 0:
            become(task, streams)
        self.running[pid] = number
        self.answer({"id": number, "pid": pid}, outside)
        for fd in (*streams, *outside):
            os.close(fd)

    def reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake, 4096)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status, used = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return
                cpu_ns = int((used.ru_utime + used.ru_stime) * 1e9)
                if pid in self.running:
                    number = self.running.pop(pid)
                    self.answer(
                        {"id": number, "status": status, "cpu_ns": cpu_ns, "peak": used.ru_maxrss * 1024}
                    )

    def signal(self, message: Message) -> Message:
        """Send a signal to a command's whole tree."""
        number = getattr(signal, "SIG" + message["signal"])
        rounds = KILL_ROUNDS if number == signal.SIGKILL else 1
        for _ in range(rounds):
            members = tree(message["pid"])
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            self.reap()
            if not members or rounds == 1:
                break
            select.select([], [], [], 0.002)
        return {}

    def hold(self, _: Message) -> Message:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGSTOP)
        return {}

    def release(self, _: Message) -> Message:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGCONT)
        return {}

    def usage(self, _: Message) -> Message:
        """CPU nanoseconds of the ended and the living since the box was started, and how many live."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = processes()
        living_s = sum(sum(map(int, fields[11:15])) for fields in found.values()) / TICKS_PER_S
        return {"cpu_ns": int((ended.ru_utime + ended.ru_stime + living_s) * 1e9), "processes": len(found)}


def receive(control: socket.socket) -> tuple[bytes, list[int]]:
    room = socket.CMSG_SPACE(MAX_FDS * array.array("i").itemsize)
    data, ancillary, _, _ = control.recvmsg(4096, room, socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(payload)
    return data, list(fds)


def processes() -> dict[int, list[str]]:
    """Every process but ours, with its `/proc/PID/stat` after the name, which may hold anything."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and name != "1":
            with (
                contextlib.suppress(OSError),
                open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file,
            ):
                found[int(name)] = file.read().rpartition(")")[2].split()
    return found


def tree(root: int) -> list[int]:
    """The living of a command's session and of all that descend from it."""
    found = processes()
    members = {pid for pid, fields in found.items() if root in (pid, int(fields[3]))}
    while more := {pid for pid, fields in found.items() if int(fields[1]) in members} - members:
        members |= more
    return [pid for pid in members if found[pid][0] != "Z"]


def become(task: Message, streams: list[int]) -> NoReturn:
    """In the forked child: take the streams, then turn into the command."""
    try:
        os.setsid()
        if task["tty"]:
            fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
            streams = streams * 3
        for target, fd in enumerate(streams):
            os.dup2(fd, target)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(task["cwd"])
        os.execvpe(task["argv"][0], task["argv"], task["env"])
    except FileNotFoundError as error:
        complain(f"{error.filename or task['argv'][0]}: not found")
        os._exit(NOT_FOUND)
    except BaseException as error:
        complain(f"{type(error).__name__}: {error}")
    finally:
        os._exit(NOT_RUNNABLE)


def complain(text: str) -> None:
    os.write(2, (text + "\n").encode("utf-8", "backslashreplace"))


if __name__ == "__main__":
    main()
