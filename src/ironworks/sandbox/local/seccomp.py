"""The system calls no command in a sandbox may make, as a classic BPF program for the kernel.

A deny list: it closes ways around the namespaces (mounts, new namespaces, kernel keyrings, sockets that no
network namespace confines) and parts of the kernel that few programs need and many exploits use.
"""

import errno
import platform
import struct
from collections.abc import Iterator

LOAD, JUMP_EQUAL, JUMP_GREATER_EQUAL, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, FAIL = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16
X32_BIT = 0x40000000
NEW_NAMESPACES = 0x7E020000  # clone flags: NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
SOCKET_FAMILIES = (1, 2, 10, 16)  # UNIX, INET, INET6, NETLINK
TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX

AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Pretending that the kernel lacks them makes programs fall back.
ABSENT = {"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "clone3": 435}
NEWER = {
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "open_tree_attr": 467,
}
DENIED = {
    "x86_64": {
        "pivot_root": 155,
        "acct": 163,
        "mount": 165,
        "umount2": 166,
        "swapon": 167,
        "swapoff": 168,
        "reboot": 169,
        "iopl": 172,
        "ioperm": 173,
        "init_module": 175,
        "delete_module": 176,
        "quotactl": 179,
        "kexec_load": 246,
        "add_key": 248,
        "request_key": 249,
        "keyctl": 250,
        "unshare": 272,
        "perf_event_open": 298,
        "name_to_handle_at": 303,
        "open_by_handle_at": 304,
        "setns": 308,
        "finit_module": 313,
        "kexec_file_load": 320,
        "bpf": 321,
        "userfaultfd": 323,
        "syslog": 103,
    },
    "aarch64": {
        "umount2": 39,
        "mount": 40,
        "pivot_root": 41,
        "quotactl": 60,
        "acct": 89,
        "unshare": 97,
        "kexec_load": 104,
        "init_module": 105,
        "delete_module": 106,
        "syslog": 116,
        "reboot": 142,
        "add_key": 217,
        "request_key": 218,
        "keyctl": 219,
        "swapon": 224,
        "swapoff": 225,
        "perf_event_open": 241,
        "name_to_handle_at": 264,
        "open_by_handle_at": 265,
        "setns": 268,
        "finit_module": 273,
        "bpf": 280,
        "userfaultfd": 282,
        "kexec_file_load": 294,
    },
}
CHECKED = {
    "x86_64": {"ioctl": 16, "socket": 41, "socketpair": 53, "clone": 56},
    "aarch64": {"ioctl": 29, "socket": 198, "socketpair": 199, "clone": 220},
}
# Which argument names the process. Debuggers may have any but pid 1, which is ours.
TRACING = {
    "x86_64": {"ptrace": (101, 1), "process_vm_readv": (310, 0), "process_vm_writev": (311, 0)},
    "aarch64": {"ptrace": (117, 1), "process_vm_readv": (270, 0), "process_vm_writev": (271, 0)},
}

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, operand."""


def seccomp_filter(machine: str = platform.machine()) -> bytes | None:
    """The program for this kind of processor; None where we have no table for it."""
    if machine not in AUDIT:
        return None
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program(machine))


def program(machine: str) -> Iterator[Instruction]:
    yield (LOAD, 0, 0, ARCHITECTURE_AT)
    yield (JUMP_EQUAL, 1, 0, AUDIT[machine])
    yield (RETURN, 0, 0, KILL)
    yield (LOAD, 0, 0, NUMBER_AT)
    if machine == "x86_64":
        yield (JUMP_GREATER_EQUAL, 0, 1, X32_BIT)
        yield (RETURN, 0, 0, FAIL | errno.ENOSYS)
    for number in ABSENT.values():
        yield from answer(number, FAIL | errno.ENOSYS)
    for number in (*DENIED[machine].values(), *NEWER.values()):
        yield from answer(number, FAIL | errno.EPERM)
    checked = CHECKED[machine]
    yield from when(checked["clone"], 0, new_namespace())
    for name in ("socket", "socketpair"):
        yield from when(checked[name], 0, one_of(SOCKET_FAMILIES, ALLOW, FAIL | errno.EAFNOSUPPORT))
    for number, argument in TRACING[machine].values():
        yield from when(number, argument, one_of((1,), FAIL | errno.EPERM, ALLOW))
    yield from when(checked["ioctl"], 1, one_of(TERMINAL_INPUT, FAIL | errno.EPERM, ALLOW))
    yield (RETURN, 0, 0, ALLOW)


def answer(number: int, verdict: int) -> Iterator[Instruction]:
    yield (JUMP_EQUAL, 0, 1, number)
    yield (RETURN, 0, 0, verdict)


def when(number: int, argument: int, then: list[Instruction]) -> Iterator[Instruction]:
    """For one system call decide by the low half of an argument, which is all the kernel reads of these."""
    yield (JUMP_EQUAL, 0, len(then) + 1, number)
    yield (LOAD, 0, 0, ARGUMENTS_AT + 8 * argument)
    yield from then


def new_namespace() -> list[Instruction]:
    return [
        (JUMP_ANY_BIT, 0, 1, NEW_NAMESPACES),
        (RETURN, 0, 0, FAIL | errno.EPERM),
        (RETURN, 0, 0, ALLOW),
    ]


def one_of(values: tuple[int, ...], verdict: int, otherwise: int) -> list[Instruction]:
    return [
        *((JUMP_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)),
        (RETURN, 0, 0, otherwise),
        (RETURN, 0, 0, verdict),
    ]
