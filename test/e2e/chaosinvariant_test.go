package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vmlet/vmlet/memory"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/test/guest"
)

// eventually waits until something holds.
func (w *walked) eventually(holds func() error) {
	w.t.Helper()
	ctx, cancel := w.patient()
	defer cancel()
	for {
		err := holds()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			w.t.Fatalf("%s: %v", w.v.name, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// settles waits until a VM is what it may be after a fault.
func (w *walked) settles(f fault) {
	w.t.Helper()
	w.eventually(func() error { return w.allowed(f) })
}

// state is the VM's; unspecified: there is none.
func (w *walked) state() (nodev1.State, *nodev1.VirtualMachineStatus, error) {
	r, err := w.api.GetVM(w.ctx, &nodev1.GetVMRequest{Name: w.v.name})
	if status.Code(err) == codes.NotFound {
		return 0, nil, nil
	}
	return r.GetVm().GetStatus().GetState(), r.GetVm().GetStatus(), err
}

// allowed says what is wrong with a VM's state after a fault.
func (w *walked) allowed(f fault) error {
	state, s, err := w.state()
	if err != nil {
		return err
	}
	o, whole := f.op, w.whole() == nil
	is := fmt.Errorf("it is %v (%s) after %v", state, s.GetMessage(), f)
	switch state {
	case 0:
		if !o.fresh && o.want != 0 {
			return errors.New("it is gone")
		}
		return w.nothing(true)
	case created:
		if o.live {
			return is
		}
	case stopped:
		if o.live && !o.ends {
			return is
		}
	case running:
		if pids := w.victims(theVMM); len(pids) != 1 {
			return fmt.Errorf("it has the VMMs %v: %w", pids, is)
		}
		if taps := w.taps(); len(taps) != len(w.spec.Networks) {
			return fmt.Errorf("it has the taps %v: %w", taps, is)
		}
		if f.step != "" && !f.missed && f.victim() != theAgent {
			return fmt.Errorf("it is not noticed: %w", is)
		}
		if o.saves && whole {
			return fmt.Errorf("it could be restored over its disks: %w", is)
		}
		return nil
	case saved:
		if !whole {
			return fmt.Errorf("its image is not whole: %w: %w", w.whole(), is)
		}
	case crashed:
		if o.saves && whole {
			return fmt.Errorf("its image is whole: %w", is)
		}
		if (f.missed || f.victim() == theAgent) && o.name != "adoption of what has ended" || !strings.Contains(s.GetMessage(), "SIGKILL") && !strings.Contains(s.GetMessage(), "shim") {
			return is
		}
	default:
		return is
	}
	return w.nothing(false)
}

// whole says what keeps a VM's image from being one.
func (w *walked) whole() error {
	image, err := memory.Open(w.dir)
	if err != nil {
		return err
	}
	defer image.Close()
	return image.Verify(w.ctx, func(uint64, uint64) {})
}

// nothing says what is left of a VM that does not run; gone: that there is not at all.
func (w *walked) nothing(gone bool) error {
	var left []string
	folders := []string{w.path("run", "vms", w.v.name), w.path("state", "vms", w.v.name, shim.VMMFolderName)}
	kept := "file " + w.path("state", "vms", w.v.name) + "/"
	if gone {
		kept = "-"
		folders = append(folders, w.path("state", "vms", w.v.name))
	}
	for _, what := range w.leftovers() {
		if !slices.Contains(w.before, what) && !strings.HasPrefix(what, kept) {
			left = append(left, what)
		}
	}
	for _, folder := range folders {
		if _, err := os.Lstat(folder); !errors.Is(err, fs.ErrNotExist) {
			left = append(left, fmt.Sprintf("folder %s (%v)", folder, err))
		}
	}
	for _, disk := range []string{w.disk, w.more} {
		if w.mayUse(disk) {
			left = append(left, "access to "+disk)
		}
	}
	for _, tap := range w.taps() {
		left = append(left, "tap "+tap)
	}
	if len(left) > 0 {
		return fmt.Errorf("left behind: %s", strings.Join(left, "; "))
	}
	return nil
}

// finish repeats a command until the job is done, as its errors and the VM's state
// advise, and sees that the guest is whole then.
func (w *walked) finish(o *operation) {
	w.t.Helper()
	var said []error
	away := w.disk + ".away"
	if _, err := os.Stat(away); err == nil {
		w.must(os.Rename(away, w.disk))
	}
	for !w.finished(o) {
		if len(said) > 4 {
			w.t.Fatalf("%s does not come to its end: %v", o.name, errors.Join(said...))
		}
		if o.image {
			w.returns++
		}
		said = append(said, w.again(o))
	}
	switch o.want {
	case saved:
		w.must(w.doStart())
		w.healthy()
	case running:
		w.healthy()
	}
	most := w.boots + len(said)
	if !o.live && !o.image {
		most++
	}
	if boots := w.ups(); boots > most {
		w.t.Errorf("the guest has booted %d times, %d before, and was to at most %d times", boots, w.boots, most)
	}
}

func (w *walked) finished(o *operation) bool {
	w.t.Helper()
	state, s, err := w.state()
	w.must(err)
	has := slices.ContainsFunc(s.GetEffectiveSpec().GetDisks(), func(d *specv1.Disk) bool { return d.GetName() == "more" })
	switch {
	case o.ends && state == crashed:
		return true // nothing is left to end
	case o.keeps:
		return state == o.want && w.whole() == nil
	case o.name == "resize":
		return state == o.want && s.GetEffectiveSpec().GetCpu().GetSockets() == 2
	case o.name == "attach" || o.name == "detach":
		return state == o.want && has == (o.name == "attach")
	case o.name == "cancelled save":
		err := w.whole() // remains are of a shim that was killed
		return state == o.want && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, memory.ErrNotImage))
	}
	return state == o.want
}

// again does what an administrator would.
func (w *walked) again(o *operation) error {
	w.t.Helper()
	state, _, err := w.state()
	w.must(err)
	switch state {
	case crashed, stopped, created:
		if o.want != created && !o.ends && o.want != 0 {
			if err := w.doStart(); err != nil {
				return err
			}
			w.healthy()
			return nil
		}
	case running:
		if (o.saves || o.keeps) && errors.Is(w.whole(), memory.ErrNotImage) {
			return w.overRemains(o)
		}
	}
	if o.name == "cancelled save" {
		return nil
	}
	err = w.free(func() error { return o.do(w) })
	if o.image && w.vmm == "cloud-hypervisor" && err != nil && strings.Contains(err.Error(), "has changed since the image was saved") {
		// It marks a qcow2 disk when it opens it, and was killed before it could take that back.
		return errors.Join(err, w.cold())
	}
	return err
}

// free does something again for as long as a request that was lost is under way: its
// shim takes that back.
func (w *walked) free(do func() error) (err error) {
	w.t.Helper()
	w.eventually(func() error {
		if err = do(); err != nil && strings.Contains(err.Error(), "under way") {
			return err
		}
		return nil
	})
	return err
}

// cold starts the VM without its image.
func (w *walked) cold() error {
	if state, _, err := w.state(); err != nil || state == 0 {
		return errors.Join(err, w.doCreate(), w.doStart())
	}
	_, err := last(w.api.StartVM(w.ctx, &nodev1.StartVMRequest{Name: w.v.name, Cold: true}))
	return err
}

// overRemains saves where a save has failed: of that nothing is left, or will be in a
// moment.
func (w *walked) overRemains(o *operation) error {
	w.t.Helper()
	w.eventually(func() error {
		entries, err := os.ReadDir(w.dir)
		if err == nil && len(entries) > 0 {
			err = fmt.Errorf("remains of a save: %v", entries)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	})
	return w.free(func() error { return o.do(w) })
}

// remove ends a VM and sees that nothing is left.
func (w *walked) remove() {
	w.t.Helper()
	w.v.hangUp()
	if state, _, err := w.state(); err == nil && state != 0 {
		w.must(w.doKill())
		w.must(w.nothing(false))
		w.must(w.doDelete())
	}
	w.must(w.nothing(true))
}

// console has the lines that the guest has printed.
func (w *walked) console() []string {
	w.t.Helper()
	content, err := os.ReadFile(filepath.Join(w.path("state", "vms", w.v.name), shim.ConsoleLogName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}
	lines := strings.Split(strings.ReplaceAll(string(content), "\r", ""), "\n")
	return lines[:len(lines)-1]
}

// ups is how many times the guest has booted.
func (w *walked) ups() (boots int) {
	for _, line := range w.console() {
		if strings.HasSuffix(line, guest.UpLine) {
			boots++
		}
	}
	return boots
}

// counts are those since the last boot, as they were printed.
func counts(lines []string) (all []int) {
	for _, line := range lines {
		if strings.HasSuffix(line, guest.UpLine) {
			all = nil
			continue // before it may be what the last boot had begun to print
		}
		var n int
		if _, err := fmt.Sscanf(line, guest.CountPrefix+"%d", &n); err == nil {
			all = append(all, n)
		}
	}
	return all
}

// healthy sees that the guest counts on, without a gap since its boot, and that its
// memory is what it was.
func (w *walked) healthy() {
	w.t.Helper()
	w.goesOn()
	all, breaks := counts(w.console()), 0
	for i, n := range all[1:] {
		if n == all[i]+1 {
			continue
		}
		// A line that was begun twice may be lost.
		if breaks++; breaks > w.returns || n > all[i]+2 {
			w.t.Fatalf("the guest has counted %v, and was brought back %d times to where an image has it", all, w.returns)
		}
	}
}

// goesOn sees that the guest counts, and that its memory is what it was.
func (w *walked) goesOn() {
	w.t.Helper()
	before := len(w.console())
	verified := func(lines []string) (n int) {
		for _, line := range lines {
			if strings.Contains(line, "verified ") {
				n++
			}
		}
		return n
	}
	w.eventually(func() error { // what is typed to firmware that resets its machine is lost
		if lines := w.console(); len(counts(lines)) < 2 || len(counts(lines[min(before, len(lines)):])) == 0 {
			return errors.New("the guest does not count")
		}
		return nil
	})
	already := verified(w.console())
	w.v.typeIn(string(guest.KeyVerify))
	w.eventually(func() error {
		lines := w.console()
		if verified(lines) <= already || len(counts(lines[min(before, len(lines)):])) < 2 {
			return fmt.Errorf("the guest does not count on, with its memory as it was; it said %q%s", lines[max(0, len(lines)-10):], w.v.cutOff())
		}
		return nil
	})
	w.v.hangUp()
}
