// Package housekeeping tells a VM's threads from each other by their names, as metrics of each virtual CPU need it. It moves none.
package housekeeping

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/sysfs"
)

// Kind is what a thread does.
type Kind int

// The zero Kind is Emulator: a thread that is not known is no virtual CPU.
const (
	Emulator Kind = iota // the VMM's main loop, its workers and monitors
	VCPU                 // runs one of the guest's virtual CPUs
	IO                   // serves the guest's disks and networks
	PIT                  // the kernel's: the guest's interval timer
)

// String returns emulator, vcpu, io or pit.
func (k Kind) String() string {
	switch k {
	case Emulator:
		return "emulator"
	case VCPU:
		return "vcpu"
	case IO:
		return "io"
	case PIT:
		return "pit"
	}
	return fmt.Sprintf("kind %d", int(k))
}

// Thread is one of those that work for a VM.
type Thread struct {
	// PID is the process that it is of: the VMM, or for a kernel thread itself.
	PID, TID int
	Name     string
	Kind     Kind
	// VCPU is the number of the virtual CPU; -1: it is none.
	VCPU int
}

// Found are a VM's threads, by their ids.
type Found struct {
	Threads []Thread
	// Notes say what is unknown, a sentence each.
	Notes []string
}

// maxThreads bounds what is read of one process: a VMM has a thread for each virtual CPU and disk request, some thousands at most.
const maxThreads = 1 << 16

// maxName bounds a thread's name: the kernel's have up to 63 bytes, others 15 (TASK_COMM_LEN).
const maxName = 64

// Find returns the threads of the VMM with this process id, and the kernel's that work for it. Threads come and go: those that end
// while they are read are left out. The error wraps fs.ErrNotExist if the process itself has ended.
//
// For QEMU to name its threads it must run with -name debug-threads=on.
func Find(roots sysfs.Roots, pid int, names hypervisor.ThreadNames) (*Found, error) {
	known, err := compile(names)
	if err != nil {
		return nil, err
	}
	folder := roots.ProcPath(strconv.Itoa(pid), "task")
	tids, err := numbers(folder)
	if err != nil {
		return nil, fmt.Errorf("the threads of process %d: %w", pid, err)
	}
	found := new(Found)
	for _, tid := range tids {
		name, err := readName(filepath.Join(folder, strconv.Itoa(tid), "comm"))
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("thread %d of process %d: %w", tid, pid, err)
		}
		found.Threads = append(found.Threads, known.thread(pid, tid, name))
	}
	if err := found.addPIT(roots, pid, names.PIT); err != nil {
		return nil, err
	}
	slices.SortFunc(found.Threads, func(a, b Thread) int { return cmp.Compare(a.TID, b.TID) })
	return found, nil
}

// VCPUs are the threads of virtual CPUs, in their order.
func (f *Found) VCPUs() []Thread {
	var vcpus []Thread
	for _, t := range f.Threads {
		if t.Kind == VCPU {
			vcpus = append(vcpus, t)
		}
	}
	slices.SortFunc(vcpus, func(a, b Thread) int { return cmp.Compare(a.VCPU, b.VCPU) })
	return vcpus
}

// patterns tell threads by name.
type patterns struct{ vcpu *regexp.Regexp }

func compile(names hypervisor.ThreadNames) (patterns, error) {
	if names.VCPU == "" {
		return patterns{}, nil
	}
	re, err := regexp.Compile(names.VCPU)
	if err != nil {
		return patterns{}, fmt.Errorf("the pattern for threads of virtual CPUs: %w", err)
	}
	if re.NumSubexp() < 1 {
		return patterns{}, fmt.Errorf("the pattern for threads of virtual CPUs, %q, has no group for their number: want one such as %q", names.VCPU, `^CPU (\d+)/KVM$`)
	}
	return patterns{re}, nil
}

func (p patterns) thread(pid, tid int, name string) Thread {
	t := Thread{PID: pid, TID: tid, Name: name, VCPU: -1}
	if n, ok := p.number(name); ok {
		t.Kind, t.VCPU = VCPU, n
	} else if strings.HasPrefix(name, "IO ") || strings.HasPrefix(name, "_disk") || strings.HasPrefix(name, "_net") {
		// QEMU's iothreads (iothread.c); cloud-hypervisor's are named by device (vmm/src/device_manager.rs).
		t.Kind = IO
	}
	return t
}

