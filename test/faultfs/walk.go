package faultfs

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Long says whether tests are to try everything rather than enough: make chaos.
func Long() bool { return os.Getenv("VMLET_CHAOS") != "" }

// Seed is for what a test does at random: another each time in the long form, which
// says it, and takes it from VMLET_CHAOS_SEED to repeat a failure.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(1)
	if text := os.Getenv("VMLET_CHAOS_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("VMLET_CHAOS_SEED: %v", err)
		}
	} else if Long() {
		seed = uint64(os.Getpid())
	}
	t.Logf("VMLET_CHAOS_SEED=%d repeats it", seed)
	return seed
}

// Errnos are what disks, quotas, network filesystems and signals give.
func Errnos() []syscall.Errno {
	return []syscall.Errno{syscall.EIO, syscall.ENOSPC, syscall.EROFS, syscall.EDQUOT, syscall.ESTALE, syscall.EINTR, syscall.EACCES}
}

// Walk is something to be tried with each fault at each of its operations.
type Walk struct {
	// Prepare fills a fresh folder, without faults. May be nil.
	Prepare func(dir string) error
	// Do is tried.
	Do func(dir string) error
	// Check judges what is left, without faults.
	Check func(dir string, fault Fault, err error) error
	// Flip: reads may also return wrong bits.
	Flip bool
	// Only these kinds of operation fail; nil: all that occur.
	Only []Op
}

// Tally counts cases.
type Tally struct{ Cases, Failed, Unharmed int }

func (t Tally) String() string {
	return fmt.Sprintf("%d faults tried: %d times an error, %d times none was needed", t.Cases, t.Failed, t.Unharmed)
}

// Walk runs it: in the short form with one errno for each operation, in turns, in the
// long one with each.
func (f *FS) Walk(t testing.TB, w Walk) Tally {
	t.Helper()
	seed := Seed(t)
	r := &walker{FS: f, Walk: w, t: t, turn: int(seed % 64)}
	f.Arm()
	r.once()
	counts, total := f.Counts(), 0
	for _, n := range counts {
		total += n
	}
	for _, op := range Ops() {
		if w.Only == nil || slices.Contains(w.Only, op) {
			r.operations(op, counts[op])
		}
	}
	if w.Only == nil {
		r.lasting(total)
		r.several(counts, rand.New(rand.NewPCG(seed, 0)))
	}
	t.Log(r.tally)
	return r.tally
}

type walker struct {
	*FS
	Walk
	t     testing.TB
	tally Tally
	turn  int
}

// operations befalls each operation of a kind: once, late, and all from it on. The
// short form takes one of these for each, in turns, as it does with errnos.
func (r *walker) operations(op Op, count int) {
	for n := 1; n <= count; n++ {
		var faults []Fault
		for _, errno := range Errnos() {
			faults = append(faults, Fault{Errno: errno}, Fault{Errno: errno, Late: true})
			if errno != syscall.EINTR { // which is to be tried again, for as long as it takes
				faults = append(faults, Fault{Errno: errno, Times: Forever})
			}
		}
		if op == OpRead || op == OpWrite {
			faults = append(faults, Fault{Short: true})
		}
		if op == OpRead && r.Flip {
			faults = append(faults, Fault{Flip: true}, Fault{Flip: true, Times: Forever})
		}
		if !Long() {
			r.turn++
			faults = faults[r.turn%len(faults):][:1]
		}
		for _, fault := range faults {
			fault.Op, fault.Nth = op, n
			r.once(fault)
		}
	}
}

// lasting has the disk gone, full or read-only from each operation on.
func (r *walker) lasting(total int) {
	faults := []Fault{
		{Op: OpAny, Errno: syscall.EIO},
		{Op: OpChange, Errno: syscall.EROFS},
		{Op: OpWrite, Errno: syscall.ENOSPC},
		{Op: OpAny, Errno: syscall.ESTALE},
		{Op: OpAny, Errno: syscall.EIO, Late: true},
	}
	for n := 1; n <= total; n++ {
		some := faults
		if !Long() {
			some = faults[n%2:][:1]
		}
		for _, fault := range some {
			fault.Nth, fault.Times = n, Forever
			r.once(fault)
		}
	}
}

// several befalls two or three operations at random, so that what clears up after a
// fault meets one, too.
func (r *walker) several(counts map[Op]int, rnd *rand.Rand) {
	ops, errnos := slices.Sorted(maps.Keys(counts)), Errnos()
	tries := 20
	if Long() {
		tries = 1000
	}
	for range tries {
		var faults []Fault
		for range 2 + rnd.IntN(2) {
			op := ops[rnd.IntN(len(ops))]
			faults = append(faults, Fault{
				Op: op, Nth: 1 + rnd.IntN(counts[op]+2), Times: 1 + rnd.IntN(3),
				Errno: errnos[rnd.IntN(len(errnos))], Late: rnd.IntN(3) == 0,
			})
		}
		r.once(faults...)
	}
}

// judged is the fault that Check is told of: of several the most that they may be.
func judged(faults []Fault) Fault {
	if len(faults) == 1 {
		return faults[0]
	}
	return Fault{Op: OpAny, Late: true, Times: Forever}
}

// once tries it in a fresh folder with these faults; without any it counts operations.
func (r *walker) once(faults ...Fault) {
	dir := filepath.Join(r.path, "case")
	err := os.Mkdir(dir, 0o700)
	if err == nil && r.Prepare != nil {
		err = r.Prepare(dir)
	}
	if err != nil {
		r.t.Fatalf("%v: prepare: %v", faults, err)
	}
	r.Arm(faults...)
	err = r.Do(dir)
	counts := r.Counts()
	hits := r.Disarm()
	if len(faults) == 0 && err != nil {
		r.t.Fatalf("without a fault: %v", err)
	}
	if bad := r.Check(dir, judged(faults), err); bad != nil {
		r.t.Errorf("%v: %v (its error: %v)", faults, bad, err)
	}
	if hits > 0 {
		r.tally.Cases++
		if err != nil {
			r.tally.Failed++
		} else {
			r.tally.Unharmed++
		}
	}
	if err := os.RemoveAll(filepath.Join(r.backing, "case")); err != nil {
		r.t.Fatal(err)
	}
	if len(faults) == 0 {
		r.script.mu.Lock()
		r.script.counts = counts // for who asks for them next
		r.script.mu.Unlock()
	}
}

// Names says whether an error names a path, and the errno that it comes from.
func Names(err error, path string, errno syscall.Errno) error {
	switch {
	case err == nil:
		return errors.New("no error")
	case !strings.Contains(err.Error(), path):
		return fmt.Errorf("the error does not name %s", path)
	case errno != 0 && !strings.Contains(err.Error(), errno.Error()):
		return fmt.Errorf("the error does not say %q", errno.Error())
	}
	return nil
}
