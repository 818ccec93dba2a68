"""refused_calls: the system calls that the sandbox refuses, as the bytes of a filter.

They are for processes, files and memory that no limit counts, for what outlives a process, and for
ways into other processes. No exercise needs any of them.
"""

import platform
import struct
from errno import ENOSYS, EPERM

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column below, kernel's number
CALLS = {  # their numbers on either machine; those since Linux 5 are the same on both
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "mount_setattr": (442, 442),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438), "kcmp": (312, 272), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219), "memfd_create": (319, 279),
    "memfd_secret": (447, 447), "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190),
    "mq_open": (240, 180), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "socket": (41, 198), "socketpair": (53, 199),  # some reach beyond the namespace of networks
}  # fmt: skip
CLONE, CLONE3 = (56, 220), (435, 435)
NAMESPACES = 0x7E020000  # the flags of clone that ask for some
X32 = 0x40000000  # numbers of another way to call x86_64
LOAD, EQUALS, AT_LEAST, HAS, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, MACHINE, FLAGS = 0, 4, 16  # offsets of the number, the machine, the first argument
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000, 0x80000000


def refused_calls() -> bytes:
    """Return the filter for seccomp; on an unknown machine it allows everything."""
    steps = [(RETURN, 0, 0, ALLOW)]
    if platform.machine() in MACHINES:
        column, machine = MACHINES[platform.machine()]
        refuse = (RETURN, 0, 0, REFUSE | EPERM)
        steps = [
            (LOAD, 0, 0, MACHINE), (EQUALS, 1, 0, machine), (RETURN, 0, 0, KILL),
            (LOAD, 0, 0, NUMBER), (AT_LEAST, 0, 1, X32), refuse,
        ]  # fmt: skip
        for numbers in CALLS.values():
            steps += [(EQUALS, 0, 1, numbers[column]), refuse]
        # clone3 hides its flags: a caller that gets ENOSYS uses clone
        steps += [(EQUALS, 0, 1, CLONE3[column]), (RETURN, 0, 0, REFUSE | ENOSYS)]
        steps += [(EQUALS, 0, 3, CLONE[column]), (LOAD, 0, 0, FLAGS), (HAS, 0, 1, NAMESPACES)]
        steps += [refuse, (RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("HBBI", *step) for step in steps)
