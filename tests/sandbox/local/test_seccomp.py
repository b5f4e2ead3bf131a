"""The filter's program run by a small interpreter, for every processor we have a table for."""

import errno
import struct
from collections.abc import Mapping

import pytest

from ironworks.sandbox.local.seccomp import ABSENT, ALLOW, AUDIT, CHECKED, DENIED, FAIL, KILL, seccomp_filter

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
    for name, number in DENIED[machine].items():
        assert verdict(machine, number) == FAIL | errno.EPERM, name
    for name, number in ABSENT.items():
        assert verdict(machine, number) == FAIL | errno.ENOSYS, name
    for name, number in HARMLESS[machine].items():
        assert verdict(machine, number) == ALLOW, name


@pytest.mark.spec("SB-16")
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("family", range(46))
def test_only_four_families_of_sockets_can_be_made(machine: str, family: int) -> None:
    expected = ALLOW if family in {1, 2, 10, 16} else FAIL | errno.EAFNOSUPPORT
    assert verdict(machine, CHECKED[machine]["socket"], {0: family}) == expected
    # The kernel reads only the low half of this argument.
    assert verdict(machine, CHECKED[machine]["socket"], {0: family | 1 << 32}) == expected


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
