package host

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// killEach kills those of the processes that are the user's.
func killEach(pids []int, uid uint32) error {
	for _, pid := range pids {
		if err := kill(pid, uid); err != nil {
			return err
		}
	}
	return nil
}

// kill kills a process if it is the user's.
func kill(pid int, uid uint32) error {
	// From here on it is one very process.
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return gone(err)
	}
	defer unix.Close(pidfd)
	if owner, err := ownerOf(pid); err != nil || owner != uid {
		return gone(err)
	}
	if err := gone(unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)); err != nil {
		return fmt.Errorf("killing process %d of user %d: %w", pid, uid, err)
	}
	return nil
}

// killUser kills every process of a user. kill(2) to -1 signals whatever the caller may
// signal, under the lock that fork(2) takes: none is missed. So a thread becomes that user
// for the call.
func killUser(uid uint32) (err error) {
	onSpoiltThread(func() { err = killAs(uid) })
	return err
}

// stranger is a user id that no process has: the one before the last, which stands for
// "unchanged" in setresuid(2).
const stranger = 1<<32 - 2

// killAs makes the calling thread useless for anything else. Its real and saved user are
// nobody's, so that no process of the user may signal this one (kill(2)): the effective
// user alone gives the permission to signal, and to be signalled the other two count.
func killAs(uid uint32) error {
	if uid == 0 || uid == stranger {
		return fmt.Errorf("user %d is no VM's: not killing its processes", uid)
	}
	// The plain system call: those of packages syscall and unix change all threads.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, stranger, uintptr(uid), stranger); errno != 0 {
		return fmt.Errorf("becoming user %d: %w", uid, errno)
	}
	// With CAP_KILL it would be everybody.
	none := make([]unix.CapUserData, 2)
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
		return fmt.Errorf("dropping capabilities to kill the processes of user %d: %w", uid, err)
	}
	if err := gone(unix.Kill(-1, unix.SIGKILL)); err != nil && err != unix.EPERM {
		return fmt.Errorf("killing the processes of user %d: %w", uid, err)
	}
	return nil
}
