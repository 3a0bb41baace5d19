package helper

import (
	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/seccomp"
)

// newNamespaces are the flags of clone(2) that make any.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// calls are the system calls that the helper makes: those of Go's runtime, and of package
// podnet/namespace and lease/socket. It starts no process, and enters network namespaces alone.
func calls() []seccomp.Call {
	all := seccomp.Any(
		// Go's runtime, and the C library's where a build has one (-race).
		unix.SYS_FUTEX, unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_MPROTECT,
		unix.SYS_BRK, unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
		unix.SYS_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY,
		unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_TGKILL, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
		unix.SYS_RSEQ, unix.SYS_SET_ROBUST_LIST, unix.SYS_GETRANDOM, unix.SYS_RESTART_SYSCALL,
		unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, unix.SYS_PIPE2,
		// Files and sockets.
		unix.SYS_READ, unix.SYS_WRITE, unix.SYS_CLOSE, unix.SYS_OPENAT, unix.SYS_FSTAT, unix.SYS_NEWFSTATAT, unix.SYS_FCNTL,
		unix.SYS_BIND, unix.SYS_SENDTO, unix.SYS_RECVFROM, unix.SYS_SENDMSG, unix.SYS_RECVMSG, unix.SYS_SHUTDOWN,
		unix.SYS_SETSOCKOPT, unix.SYS_GETSOCKOPT, unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME,
	)
	return append(all,
		seccomp.Call{Number: unix.SYS_CLONE, Restricted: true, Argument: 0, Mask: newNamespaces | unix.CLONE_THREAD, Values: []uint32{unix.CLONE_THREAD}},
		seccomp.Where(unix.SYS_SETNS, 1, unix.CLONE_NEWNET),
		seccomp.Where(unix.SYS_SOCKET, 0, unix.AF_NETLINK, unix.AF_PACKET, unix.AF_INET, unix.AF_INET6),
		seccomp.Where(unix.SYS_IOCTL, 1, unix.TUNSETIFF, unix.NS_GET_NSTYPE),
	)
}
