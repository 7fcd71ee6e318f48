#!/usr/bin/python3
"""Writes the seccomp filter that systemd makes of SystemCallFilter and RestrictAddressFamilies of a unit, for
`setpriv --seccomp-filter`. Reads the output of `systemd-analyze syscall-filter`, which has the members of all
groups. Usage: syscall-filter.py UNIT <GROUPS >FILTER"""
import re
import socket
import struct
import sys

LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, KILL_PROCESS, EPERM = 0x7FFF0000, 0x80000000, 0x00050000 | 1
X86_64 = 0xC000003E
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16

unit = open(sys.argv[1]).read()
header = open("/usr/include/x86_64-linux-gnu/asm/unistd_64.h").read()
numbers = {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)", header)}

groups = {}
for line in sys.stdin:
    if line.startswith("@"):
        members = groups[line.strip()] = []
    elif line.startswith("    ") and not line.strip().startswith("#"):
        members.append(line.strip())


def setting(name):
    return re.search(f"^{name}=(.*)$", unit, re.MULTILINE).group(1).split()


def members_of(name):
    return {name} if not name.startswith("@") else set().union(*map(members_of, groups[name]))


def statement(code, value, if_true=0, if_false=0):
    return struct.pack("=HBBI", code, if_true, if_false, value)


def returned(value, result):
    """If the loaded word has the value, returns the result."""
    return statement(JUMP_IF_EQUAL, value, 0, 1) + statement(RETURN, result)


# systemd adds @default to each list of allowed calls.
allowed = set().union(*map(members_of, [*setting("SystemCallFilter"), "@default"]))
families = setting("RestrictAddressFamilies")
result = statement(LOAD, ARCHITECTURE) + statement(JUMP_IF_EQUAL, X86_64, 1, 0) + statement(RETURN, KILL_PROCESS)
result += statement(LOAD, NUMBER)
for number in sorted(numbers[name] for name in allowed if name in numbers and name != "socket"):
    result += returned(number, ALLOW)
result += statement(JUMP_IF_EQUAL, numbers["socket"], 1, 0) + statement(RETURN, EPERM)
result += statement(LOAD, FIRST_ARGUMENT)
for family in families:
    result += returned(getattr(socket, family), ALLOW)
# systemd refuses other families with EAFNOSUPPORT.
result += statement(RETURN, 0x00050000 | 97)
sys.stdout.buffer.write(result)
