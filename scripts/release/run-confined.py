#!/usr/bin/python3
"""Runs a command in a root file system as root with five capabilities, as the DaemonSet of
deploy/kubernetes runs its container. Usage: run-confined.py ROOT COMMAND [ARGUMENT...]"""
import ctypes
import os
import sys

PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 24, 38, 47, 4
NET_BIND_SERVICE, NET_ADMIN, NET_RAW, PERFMON, BPF = 10, 12, 13, 38, 39

root, *command = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)


def prctl(*arguments):
    if libc.prctl(*arguments, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {arguments}")


os.chroot(root)
os.chdir("/")
last = int(open("/proc/sys/kernel/cap_last_cap").read())
prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
for capability in range(last + 1):
    if capability not in (NET_BIND_SERVICE, NET_ADMIN, NET_RAW, PERFMON, BPF):
        prctl(PR_CAPBSET_DROP, capability)
prctl(PR_SET_NO_NEW_PRIVS, 1)
# The kernel limits the capabilities of root to the bounding set when the command starts.
os.execve(command[0], command, {"PATH": "/usr/sbin:/usr/bin", "NODE_NAME": "release-test"})
