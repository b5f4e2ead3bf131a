"""The first process inside a sandbox: starts commands for the host, reaps, and passes the listener out.

It runs as `python3 -I -S pid1.py CONTROL LOCK PORT [transparent]` with the system's Python; once it is ready
it holds no privilege that the commands it starts lack. A message on CONTROL is a verb and numbers; what a
command needs comes in a memory file beside its streams: fields that end with a zero byte. Answers are JSON.

Half of what a sandbox takes to boot is this program's start. So it imports the interpreter's own C modules,
and none of those written in Python around them, which would take three times as long as all the rest.
"""

# Path objects and context managers would have to be imported as well.
# ruff: noqa: PTH103, PTH104, PTH108, PTH118, PTH123, PTH208, SIM105

import _ctypes
import _socket
import os
import resource
import select
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import NoReturn
else:
    import _signal as signal

PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_CAP_AMBIENT, AMBIENT_CLEAR_ALL = 4, 24, 47, 4
SETPCAP, NET_BIND_SERVICE, NET_ADMIN = 8, 10, 12
# These three in the byte order of every processor that has a filter: the lowest byte first.
CAPABILITY_HEADER, NO_CAPABILITIES = bytes.fromhex("2205082000000000"), bytes(24)
# A new route, to be acknowledged: IPv4, of no length (every address), in the local table, of type local, by
# the device of index 1, which is lo.
EVERY_ADDRESS = bytes.fromhex("2400000018000504010000000000000002000000ff03fe02000000000800040001000000")
ERROR_AT = 16
SIGNALS_FREED = (signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT, signal.SIGXFSZ)
MISSING, REFUSED, NOT_RUNNABLE, NOT_FOUND = 2, 3, 126, 127
MAX_FDS = 4
FD_BYTES = 4
COPY_BYTES = 1 << 20
KILL_ROUNDS = 500
PAUSE_ROUNDS = 500
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def main() -> "NoReturn":
    control_fd, lock_fd, port = (int(word) for word in sys.argv[1:4])
    # What is not dumpable cannot be traced, nor its memory and descriptors opened, by the commands beside it.
    prctl(PR_SET_DUMPABLE, 0)
    os.umask(0o022)
    os.set_inheritable(lock_fd, False)
    os.set_inheritable(control_fd, False)
    control = _socket.socket(fileno=control_fd)
    opened = [listen("127.0.0.1", port)]
    if sys.argv[4:] == ["transparent"]:
        opened += open_ways()
    fds = b"".join(each.fileno().to_bytes(FD_BYTES, sys.byteorder) for each in opened)
    control.sendmsg([b'{"ready":true}'], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds)])
    for each in opened:
        each.close()
    Keeper(control).run()


def prctl(option: int, value: int) -> None:
    call("prctl", option, value, 0, 0, 0)


def call(name: str, *arguments: int | bytes) -> int:
    """A function of the C library; bytes are passed by their address."""
    own = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # the program itself, as dlopen(3) has it
    result: int = _ctypes.call_function(_ctypes.dlsym(own, name), arguments)
    return result


def listen(address: str, port: int) -> _socket.socket:
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(512)
    return listener


def open_ways() -> list[_socket.socket]:
    """Make every IPv4 address our own, open what programs without a proxy call, give up every privilege."""
    route = _socket.socket(_socket.AF_NETLINK, _socket.SOCK_RAW, 0)
    route.send(EVERY_ADDRESS)
    refused = -int.from_bytes(route.recv(4096)[ERROR_AT : ERROR_AT + 4], sys.byteorder, signed=True)
    route.close()
    if refused:
        raise OSError(refused, os.strerror(refused))
    ways = [listen("0.0.0.0", port) for port in (80, 443)]
    names = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 53))
    drop_privileges()
    return [*ways, names]


def drop_privileges() -> None:
    """Ours, and so those of every command: nothing can be inherited, or gained by running a program."""
    for number in (NET_ADMIN, NET_BIND_SERVICE, SETPCAP):
        prctl(PR_CAPBSET_DROP, number)
    prctl(PR_CAP_AMBIENT, AMBIENT_CLEAR_ALL)
    if call("capset", CAPABILITY_HEADER, NO_CAPABILITIES) != 0:
        raise OSError("capset")


