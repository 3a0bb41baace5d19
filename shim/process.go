package shim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/shim/internal/rundir"
)

// VMMRecordName is the file in a VM's run folder in which its shim says, from the first renewal of its VMM on, which process
// is the VM's: a VMMRecord.
const VMMRecordName = "vmm.json"

// VMMRecord is which process runs a guest. The VMMs of a shim end with it: if it has ended, none does.
type VMMRecord struct {
	// VMM has the guest; RunID is the shim's.
	VMM ShimProcess `json:"vmm"`
	// Next is a VMM that is about to have it: until that is over, either may. One alone runs it. Nil: there is none.
	Next *ShimProcess `json:"next,omitempty"`
	// Renewals is how many VMMs the guest has left behind.
	Renewals int `json:"renewals"`
}

// ReadVMMRecord reads which process has the guest. The error wraps fs.ErrNotExist if the VMM was never renewed.
func ReadVMMRecord(runDir string) (*VMMRecord, error) {
	return readJSON[VMMRecord](runDir, VMMRecordName)
}

// maxFile bounds the JSON files that a shim leaves, in bytes: the largest has the VMM's last
// words.
const maxFile = 128 << 10

// ReadExit reads how the VM's last VMM ended. The error wraps fs.ErrNotExist if
// none has. Compare RunID: it may be an earlier run's.
func ReadExit(stateDir string) (*Exit, error) {
	exit, err := readJSON[Exit](stateDir, ExitName)
	exit.bound()
	return exit, err
}

// ReadShimProcess reads which process a run folder's shim is. The error wraps
// fs.ErrNotExist if none has come up there.
func ReadShimProcess(runDir string) (*ShimProcess, error) {
	return readJSON[ShimProcess](runDir, PIDName)
}

func readJSON[T any](path, name string) (*T, error) {
	dir, err := rundir.Open(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	b, err := dir.ReadFile(name, maxFile)
	if err != nil {
		return nil, err
	}
	var v T
	if err := json.Unmarshal(b, &v); err != nil {
		return nil, fmt.Errorf("%s: %w", dir.Path(name), err)
	}
	return &v, nil
}

// ProcessAlive reports whether that very process runs: a zombie doesn't, and
// neither does another process that was given its pid. It is false when that
// can't be found out; see OpenProcess.
func ProcessAlive(p ShimProcess) bool { return ended(p) == nil }

// ended returns nil if that very process runs. The error wraps os.ErrProcessDone if it
// doesn't, any other leaves that open.
func ended(p ShimProcess) error {
	if p.BootID != "" {
		if now, err := bootID(); err != nil {
			return err
		} else if now != p.BootID {
			return os.ErrProcessDone
		}
	}
	start, err := processStart(p.PID)
	if err == nil && start != p.StartTime || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		err = os.ErrProcessDone
	}
	return err
}

// OpenProcess returns a pidfd (pidfd_open(2)) of that very process: to wait for
// its end by poll(2), and to signal it. The error wraps os.ErrProcessDone if it
// has ended; any other leaves open whether it runs.
func OpenProcess(p ShimProcess) (*os.File, error) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		err = os.ErrProcessDone
	}
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", p.PID, err)
	}
	// Compared after the descriptor is there: from then on the pid can't go to
	// another process unnoticed.
	if err := ended(p); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("process %d: %w", p.PID, err)
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// Identify returns the process that has this pid now.
func Identify(pid int) (ShimProcess, error) {
	start, err := processStart(pid)
	return ShimProcess{PID: pid, StartTime: start}, err
}

// IdentifyRun is Identify of a process of a run, which another after a reboot is not taken for.
func IdentifyRun(pid int, runID string) (ShimProcess, error) {
	p, errStart := Identify(pid)
	boot, errBoot := bootID()
	p.RunID, p.BootID = runID, boot
	return p, errors.Join(errStart, errBoot)
}

// Self returns this process as a ShimProcess.
func Self(runID string) (ShimProcess, error) {
	start, errStart := processStart(os.Getpid())
	boot, errBoot := bootID()
	return ShimProcess{PID: os.Getpid(), StartTime: start, RunID: runID, BootID: boot}, errors.Join(errStart, errBoot)
}

// bootID is another after each boot (random(4)).
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(b)), err
}

// processStart returns field 22 of /proc/PID/stat, see proc(5).
func processStart(pid int) (uint64, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	// The second field is the program's name in brackets, which may contain
	// anything; the third is the state.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("%s: only %d fields after the program's name", path, len(fields))
	}
	if state := fields[0][0]; state == 'Z' || state == 'X' {
		return 0, fmt.Errorf("%s: %w", path, os.ErrProcessDone)
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
}