// number reads a virtual CPU's number off a thread's name. A pattern may be written for the file's text, which ends in a newline.
func (p patterns) number(name string) (int, bool) {
	if p.vcpu == nil {
		return 0, false
	}
	groups := p.vcpu.FindStringSubmatch(name)
	if groups == nil {
		groups = p.vcpu.FindStringSubmatch(name + "\n")
	}
	for _, g := range groups[min(1, len(groups)):] {
		if n, err := strconv.ParseUint(g, 10, 16); err == nil {
			return int(n), true
		}
	}
	return 0, false
}

// addPIT looks among all processes for the kernel's thread whose name ends with the VMM's process id, as the VMM itself sees it.
func (f *Found) addPIT(roots sysfs.Roots, pid int, prefix string) error {
	if prefix == "" {
		return nil
	}
	own, err := innerPID(roots, pid)
	if err != nil {
		return err
	}
	wanted := prefix + strconv.Itoa(own)
	if !strings.HasSuffix(prefix, "/") && !strings.HasSuffix(prefix, "-") {
		wanted = prefix + "/" + strconv.Itoa(own) // kvm-pit, as it is often written
	}
	processes, err := numbers(roots.ProcPath())
	if err != nil {
		return fmt.Errorf("looking for the thread %s: %w", wanted, err)
	}
	var timers []Thread
	for _, p := range processes {
		// One that can't be read is not ours.
		if name, err := readName(roots.ProcPath(strconv.Itoa(p), "comm")); err == nil && name == wanted && isKernel(roots, p) {
			timers = append(timers, Thread{PID: p, TID: p, Name: name, Kind: PIT, VCPU: -1})
		}
	}
	if len(timers) > 1 {
		// Process ids are given again in each pid namespace, and the name doesn't say in which.
		f.Notes = append(f.Notes, fmt.Sprintf("%d kernel threads are called %s, and it is unknown which is this VM's: none is moved", len(timers), wanted))
		return nil
	}
	f.Threads = append(f.Threads, timers...)
	return nil
}

// innerPID is the process id as the process itself sees it, which is what KVM names its thread by.
func innerPID(roots sysfs.Roots, pid int) (int, error) {
	text, err := readBounded(roots.ProcPath(strconv.Itoa(pid), "status"), 64<<10)
	if err != nil {
		return 0, fmt.Errorf("process %d: %w", pid, err)
	}
	if inner := innermost(text); inner > 0 {
		return inner, nil
	}
	return pid, nil // a kernel without namespaces
}

// innermost reads the process id in the innermost pid namespace (NStgid, proc_pid_status(5)); 0: it isn't told.
func innermost(status string) int {
	for line := range strings.Lines(status) {
		rest, is := strings.CutPrefix(line, "NStgid:")
		ids := strings.Fields(rest)
		if !is || len(ids) == 0 {
			continue
		}
		if n, err := strconv.ParseUint(ids[len(ids)-1], 10, 31); err == nil {
			return int(n)
		}
	}
	return 0
}

func isKernel(roots sysfs.Roots, pid int) bool {
	text, err := readBounded(roots.ProcPath(strconv.Itoa(pid), "stat"), 4<<10)
	return err == nil && kernelThread(text)
}

// kernelThread reads off a stat file whether it is one: anyone may call a process of his own what he likes.
func kernelThread(stat string) bool {
	const flagsAfterName, kernel = 6, 0x00200000 // field 9 of proc_pid_stat(5); PF_KTHREAD of linux/sched.h
	end := strings.LastIndexByte(stat, ')')      // the name may have any character
	fields := strings.Fields(stat[end+1:])
	if end < 0 || len(fields) <= flagsAfterName {
		return false
	}
	flags, err := strconv.ParseUint(fields[flagsAfterName], 10, 64)
	return err == nil && flags&kernel != 0
}

// numbers lists the entries of a folder that are numbers, in order.
func numbers(folder string) ([]int, error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var list []int
	for _, e := range entries {
		if n, err := strconv.ParseUint(e, 10, 31); err == nil && n > 0 {
			list = append(list, int(n))
		}
	}
	if len(list) > maxThreads {
		return nil, fmt.Errorf("%s has %d entries: more than %d are not looked at", folder, len(list), maxThreads)
	}
	slices.Sort(list)
	return list, nil
}

func readName(path string) (string, error) {
	text, err := readBounded(path, maxName+1)
	return strings.TrimSuffix(text, "\n"), err
}

func readBounded(path string, limit int) (string, error) {
	// O_NONBLOCK: a pipe in a tree that was made up must not hold us up.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	buffer := make([]byte, limit)
	n, err := f.Read(buffer)
	if n > 0 {
		err = nil
	}
	return string(buffer[:n]), err
}

// gone: what was read has ended.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}
