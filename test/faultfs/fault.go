package faultfs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Op is a kind of operation, as the kernel sends it (fuse(4)).
type Op string

const (
	OpLookup  Op = "lookup"
	OpGetattr Op = "getattr"
	OpOpen    Op = "open"
	OpOpendir Op = "opendir"
	OpReaddir Op = "readdir"
	OpRead    Op = "read"
	OpLseek   Op = "lseek"
	OpStatfs  Op = "statfs"
	OpFlush   Op = "flush" // close(2)

	OpReadlink Op = "readlink"

	OpCreate   Op = "create"
	OpMkdir    Op = "mkdir"
	OpUnlink   Op = "unlink"
	OpRmdir    Op = "rmdir"
	OpRename   Op = "rename"
	OpLink     Op = "link"
	OpWrite    Op = "write"
	OpTruncate Op = "truncate"
	OpSetattr  Op = "setattr" // any change of attributes but the size
	OpAllocate Op = "fallocate"
	OpSetxattr Op = "setxattr"
	OpFsync    Op = "fsync"
	OpFsyncdir Op = "fsyncdir"

	// OpAny stands for all kinds, OpChange for those that change something.
	OpAny    Op = "any"
	OpChange Op = "change"
)

// Ops lists the kinds, without those that stand for several.
func Ops() []Op {
	return append([]Op{OpLookup, OpGetattr, OpOpen, OpOpendir, OpReaddir, OpRead, OpLseek, OpStatfs, OpFlush, OpReadlink}, changes()...)
}

// changes are the kinds that a read-only filesystem refuses.
func changes() []Op {
	return []Op{OpCreate, OpMkdir, OpUnlink, OpRmdir, OpRename, OpLink, OpWrite, OpTruncate, OpSetattr,
		OpAllocate, OpSetxattr, OpFsync, OpFsyncdir}
}

func (o Op) covers(op Op) bool {
	return o == OpAny || o == op || o == OpChange && slices.Contains(changes(), op)
}

// Forever is a Fault's Times.
const Forever = -1

// Fault is what goes wrong. The zero value of each field is the mildest.
type Fault struct {
	Op Op
	// Name of the file, without its folder, that the fault is for; empty: any.
	Name string
	// Offset, in bytes, that reads and writes touch which the fault is for; 0: any.
	Offset int64
	// Nth of the operations that match, from 1, is the first that it befalls; 0 is 1.
	Nth int
	// Times that it happens from then; 0 is once.
	Times int

	// Errno is what the operation fails with.
	Errno syscall.Errno
	// Late has the operation carried out and fail all the same: its answer was lost.
	Late bool
	// Short has reads and writes do half of what they are asked for.
	Short bool
	// Flip has reads return a wrong bit.
	Flip bool
	// Wait is called before the operation, which a signal to its caller cancels.
	Wait func(context.Context)
}

func (f Fault) String() string {
	var what []string
	if f.Name != "" {
		what = append(what, f.Name)
	}
	if f.Errno != 0 {
		what = append(what, errnoName(f.Errno))
	}
	for word, is := range map[string]bool{"late": f.Late, "short": f.Short, "flipped": f.Flip, "for ever": f.Times == Forever} {
		if is {
			what = append(what, word)
		}
	}
	slices.Sort(what)
	return fmt.Sprintf("%s %d %s", f.Op, max(f.Nth, 1), strings.Join(what, " "))
}

// script has the faults that are armed, and counts.
type script struct {
	mu     sync.Mutex
	faults []*armed
	counts map[Op]int
	hits   int // of faults that are disarmed
}

type armed struct {
	Fault
	seen, hits int
}

// Arm replaces all faults, and begins to count anew.
func (f *FS) Arm(faults ...Fault) {
	f.script.mu.Lock()
	defer f.script.mu.Unlock()
	f.script.faults, f.script.counts, f.script.hits = nil, make(map[Op]int), 0
	for _, fault := range faults {
		f.script.faults = append(f.script.faults, &armed{Fault: fault})
	}
}

// Disarm ends all faults and returns how often they have befallen something since Arm.
func (f *FS) Disarm() (hits int) {
	f.script.mu.Lock()
	defer f.script.mu.Unlock()
	for _, a := range f.script.faults {
		f.script.hits += a.hits
	}
	f.script.faults = nil
	return f.script.hits
}

// Counts returns how many operations of each kind there were since Arm.
func (f *FS) Counts() map[Op]int {
	f.script.mu.Lock()
	defer f.script.mu.Unlock()
	counts := make(map[Op]int, len(f.script.counts))
	for op, n := range f.script.counts {
		counts[op] = n
	}
	return counts
}

// next says what befalls an operation: the first fault that matches.
func (s *script) next(op Op, name string, where extent) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		s.counts = make(map[Op]int)
	}
	s.counts[op]++
	var happens Fault
	for _, a := range s.faults {
		if !a.Op.covers(op) || a.Name != "" && a.Name != name || a.Offset != 0 && !where.has(a.Offset) {
			continue
		}
		a.seen++
		if a.seen < max(a.Nth, 1) || a.Times != Forever && a.hits >= max(a.Times, 1) {
			continue
		}
		a.hits++
		if happens.Op == "" {
			happens = a.Fault
		}
	}
	return happens
}

// extent is what a read or a write touches.
type extent struct {
	off  int64
	size int
}

func (e extent) has(off int64) bool { return off >= e.off && off < e.off+int64(e.size) }

// try does an operation as the script has it.
func (f *FS) try(ctx context.Context, op Op, name string, do func(Fault) syscall.Errno) syscall.Errno {
	return f.tryAt(ctx, op, name, extent{}, do)
}

func (f *FS) tryAt(ctx context.Context, op Op, name string, where extent, do func(Fault) syscall.Errno) syscall.Errno {
	fault := f.script.next(op, name, where)
	if fault.Wait != nil {
		fault.Wait(ctx)
		if ctx.Err() != nil {
			return syscall.EINTR
		}
	}
	if fault.Errno != 0 && !fault.Late {
		return fault.Errno
	}
	if errno := do(fault); errno != 0 {
		return errno
	}
	return fault.Errno
}
