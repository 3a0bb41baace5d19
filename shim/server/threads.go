package server

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Flags of a task, in field 9 of /proc/PID/task/TID/stat (include/linux/sched.h).
const (
	taskExiting    = 0x00000004 // PF_EXITING: it never returns to the program
	taskUserWorker = 0x00004000 // PF_USER_WORKER: it is the kernel's, such as one of vhost, and runs no program
)

// thread is one of a process's, as the kernel says it.
type thread struct {
	state byte
	flags uint64
}

// threadStopped: it runs nothing until SIGCONT or its end.
func threadStopped(t thread) bool {
	return t.state == 'T' || t.state == 't' || threadEnding(t) || t.flags&taskUserWorker != 0
}

// threadEnding: it runs nothing any more. What the kernel has to do until it is gone may take long: to unmap a guest's memory.
func threadEnding(t thread) bool {
	return t.state == 'Z' || t.state == 'X' || t.flags&taskExiting != 0
}

// awaitThreads returns when all threads of a process are as wanted. A thread that was made meanwhile shares the fate of the
// one that made it.
func awaitThreads(pid int, wanted func(thread) bool) error {
	deadline := time.Now().Add(fenceTime)
	for {
		all, err := threads(pid)
		if err != nil {
			return err
		}
		left := 0
		for _, t := range all {
			if !wanted(t) {
				left++
			}
		}
		switch {
		case left == 0:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("process %d: %d of its %d threads run after %v", pid, left, len(all), fenceTime)
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// threads are those of a process; none: it has ended.
func threads(pid int) ([]thread, error) {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	var all []thread
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name(), "stat"))
		if err != nil {
			continue // it has ended since
		}
		t, err := parseThread(b)
		if err != nil {
			return nil, fmt.Errorf("%s/%s/stat: %w", dir, e.Name(), err)
		}
		all = append(all, t)
	}
	return all, nil
}

// parseThread reads fields 3 and 9 of a stat file; see proc(5). The second is a name in brackets, which may contain anything.
func parseThread(stat []byte) (thread, error) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 7 {
		return thread{}, fmt.Errorf("only %d fields after the program's name", len(fields))
	}
	flags, err := strconv.ParseUint(string(fields[6]), 10, 64)
	return thread{fields[0][0], flags}, err
}
