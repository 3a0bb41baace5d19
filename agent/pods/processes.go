package pods

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// sandbox is the program of the container that holds a pod's namespaces, in every runtime: its only
// process. It stays until all others have ended.
const sandbox = "pause"

// Process is one of a pod's.
type Process struct {
	PID int
	// Container is the runtime's id of its container, Name the program's, which the process
	// itself may change.
	Container, Name string
}

// Processes are those of a pod, by their cgroups; proc is /proc. No process of a pod can leave
// them.
func Processes(proc string, pod types.UID) ([]Process, error) {
	all, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	var out []Process
	for _, entry := range all {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		p, err := processOf(proc, pid, pod)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended meanwhile
		}
		if err != nil {
			return nil, err
		}
		if p != nil {
			out = append(out, *p)
		}
	}
	return out, nil
}

// processOf is nil for a process that is not the pod's.
func processOf(proc string, pid int, pod types.UID) (*Process, error) {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	content, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	if err != nil {
		return nil, err
	}
	// The two ways in which a cgroup's name has the UID, see parsePlace.
	if s := string(content); !strings.Contains(s, string(pod)) && !strings.Contains(s, strings.ReplaceAll(string(pod), "-", "_")) {
		return nil, nil
	}
	place, err := parsePlace(string(content))
	if err != nil {
		return nil, fmt.Errorf("process %d has the UID of pod %s in its cgroup: %w", pid, pod, err)
	}
	if place.Pod != pod {
		return nil, nil
	}
	name, err := os.ReadFile(filepath.Join(dir, "comm"))
	if err != nil {
		return nil, err
	}
	return &Process{PID: pid, Container: place.Container, Name: strings.TrimSpace(string(name))}, nil
}

// MayRunVM returns a process of a pod that may be its VM, or launch it; nil: there is none.
// Those of the pod's other containers may not, which have their ids in its status.
func (p *Pods) MayRunVM(pod types.UID, processes []Process) *Process {
	p.mu.Lock()
	known := p.byUID[pod]
	p.mu.Unlock()
	own := mounting(known)
	in := make(map[string]int) // processes by container
	for _, process := range processes {
		in[process.Container]++
	}
	for _, process := range processes {
		c := containerOf(known, process.Container)
		switch {
		case c != nil && own != nil && c.Name != own.Name:
		case c == nil && process.Name == sandbox && in[process.Container] == 1:
		default:
			return &process
		}
	}
	return nil
}