class Keeper:
    """Holds the running commands by pid, and answers the host."""

    def __init__(self, control: _socket.socket) -> None:
        self.control = control
        self.running: dict[int, int] = {}
        self.resting: set[int] = set()
        self.wake, wake_in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)

    def run(self) -> "NoReturn":
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
        verb, id, *numbers = data.decode().split()
        if verb == "exec":
            self.start(int(id), fds)
        else:
            self.answer(int(id), getattr(self, verb)(*map(int, numbers)))

    def answer(self, id: int, more: str) -> None:
        """`more` is what follows in the JSON object."""
        try:
            self.control.send(f'{{"id":{id}{more}}}'.encode())
        except OSError:
            os._exit(0)

    def start(self, id: int, fds: list[int]) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            os.write(fds[3], f"cannot start a process: {error.strerror}\n".encode())
            self.answer(id, f',"status":{NOT_RUNNABLE << 8}')
        else:
            if pid == 0:
                become(self.control, fds)
            self.running[pid] = id
        for fd in fds:
            os.close(fd)

    def reap(self) -> None:
        try:
            os.read(self.wake, 4096)
        except BlockingIOError:
            pass
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                if pid in self.running:
                    self.answer(self.running.pop(pid), f',"status":{status}')
        except ChildProcessError:
            pass

    def kill(self, target: int) -> str:
        """End one command's whole session, however many process groups it has made."""
        leader = next((pid for pid, id in self.running.items() if id == target), None)
        for _ in range(KILL_ROUNDS):
            # The leader itself may not have got round to making its session.
            members = [pid for pid, session in sessions() if leader in (pid, session)]
            if not members:
                break
            for pid in members:
                send(pid, signal.SIGKILL)
            self.reap()
            select.select([], [], [], 0.002)
        return ""

    def kill_all(self) -> str:
        while True:
            send(-1, signal.SIGKILL)
            self.reap()
            try:
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                return ""

    def pause(self) -> str:
        """Return once all have stopped; who sleeps in the kernel stops before it does anything else."""
        self.resting = {pid for pid, fields in processes() if fields[0] == "T"}
        send(-1, signal.SIGSTOP)
        for _ in range(PAUSE_ROUNDS):
            if all(fields[0] in "TtZXD" for _, fields in processes()):
                break
            select.select([], [], [], 0.002)
        return ""

    def resume(self) -> str:
        """All but those that had been stopped by one of their own."""
        for pid, _ in processes():
            if pid not in self.resting:
                send(pid, signal.SIGCONT)
        return ""

    def usage(self) -> str:
        """CPU seconds of the ended and the living, and the largest process's peak memory."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        living_s = sum(sum(map(int, fields[11:15])) for _, fields in processes()) / TICKS_PER_S
        cpu_s = ended.ru_utime + ended.ru_stime + living_s
        return f',"cpu_s":{cpu_s},"memory_peak_bytes":{ended.ru_maxrss * 1024}'


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def receive(control: _socket.socket) -> tuple[bytes, list[int]]:
    room = _socket.CMSG_SPACE(MAX_FDS * FD_BYTES)
    data, ancillary, _, _ = control.recvmsg(4096, room, _socket.MSG_CMSG_CLOEXEC)
    fds: list[int] = []
    for level, kind, payload in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            starts = range(0, len(payload) - FD_BYTES + 1, FD_BYTES)
            fds += (int.from_bytes(payload[at : at + FD_BYTES], sys.byteorder) for at in starts)
    return data, fds


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


def become(control: _socket.socket, fds: list[int]) -> "NoReturn":
    """In the forked child: take the streams, then turn into the command or do the file task."""
    try:
        control.close()
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for target, fd in enumerate(fds[1:]):
            os.dup2(fd, target)
        signal.set_wakeup_fd(-1)
        for number in SIGNALS_FREED:
            signal.signal(number, signal.SIG_DFL)
        with open(fds[0], "rb", closefd=False) as file:
            verb, *fields = file.read().split(b"\0")[:-1]
        os._exit(perform(verb, fields))
    except BaseException as error:
        complain(f"{type(error).__name__}: {error}")
    finally:
        os._exit(NOT_RUNNABLE)


def perform(verb: bytes, fields: list[bytes]) -> int:
    if verb == b"put":
        return put(fields[0], int(fields[1]))
    if verb == b"get":
        return get(fields[0], int(fields[1]))
    words = 2 + int(fields[1])
    environment = dict(pair.split(b"=", 1) for pair in fields[words:])
    return execute(fields[0], fields[2:words], environment)


def execute(folder: bytes, argv: list[bytes], env: dict[bytes, bytes]) -> int:
    """`argv[0]` is looked up in the command's own PATH."""
    try:
        os.chdir(folder)
    except OSError as error:
        return failed(folder, error)
    failure = OSError(2, "not found")
    for program in programs(argv[0], env):
        try:
            os.execve(program, argv, env)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            failure = error if failure.errno == 2 else failure
    return failed(argv[0], failure)


def programs(name: bytes, env: dict[bytes, bytes]) -> list[bytes]:
    """Where a program of that name may be, in the order to try."""
    if b"/" in name:
        return [name]
    folders = env.get(b"PATH", os.defpath.encode()).split(b":")
    return [os.path.join(folder, name) for folder in folders]


def failed(what: bytes, error: OSError) -> int:
    complain(f"{os.fsdecode(what)}: {error.strerror}")
    return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUNNABLE


def put(path: bytes, mode: int) -> int:
    """Write stdin to a file, replacing whatever stood there in one step."""
    folder, name = os.path.split(path)
    partial = os.path.join(folder, b".ironworks-%d" % os.getpid())
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


def get(path: bytes, max_bytes: int) -> int:
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
