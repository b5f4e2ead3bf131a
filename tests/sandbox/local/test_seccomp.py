"""The filter's program run by a small interpreter, for every processor we have a table for."""

import errno
import re
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from ironworks.sandbox.local.seccomp import (
    ABSENT,
    ALLOW,
    AUDIT,
    CHECKED,
    DENIED,
    FAIL,
    KILL,
    NEWER,
    TRACING,
    seccomp_filter,
)

HARMLESS = {
    "x86_64": {"read": 0, "fork": 57, "execve": 59, "ptrace": 101},
    "aarch64": {"read": 63, "execve": 221},
}
MACHINES = sorted(AUDIT)


def verdict(machine: str, number: int, arguments: Mapping[int, int] = {}, *, audit: int = 0) -> int:
    """What the kernel would do for one system call."""
    values = [arguments.get(index, 0) for index in range(6)]
    data = struct.pack("=IIQ6Q", number, audit or AUDIT[machine], 0, *values)
    program = list(struct.iter_unpack("HBBI", seccomp_filter(machine) or b""))
    accumulator, at = 0, 0
    while True:
        code, if_true, if_false, operand = program[at]
        at += 1
        if code == 0x06:
            return int(operand)
        if code == 0x20:
            accumulator = struct.unpack_from("=I", data, operand)[0]
        else:
            compare = {
                0x15: accumulator == operand,
                0x35: accumulator >= operand,
                0x45: accumulator & operand,
            }
            at += if_true if compare[code] else if_false


@pytest.mark.spec("SB-16")
@pytest.mark.parametrize("machine", MACHINES)
def test_listed_calls_fail_and_others_pass(machine: str) -> None:
    for name, number in (DENIED[machine] | NEWER).items():
        assert verdict(machine, number) == FAIL | errno.EPERM, name
    for name, number in ABSENT.items():
        assert verdict(machine, number) == FAIL | errno.ENOSYS, name
    for name, number in HARMLESS[machine].items():
        assert verdict(machine, number) == ALLOW, name


@pytest.mark.spec("SB-16")
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("call", ["socket", "socketpair"])
def test_only_four_families_of_sockets_can_be_made(machine: str, call: str) -> None:
    number = CHECKED[machine][call]
    for family in range(46):
        expected = ALLOW if family in {1, 2, 10, 16} else FAIL | errno.EAFNOSUPPORT
        # The kernel reads only the low half of this argument.
        assert [verdict(machine, number, {0: family | high << 32}) for high in (0, 1)] == [expected] * 2


@pytest.mark.spec("SB-38")
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("call", ["ptrace", "process_vm_readv", "process_vm_writev"])
def test_every_process_but_pid_1_can_be_traced(machine: str, call: str) -> None:
    number, argument = TRACING[machine][call]
    for pid in (1, 1 | 1 << 32):
        assert verdict(machine, number, {argument: pid}) == FAIL | errno.EPERM
    for pid in (0, 2, 1 << 31):
        assert verdict(machine, number, {argument: pid}) == ALLOW


@pytest.mark.spec("SB-16")
@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_those_of_the_kernels_own_headers(machine: str) -> None:
    """Where this machine has the headers of its kind of processor."""
    header = next(Path("/usr/include").glob(f"{machine}-linux-gnu*/asm/unistd_64.h"), None)
    if header is None:
        pytest.skip(f"needs the kernel's headers for {machine}")
    known = dict(re.findall(r"#define __NR_(\w+) (\d+)", header.read_text()))
    tracing = {name: number for name, (number, _) in TRACING[machine].items()}
    for name, number in (DENIED[machine] | NEWER | ABSENT | CHECKED[machine] | tracing).items():
        assert int(known.get(name, number)) == number, name


@pytest.mark.spec("SB-16")
@pytest.mark.parametrize("machine", MACHINES)
def test_processes_can_be_made_and_namespaces_cannot(machine: str) -> None:
    clone = CHECKED[machine]["clone"]
    threads, vfork = 0x3D0F00, 0x4111
    assert [verdict(machine, clone, {0: flags}) for flags in (17, threads, vfork)] == [ALLOW] * 3
    for bit in (17, 25, 26, 27, 28, 29, 30):
        assert verdict(machine, clone, {0: 17 | 1 << bit}) == FAIL | errno.EPERM


@pytest.mark.spec("SB-16")
@pytest.mark.parametrize("machine", MACHINES)
def test_a_terminal_cannot_be_typed_into(machine: str) -> None:
    ioctl = CHECKED[machine]["ioctl"]
    assert verdict(machine, ioctl, {1: 0x5412}) == FAIL | errno.EPERM
    assert verdict(machine, ioctl, {1: 0x541C}) == FAIL | errno.EPERM
    assert verdict(machine, ioctl, {1: 0x5413}) == ALLOW


@pytest.mark.spec("SB-16")
def test_calls_in_another_processors_numbers_do_not_pass() -> None:
    for machine in MACHINES:
        assert verdict(machine, 0, audit=0x40000003) == KILL
    assert verdict("x86_64", 0x40000000 | 41, {0: 40}) == FAIL | errno.ENOSYS


def test_a_processor_without_a_table_gets_no_filter() -> None:
    assert seccomp_filter("riscv64") is None
