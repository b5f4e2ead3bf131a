"""Processes, devices, mounts, namespaces, system calls and privileges."""

import os
import shutil
from pathlib import Path

import pytest
from tests.contract.sandbox.commands import sh
from tests.escape.conftest import Require
from tests.escape.place import PRELUDE, held, nobody, open_to_all, outside, private, unfiltered

from ironworks.core.ports import Mount, Sandbox, SandboxBackend, SandboxSpec

PROCESSES = """
def found():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try: words = open(f"/proc/{pid}/cmdline").read().split("\\0")
        except OSError: continue
        if sys.argv[1] in words and int(pid) != os.getpid(): return int(pid)
    return False
attempt("seen", found)
attempt("signalled", lambda: (pid := found()) and (os.kill(pid, 0), pid))
attempt("read", lambda: (pid := found()) and open(f"/proc/{pid}/environ", "rb").read())
"""
PID_1 = """
def call(request, pid, *rest):
    if libc.ptrace(request, pid, *rest) < 0: raise OSError(ctypes.get_errno(), "ptrace")
def address(): return int(open("/proc/1/maps").readline().split("-")[0], 16)
def memory():
    with open("/proc/1/mem", "rb") as file:
        file.seek(address())
        return file.read(4)
class Vector(ctypes.Structure): _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
def vector():
    near = ctypes.create_string_buffer(4)
    here, there = Vector(ctypes.addressof(near), 4), Vector(address(), 4)
    if libc.process_vm_readv(1, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) != 4:
        raise OSError(ctypes.get_errno(), "process_vm_readv")
attempt("environ", lambda: open("/proc/1/environ", "rb").read(1))
attempt("fd", lambda: os.readlink("/proc/1/fd/0"))
attempt("fdinfo", lambda: os.listdir("/proc/1/fdinfo"))
def descriptor(): return os.open("/proc/1/fd/" + min(os.listdir("/proc/1/fd")), os.O_RDWR | os.O_NONBLOCK)
attempt("descriptor", descriptor)
attempt("root", lambda: os.listdir("/proc/1/root"))
attempt("cwd", lambda: os.listdir("/proc/1/cwd"))
attempt("mem", memory)
attempt("vector", vector)
attempt("pidfd", lambda: os.close(kernel(438, os.pidfd_open(1), 0, 0)))
attempt("ptrace", call, 0x4206, 1, 0, 0)
attempt("namespace", lambda: os.stat("/proc/1/ns/mnt"))
"""
DEVICES = """
if os.path.isdir(sys.argv[1]): os.chdir(sys.argv[1])  # elsewhere; a sandbox is in its own folder
def make(name, kind, *numbers):
    os.mknod(name, kind, os.makedev(*numbers))
    os.unlink(name)
for name, *device in (("zero", 0o20666, 1, 5), ("disk", 0o60666, 254, 250), ("mem", 0o20666, 1, 1)):
    attempt(name, make, name, *device)
def use():
    os.mknod("null", 0o20666, os.makedev(1, 5))
    return open("null", "rb").read(1)
attempt("used", use)
"""
FOREIGN_DEVICES = """
def found(): return [name for name in os.listdir("/dev") if name in sys.argv[1:]] or False
attempt("listed", found)
"""
MOUNTS = """
def call(*arguments):
    if libc.mount(*arguments): raise OSError(ctypes.get_errno(), "mount")
attempt("tmpfs", call, b"x", b"/tmp", b"tmpfs", 0, None)
attempt("bind", call, b"/usr", b"/mnt" if os.path.isdir("/mnt") else b"/tmp", None, 4096, None)
attempt("proc", call, b"x", b"/proc", b"proc", 0, None)
attempt("umount", lambda: libc.umount2(b"/tmp", 2) == 0)
context = ctypes.c_long(-1)
attempt("fsopen", lambda: kernel(430, b"tmpfs", 0))
def fresh(change=lambda fd: None):
    fd = kernel(430, b"tmpfs", 0)
    kernel(431, fd, 6, None, None, 0)
    return kernel(432, fd, 0, 0)
attempt("fsmount", fresh)
attempt("move_mount", lambda: kernel(429, fresh(), b"", -100, b"/tmp", 4))
attempt("open_tree", lambda: kernel(428, -100, b"/tmp", 1))
attributes = (ctypes.c_uint64 * 4)()
attempt("mount_setattr", lambda: kernel(442, -100, b"/", 0x8000, ctypes.addressof(attributes), 32))
attempt("chroot", lambda: os.chroot("/tmp"))
"""
NAMESPACES = """
def child(flag):
    pid = kernel("clone", flag | 17, 0, 0, 0, 0)
    if pid == 0: os._exit(0)
    os.waitpid(pid, 0)
flags = dict(mount=0x20000, cgroup=0x02000000, uts=0x04000000, ipc=0x08000000)
flags |= dict(user=0x10000000, pid=0x20000000, net=0x40000000)
for name, flag in flags.items(): attempt(f"clone {name}", child, flag)
def clone3():
    arguments = (ctypes.c_uint64 * 8)(0x10000000, 0, 0, 0, 17, 0, 0, 0)
    pid = kernel(435, ctypes.addressof(arguments), 64)
    if pid == 0: os._exit(0)
    os.waitpid(pid, 0)
attempt("clone3 user", clone3)
def program(): subprocess.run(["unshare", "-U", "-r", "true"], check=True, capture_output=True)
attempt("program", program)
fd = os.open("/proc/self/ns/uts", os.O_RDONLY)
attempt("setns", lambda: kernel("setns", fd, 0))
for name, flag in flags.items():
    def unshare():
        pid = os.fork()
        if pid == 0: os._exit(libc.unshare(flag) != 0)
        return os.waitpid(pid, 0)[1] == 0
    attempt(f"unshare {name}", unshare)
"""
SOCKETS = """
for name, family, kind, protocol in %s:
    attempt(name, lambda: socket.socket(family, kind, protocol).close())
"""
CALLS = """
parameters = ctypes.create_string_buffer(120)
attempt("io_uring", lambda: os.close(kernel(425, 1, ctypes.addressof(parameters))))
attempt("add_key", lambda: kernel("add_key", b"user", b"x", b"x", 1, -2))
attempt("keyctl", lambda: kernel("keyctl", 0, -2, 1))
attempt("userfaultfd", lambda: os.close(kernel("userfaultfd", 1)))
handle = (ctypes.c_uint32 * 34)(128)
mount = ctypes.c_int()
places = ctypes.addressof(handle), ctypes.addressof(mount)
attempt("handle", lambda: kernel("handle", -100, b"/tmp", *places, 0))
"""
BPF = """
attributes = (ctypes.c_uint32 * 32)(1, 4, 8, 1)
attempt("bpf", lambda: os.close(kernel("bpf", 0, ctypes.addressof(attributes), 128)))
"""
TERMINAL = """
import fcntl, pty
near, far = pty.openpty()
def typed():
    pid = os.fork()
    if pid == 0:
        os.setsid()
        fcntl.ioctl(far, 0x540E, 0)
        try: fcntl.ioctl(far, 0x5412, b"x")
        except OSError: os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0
attempt("TIOCSTI", typed)
"""
FOREIGN_CALL = """
import mmap
def getpid_of_i386():
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20; int 0x80; ret
    pid = os.fork()
    if pid == 0:
        address = ctypes.addressof(ctypes.c_char.from_buffer(code))
        os._exit(ctypes.CFUNCTYPE(ctypes.c_int)(address)() != os.getpid())
    return os.waitpid(pid, 0)[1] == 0
attempt("i386", getpid_of_i386)
"""
KERNEL_SETTINGS = """
def settings():
    for folder, folders, files in os.walk("/proc"):
        folders[:] = [name for name in folders if not name.isdigit() and name not in ("self", "thread-self")]
        for name in files:
            try: opened = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_NONBLOCK)
            except OSError: continue
            device = os.fstat(opened).st_rdev
            os.close(opened)
            if device == os.makedev(1, 3): continue  # an engine covers what nobody may see by /dev/null
            return f"{folder}/{name}"
    return False
attempt("settings", settings)
attempt("host name", lambda: socket.sethostname("x"))
"""
SET_USER_ID = """
def identity(): return subprocess.run([sys.argv[1], "-u"], capture_output=True, check=True).stdout
attempt("set-user-id", lambda: identity() != f"{os.getuid()}\\n".encode() and identity())
"""
CAPABILITIES = """
def gained():
    grep = [sys.argv[1], "CapEff", "/proc/self/status"]
    said = subprocess.run(grep, capture_output=True, check=True).stdout.split()[1]
    return bool(int(said, 16))
attempt("file capabilities", gained)
"""


