package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/interrupted"
)

// EndProcesses kills what still runs as a VM's user in its cgroup, and returns when all of
// it has ended; for a Cgroup without paths it kills whatever runs as that user. The VMM
// dies with its shim, unless somebody has taken the VMM over and told the kernel otherwise,
// which any process may (PR_SET_PDEATHSIG, prctl(2)). It would keep the VM's disks, and a
// user id that another VM gets. The error names what still runs when ctx ends.
func (h *Host) EndProcesses(ctx context.Context, c Cgroup, uid uint32) error {
	if uid == 0 {
		return nil // no VM's
	}
	if h.cgroups == nil || len(c.Paths) == 0 {
		return endUser(ctx, uid)
	}
	return h.endCgroup(ctx, c, uid)
}

// endUser kills first and looks then: processes that fork and end all the time are in no
// list by the time that it is read.
func endUser(ctx context.Context, uid uint32) error {
	for {
		if err := killUser(uid); err != nil {
			return err
		}
		all, err := everyProcess()
		if err != nil {
			return err
		}
		own, _, err := owned(all, uid)
		if err != nil || len(own) == 0 {
			return err
		}
		if ctx.Err() != nil {
			return stuck(own, uid)
		}
		if err := await(ctx, own); err != nil {
			return err
		}
	}
}

// endCgroup goes by the kernel's list alone: that a process in it has ended says nothing of
// those that it has forked. While the shim, another user's, is in the cgroup, nothing is
// killed: it reports the VMM's end before its own, and is waited for.
func (h *Host) endCgroup(ctx context.Context, c Cgroup, uid uint32) error {
	for ; ; sleep(ctx, retryEvery) {
		pids, err := h.cgroups.Processes(c)
		if err != nil || len(pids) == 0 {
			return err
		}
		own, others, err := owned(pids, uid)
		late := ctx.Err() != nil
		switch {
		case err != nil:
		case len(others) > 0 && late:
			return fmt.Errorf("in cgroup %s run processes %s, which are not user %d's: the VMM's shim seems to be alive, and so nothing is ended there", c.Path(), some(others), uid)
		case len(others) > 0:
			err = await(ctx, others[:1])
		case late:
			return stuck(pids, uid)
		default:
			if err = errors.Join(h.cgroups.Shut(c), killEach(own, uid)); err == nil {
				err = await(ctx, own)
			}
		}
		if err != nil {
			return err
		}
	}
}

func stuck(pids []int, uid uint32) error {
	return fmt.Errorf("processes %s of user %d were killed and have not ended: /proc/PID/stack has what they wait for, such as a disk that does not answer", some(pids), uid)
}

// owned tells a user's own processes from those of others, and leaves out what has ended.
func owned(pids []int, uid uint32) (own, others []int, err error) {
	for _, pid := range pids {
		owner, err := ownerOf(pid)
		switch {
		case err != nil && gone(err) == nil:
		case err != nil:
			return nil, nil, fmt.Errorf("whose process %d is: %w", pid, err)
		case owner == uid:
			own = append(own, pid)
		default:
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

// maxNamed bounds how many processes an error names.
const maxNamed = 8

func some(pids []int) string {
	if len(pids) <= maxNamed {
		return fmt.Sprint(pids)
	}
	return fmt.Sprintf("%v and %d more", pids[:maxNamed], len(pids)-maxNamed)
}

// pollEvery is how often a wait for a process looks whether its context has ended.
const pollEvery = 100 * time.Millisecond

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// await waits for the ends of processes, or for that of ctx.
func await(ctx context.Context, pids []int) error {
	for _, pid := range pids {
		pidfd, err := unix.PidfdOpen(pid, 0)
		if gone(err) != nil {
			return err
		}
		if err != nil {
			continue
		}
		for ctx.Err() == nil && !ended(pidfd, pollEvery) {
		}
		unix.Close(pidfd)
	}
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
