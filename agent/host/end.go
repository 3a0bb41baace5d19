package host

import (
	"errors"
	"fmt"
	"io/fs"
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
		left, err := h.processes(c, uid)
		if err != nil && time.Now().Before(deadline) {
			time.Sleep(retryEvery)
			continue
		}
		if err != nil || len(left) == 0 {
			return err
		}
		for _, pid := range left {
			err = errors.Join(err, kill(pid, uid, deadline))
		}
		if err == nil && time.Now().After(deadline) {
			err = fmt.Errorf("processes %v of user %d don't end, although they were killed: end them by hand", left, uid)
		}
		if err != nil {
			return err
		}
	}
}

// processes are those of a user, in a cgroup if there is one.
func (h *Host) processes(c Cgroup, uid uint32) (own []int, err error) {
	grouped := h.cgroups != nil && len(c.Paths) > 0
	var pids []int
	if grouped {
		pids, err = h.cgroups.Processes(c)
	} else {
		pids, err = everyProcess()
	}
	var others []int
	for _, pid := range pids {
		switch owner, there := ownerOf(pid); {
		case !there:
		case owner == uid:
			own = append(own, pid)
		case grouped:
			others = append(others, pid)
		}
	}
	if len(own) > 0 && len(others) > 0 {
		return nil, fmt.Errorf("in cgroup %s run processes %v of user %d, and %v of others: the VMM's shim seems to be alive, and so nothing is ended there", c.Path(), own, uid, others)
	}
	return own, err
}

func everyProcess() (pids []int, err error) {
	all, err := procfs.AllProcs()
	for _, p := range all {
		pids = append(pids, p.PID)
	}
	return pids, err
}

// ownerOf is a process's real user; false: it has ended. The owner of its folder in
// /proc may be another: it is root's if the process is not dumpable (proc(5)).
func ownerOf(pid int) (uid uint32, there bool) {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return 0, false
	}
	defer unix.Close(pidfd)
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, false
	}
	status, err := p.NewStatus()
	return uint32(status.UIDs[0]), err == nil && !ended(pidfd, 0)
}

// kill kills a process if it is the user's, and waits for its end.
func kill(pid int, uid uint32, deadline time.Time) error {
	// From here on it is one very process.
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return gone(err)
	}
	defer unix.Close(pidfd)
	if owner, there := ownerOf(pid); !there || owner != uid {
		return nil
	}
	if err := gone(unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)); err != nil {
		return fmt.Errorf("killing process %d of user %d: %w", pid, uid, err)
	}
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

// gone is no error if it says that a process has ended.
func gone(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
