package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/interrupted"
)

// EndProcesses kills what still runs as a VM's user in its cgroup; where there are no
// cgroups, what runs as that user at all. It is for when the shim has ended: the VMM
// dies with it, unless somebody has taken the VMM over and told the kernel otherwise,
// which any process may (PR_SET_PDEATHSIG, prctl(2)). It would keep the VM's disks, and
// a user id that another VM gets. While the shim, another user's, is in the cgroup, too,
// nothing is killed: it tells of the VMM's end before its own, and is waited for.
func (h *Host) EndProcesses(c Cgroup, uid uint32) error {
	if uid == 0 {
		return nil // no VM's
	}
	for deadline := soon(); ; {
		own, others, err := h.processes(c, uid)
		if err != nil || len(own) == 0 {
			return err
		}
		late := time.Now().After(deadline)
		switch {
		case len(others) > 0 && late:
			return fmt.Errorf("in cgroup %s run processes %v of user %d, and %v of others: the VMM's shim seems to be alive, and so nothing is ended there", c.Path(), own, uid, others)
		case len(others) > 0:
			err = await(others[0], deadline)
		case late:
			return fmt.Errorf("processes %v of user %d don't end, although they were killed: end them by hand", own, uid)
		default:
			for _, pid := range own {
				err = errors.Join(err, kill(pid, uid, deadline))
			}
		}
		if err != nil {
			return err
		}
	}
}

// processes are a user's own, and those of others, in a cgroup; where there are no
// cgroups the user's alone.
func (h *Host) processes(c Cgroup, uid uint32) (own, others []int, err error) {
	grouped := h.cgroups != nil && len(c.Paths) > 0
	var pids []int
	if grouped {
		pids, err = h.cgroups.Processes(c)
	} else {
		pids, err = everyProcess()
	}
	if err != nil {
		return nil, nil, err
	}
	for _, pid := range pids {
		owner, err := ownerOf(pid)
		switch {
		case err != nil && gone(err) == nil:
		case err != nil:
			return nil, nil, fmt.Errorf("whose process %d is: %w", pid, err)
		case owner == uid:
			own = append(own, pid)
		case grouped:
			others = append(others, pid)
		}
	}
	return own, others, nil
}

func everyProcess() (pids []int, err error) {
	all, err := procfs.AllProcs()
	for _, p := range all {
		pids = append(pids, p.PID)
	}
	return pids, err
}

// ownerOf is a process's real user. The owner of its folder in /proc may be another: it
// is root's if the process is not dumpable (proc(5)). See gone for the error of one that
// has ended; any other leaves open whether it has.
func ownerOf(pid int) (uid uint32, err error) {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(pidfd)
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	status, err := p.NewStatus()
	if ended(pidfd, 0) {
		err = os.ErrProcessDone
	}
	return uint32(status.UIDs[0]), err
}

// kill kills a process if it is the user's, and waits for its end.
func kill(pid int, uid uint32, deadline time.Time) error {
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
	ended(pidfd, time.Until(deadline))
	return nil
}

// await waits for a process's end.
func await(pid int, deadline time.Time) error {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return gone(err)
	}
	defer unix.Close(pidfd)
	ended(pidfd, time.Until(deadline))
	return nil
}

// ended says whether a process has ended, all its threads, which its state in /proc
// doesn't tell: that is its first thread's.
func ended(pidfd int, within time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := interrupted.RetryInt(func() (int, error) { return unix.Poll(fds, int(max(within, 0).Milliseconds())) })
	return err == nil && n > 0
}

// gone is no error if it says that a process has ended: pidfd_open(2) says EINVAL of
// one that is just being forgotten.
func gone(err error) error {
	for _, ended := range []error{os.ErrProcessDone, fs.ErrNotExist, unix.ESRCH, unix.EINVAL} {
		if errors.Is(err, ended) {
			return nil
		}
	}
	return err
}