HARMLESS = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "console", "mqueue"}
LINKS = {"fd", "stdin", "stdout", "stderr", "core"}


@pytest.fixture
def host_devices() -> list[str]:
    return sorted({path.name for path in Path("/dev").iterdir()} - HARMLESS - LINKS)


@pytest.mark.spec("SB-15")
async def test_processes_outside_are_not_there(sandbox: Sandbox, neighbour: str) -> None:
    await held(sandbox, PROCESSES, neighbour, weak=outside)


@pytest.mark.spec("SB-15", "SB-38")
async def test_pid_1_is_closed(sandbox: Sandbox) -> None:
    await held(sandbox, PID_1, weak=private)
    assert await sh(sandbox, "echo alive") == "alive\n"


@pytest.mark.spec("SB-16")
async def test_no_device_can_be_made(sandbox: Sandbox, tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root, to show that devices can be made elsewhere")
    await held(sandbox, DEVICES, str(tmp_path), weak=outside)


@pytest.mark.spec("SB-16")
async def test_no_device_of_the_host_is_shown(sandbox: Sandbox, host_devices: list[str]) -> None:
    assert host_devices
    await held(sandbox, FOREIGN_DEVICES, *host_devices, weak=outside)


@pytest.mark.spec("SB-16")
async def test_nothing_can_be_mounted_by_the_old_calls_or_the_new(sandbox: Sandbox) -> None:
    await held(sandbox, MOUNTS, weak=private)


@pytest.mark.spec("SB-16")
async def test_no_namespace_can_be_made_or_entered(sandbox: Sandbox) -> None:
    await held(sandbox, NAMESPACES, weak=private)


@pytest.mark.spec("SB-14", "SB-38")
@pytest.mark.parametrize("name", ["VSOCK", "ALG", "KEY", "RAW", "PACKET"])
async def test_sockets_that_no_network_namespace_confines_cannot_be_made(sandbox: Sandbox, name: str) -> None:
    rows = {
        "VSOCK": [("vsock", 40, 1, 0)],
        "ALG": [("alg", 38, 5, 0)],
        "KEY": [("key", 15, 3, 2)],
        "RAW": [("raw", 2, 3, 1), ("raw 6", 10, 3, 58)],
        "PACKET": [("packet", 17, 3, 0)],
    }
    probe = SOCKETS % rows[name]
    place = private if name in {"RAW", "PACKET", "KEY"} else unfiltered
    if "OUT" not in place(PRELUDE + probe, ()):
        pytest.skip(f"needs a kernel that makes {name} sockets")
    await held(sandbox, probe, weak=place)


@pytest.mark.spec("SB-16")
async def test_calls_that_few_need_and_many_misuse_are_refused(sandbox: Sandbox) -> None:
    await held(sandbox, CALLS, weak=(unfiltered, outside))


@pytest.mark.spec("SB-16")
async def test_no_program_can_be_loaded_into_the_kernel(sandbox: Sandbox) -> None:
    if "OUT" not in outside(PRELUDE + BPF, ()):
        pytest.skip("needs root, or a kernel that lets users load programs")
    await held(sandbox, BPF, weak=outside)


@pytest.mark.spec("SB-16")
async def test_nothing_can_be_typed_into_a_terminal(sandbox: Sandbox) -> None:
    if "OUT" not in outside(PRELUDE + TERMINAL, ()):
        pytest.skip("needs a kernel with TIOCSTI")
    await held(sandbox, TERMINAL, weak=(unfiltered, outside))


@pytest.mark.spec("SB-38")
async def test_calls_by_the_numbers_of_another_processor_end_the_program(sandbox: Sandbox) -> None:
    if "OUT" not in unfiltered(PRELUDE + FOREIGN_CALL, ()):
        pytest.skip("needs an x86_64 kernel that runs i386 programs")
    await held(sandbox, FOREIGN_CALL, weak=unfiltered)


@pytest.mark.spec("SB-16")
async def test_no_setting_of_the_kernel_can_be_written(sandbox: Sandbox) -> None:
    await held(sandbox, KERNEL_SETTINGS, weak=private)


@pytest.mark.spec("SB-38")
async def test_a_set_user_id_program_gives_nothing(
    backend: SandboxBackend, require: Require, tmp_path: Path
) -> None:
    """Really run: a copy of `id` that belongs to another user, and a copy of `grep` with capabilities."""
    if os.getuid() != 0:
        pytest.skip("needs root, to make files of another user and with capabilities")
    require("mounts")
    folder = tmp_path / "shown"
    folder.mkdir()
    open_to_all(folder)
    identity = folder / "id"
    shutil.copy("/usr/bin/id", identity)
    os.chown(identity, 65534, 65534)
    identity.chmod(0o6755)
    sandbox = await backend.create(
        SandboxSpec(name="one", mounts=(Mount(host=str(folder), inside=str(folder)),))
    )
    await held(sandbox, SET_USER_ID, str(identity), weak=outside)
    grep = shutil.copy("/usr/bin/grep", folder / "grep")
    # Version 2 of the attribute: effective, with CAP_NET_RAW permitted.
    os.setxattr(grep, "security.capability", bytes.fromhex("0100000200200000000000000000000000000000"))
    await held(sandbox, CAPABILITIES, str(grep), weak=nobody)


@pytest.mark.spec("SB-38")
async def test_a_set_user_id_copy_made_inside_gives_nothing(sandbox: Sandbox) -> None:
    script = "cp /usr/bin/id i; chmod 6755 i; ./i -u; id -u; stat -c %a i"
    ran, own, mode = (await sh(sandbox, script)).split()
    assert ran == own
    assert mode == "6755"
