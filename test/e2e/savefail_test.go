package e2e

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/vmlet/vmlet/memory"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/guest"
)

// largeFilled is how much of its memory a large guest has filled, in bytes.
const largeFilled = 512 << 20

// bootLarge starts a guest with memory that takes a while to save.
func (s *suite) bootLarge(name string) *vm {
	s.t.Helper()
	large := s.pattern(largeFilled >> 20)
	large.Words = 1
	return s.boots(name, guest.PVHOptions{Memory: large})
}

// tmpfs mounts one of a size.
func tmpfs(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("e2e", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func (v *vm) trySave(dir string) error {
	_, err := last(v.api.SaveVM(v.ctx, &nodev1.SaveVMRequest{Name: v.name, Directory: dir}))
	return err
}

// savesRefused are saves that have no chance: the guest is not even stopped.
func (s *suite) savesRefused() {
	v := s.bootLarge("refused")
	full := s.t.TempDir()
	v.must(os.WriteFile(filepath.Join(full, "something"), nil, 0o600))
	kept := s.image()
	v.save(kept, true)
	file := filepath.Join(full, "something")
	small := tmpfs(s.t, "100m")
	for name, c := range map[string]struct {
		dir   string
		code  codes.Code
		words []string
	}{
		"not empty":     {full, codes.FailedPrecondition, []string{full, "not empty", "something"}},
		"an image":      {kept, codes.FailedPrecondition, []string{kept, "not empty", "image"}},
		"a file":        {file, codes.FailedPrecondition, []string{file}},
		"no parent":     {filepath.Join(full, "none", "image"), codes.FailedPrecondition, []string{"none"}},
		"small":         {filepath.Join(small, "image"), codes.ResourceExhausted, []string{small, "not enough space"}},
		"relative":      {"image", codes.InvalidArgument, []string{"directory", "absolute"}},
		"state folder":  {s.path("state", "image"), codes.InvalidArgument, []string{"directory", s.path("state")}},
		"a run folder":  {s.path("run", "vms", "refused", "image"), codes.InvalidArgument, []string{"directory"}},
		"no such place": {"/proc/image", codes.FailedPrecondition, []string{"/proc"}},
	} {
		s.t.Run(name, func(t *testing.T) {
			s.in(t)
			from := v.now()
			refused(t, v.trySave(c.dir), c.code, c.words...)
			v.is(running)
			for _, e := range v.events.all()[from:] {
				if e.GetType() == s.words.paused {
					t.Error("the guest was stopped for it")
				}
			}
		})
	}
	v.countsOn()
	v.verify(kept)
	noImage(s.t, filepath.Join(small, "image"))
	if entries, err := os.ReadDir(small); err != nil || len(entries) != 0 {
		s.t.Errorf("the folder without space has %v, %v", entries, err)
	}
}

// noImage sees that nothing is left that looks like an image.
func noImage(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		entries, _ := os.ReadDir(dir)
		t.Errorf("%s is still there: %v, %v", dir, entries, err)
	}
}

// interrupted is a save whose shim stands still in the middle of it.
type interrupted struct {
	*vm
	dir    string
	shim   process
	vmm    process
	result chan error
	cancel context.CancelFunc
}

// interrupt begins a save and stops the shim's process as soon as it has come
// to a step, "state" or the later "memory". Half a GiB takes longer to write than it takes
// to hear of the beginning: where it did not, the save is let go on and another begun.
func (v *vm) interrupt(dir, step string) *interrupted {
	v.t.Helper()
	for range 5 {
		i := v.halt(dir, step)
		if !i.late() {
			return i
		}
		v.must(i.goOn())
		v.must(v.start(false))
		v.must(os.RemoveAll(dir))
	}
	v.t.Fatal("each save was over before it could be interrupted: it needs a larger guest")
	return nil
}

// late: all of memory is written, and the commit may be on its way.
func (i *interrupted) late() bool {
	var st unix.Stat_t
	err := unix.Stat(filepath.Join(i.dir, memory.MemoryName), &st)
	return err == nil && st.Blocks*512 >= largeFilled
}

func (v *vm) halt(dir, step string) *interrupted {
	v.t.Helper()
	status := v.is(running)
	ctx, cancel := context.WithCancel(v.ctx)
	i := &interrupted{
		vm: v, dir: dir, cancel: cancel, result: make(chan error, 1),
		shim: handle(v.t, status.GetProcess().GetShimPid()),
		vmm:  handle(v.t, status.GetProcess().GetVmmPid()),
	}
	v.t.Cleanup(cancel)
	stream, err := v.api.SaveVM(ctx, &nodev1.SaveVMRequest{Name: v.name, Directory: dir})
	v.must(err)
	for done := false; !done; {
		m, err := stream.Recv()
		v.must(err)
		now := m.GetProgress().GetStep()
		done = strings.Contains(now, step) || strings.Contains(now, "memory") // short steps may not be told of
	}
	i.shim.freeze()
	go func() {
		_, err := last(stream, nil)
		i.result <- err
	}()
	return i
}

// goOn lets the shim's process go on and returns the error of the save.
func (i *interrupted) goOn() error {
	i.t.Helper()
	i.shim.signal(unix.SIGCONT)
	ctx, cancel := i.patient()
	defer cancel()
	select {
	case err := <-i.result:
		return err
	case <-ctx.Done():
		i.t.Fatal("the save does not end")
		return nil
	}
}

// wentOn sees that the guest lives as if nothing had been.
func (i *interrupted) wentOn(from int) {
	i.t.Helper()
	i.becomes(from, running)
	i.countsOn()
	i.typeIn(string(guest.KeyVerify))
	i.expect("verified [0-9a-f]{8}")
	noImage(i.t, i.dir)
}

// savesInterrupted loses someone or something in the middle of a save.
func (s *suite) savesInterrupted() {
	v := s.bootLarge("interrupted")
	for _, test := range []struct {
		name string
		run  func(v *vm)
	}{
		{"caller gone", (*vm).callerGone},
		{"no space left", (*vm).noSpaceLeft},
		{"folder gone", (*vm).folderGone},
		{"agent killed", (*vm).agentKilled},
		{"and then it can be saved", (*vm).saveAndRestore},
		{"VMM killed", (*vm).vmmKilled},
		{"shim killed", (*vm).shimKilled},
	} {
		s.t.Run(test.name, func(t *testing.T) {
			s.in(t)
			test.run(v)
		})
	}
}

func (v *vm) callerGone() {
	from := v.now()
	i := v.interrupt(filepath.Join(v.t.TempDir(), "image"), "memory")
	i.cancel()
	refused(v.t, i.goOn(), codes.Canceled)
	i.wentOn(from)
}

func (v *vm) noSpaceLeft() {
	space := tmpfs(v.t, "600m") // enough, until someone else takes it
	from := v.now()
	i := v.interrupt(filepath.Join(space, "image"), "memory")
	other, err := os.Create(filepath.Join(space, "other"))
	v.must(err)
	defer other.Close()
	if _, err := io.Copy(other, zeros{}); !errors.Is(err, unix.ENOSPC) {
		v.t.Fatalf("filling the rest of the space: %v", err)
	}
	err = i.goOn()
	refused(v.t, err, codes.ResourceExhausted, i.dir, "no space left")
	i.wentOn(from)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func (v *vm) folderGone() {
	dir := filepath.Join(v.t.TempDir(), "image")
	from := v.now()
	i := v.interrupt(dir, "state")
	v.must(os.RemoveAll(dir))
	if err := i.goOn(); err == nil || !strings.Contains(err.Error(), dir) {
		v.t.Errorf("the error is %v, want it to name %s", err, dir)
	}
	i.wentOn(from)
}

func (v *vm) agentKilled() {
	i := v.interrupt(filepath.Join(v.t.TempDir(), "image"), "memory")
	v.hangUp()
	v.signal(unix.SIGKILL)
	if err := i.goOn(); err == nil {
		v.t.Error("the save has no error, and its agent is dead")
	}
	v.node.start()
	v.follow()
	v.is(running)
	v.countsOn()
	noImage(v.t, i.dir)
}

func (v *vm) saveAndRestore() {
	v.save(filepath.Join(v.t.TempDir(), "image"), false)
	v.must(v.start(false))
	v.countsOn()
	v.typeIn(string(guest.KeyVerify))
	v.expect("verified [0-9a-f]{8}")
}

func (v *vm) vmmKilled() {
	from := v.now()
	i := v.interrupt(filepath.Join(v.t.TempDir(), "image"), "state")
	v.hangUp()
	i.vmm.signal(unix.SIGKILL)
	if err := i.goOn(); err == nil {
		v.t.Fatal("the save has no error, and its VMM is dead")
	}
	if m := v.becomes(from, crashed).GetMessage(); !strings.Contains(m, "SIGKILL") {
		v.t.Errorf("the message is %q, want it to name the signal", m)
	}
	i.shim.gone()
	noImage(v.t, i.dir)
	v.must(v.start(false))
	v.expect(guest.UpLine)
	v.expect("count 3")
}

// shimKilled leaves nothing of the save: the agent removes what the shim had written.
func (v *vm) shimKilled() {
	from := v.now()
	i := v.interrupt(filepath.Join(v.t.TempDir(), "image"), "memory")
	v.hangUp()
	i.shim.signal(unix.SIGKILL)
	i.vmm.gone()
	if err := <-i.result; err == nil {
		v.t.Error("the save has no error, and its shim is dead")
	}
	if m := v.becomes(from, crashed).GetMessage(); !strings.Contains(m, "shim") {
		v.t.Errorf("the message is %q, want it to name the shim", m)
	}
	noImage(v.t, i.dir)
	v.must(v.start(false))
	v.expect(guest.UpLine)
}
