"""Seccomp: system calls that no forward pass needs answer "not permitted".

A deny list, not an allow list: what torch, OpenMP, numpy and a GPU driver call differs between
versions and machines, and a legal candidate must not fail on a new one. The price is that a call
which a new kernel invents is not refused until it is named here; the other layers do not depend on it.
"""

from __future__ import annotations

import errno
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyseccomp import SyscallFilter

__all__ = ["deny", "prepare"]

_CLONE_THREAD = 0x00010000

_START = "execve execveat fork vfork"
_ALWAYS = """
    ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_open pidfd_getfd pidfd_send_signal
    io_uring_setup io_uring_enter io_uring_register
    bpf perf_event_open userfaultfd fanotify_init lookup_dcookie
    mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr
    unshare setns
    keyctl add_key request_key
    name_to_handle_at open_by_handle_at
    init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff
    clock_settime clock_adjtime settimeofday adjtimex
    personality acct syslog quotactl sethostname setdomainname iopl ioperm vhangup
    setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid capset
    mknod mknodat
"""
_AF_UNIX = 1
"""The CUDA driver wants such sockets for itself; in a namespace of one's own they lead nowhere."""
_TIOCSTI = 0x5412


@cache
def prepare(may_start_programs: bool) -> SyscallFilter:
    """Build a filter once, where nothing untrusted has run yet.

    Raises:
        OSError: pyseccomp or libseccomp is missing.
    """
    try:
        import pyseccomp
    except (ImportError, RuntimeError) as error:
        raise OSError(errno.ENOSYS, f"libseccomp cannot be loaded: {error}") from None
    made = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    refuse, absent = pyseccomp.ERRNO(errno.EPERM), pyseccomp.ERRNO(errno.ENOSYS)
    names = _ALWAYS.split() + ([] if may_start_programs else _START.split())
    for name in names:
        if pyseccomp.resolve_syscall(pyseccomp.system_arch(), name) >= 0:
            made.add_rule(refuse, name)
    made.add_rule(refuse, "socket", pyseccomp.Arg(0, pyseccomp.NE, _AF_UNIX))
    made.add_rule(refuse, "ioctl", pyseccomp.Arg(1, pyseccomp.EQ, _TIOCSTI))
    if not may_start_programs:
        # Threads stay possible. clone3 hides its flags, and glibc then falls back to clone.
        made.add_rule(refuse, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, _CLONE_THREAD, 0))
        made.add_rule(absent, "clone3")
    return made


def deny(may_start_programs: bool) -> None:
    """Load the filter into this process, for good.

    Raises:
        OSError: libseccomp is missing, or the kernel refuses.
    """
    prepare(may_start_programs).load()
