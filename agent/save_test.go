package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/shim"
	"google.golang.org/grpc/codes"
)

// saved makes a VM that is saved, and returns its image's folder.
func (w *world) saved(t *testing.T, a *testAgent, name string) string {
	t.Helper()
	a.mustCreate(t, name)
	a.mustStart(t, name)
	dir := filepath.Join(t.TempDir(), "image")
	if _, _, err := a.save(t.Context(), name, SaveOptions{Directory: dir}, func(shim.Progress) {}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSaveAndStart(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	dir := w.saved(t, a, "web")
	a.wantState(t, "web", lifecycle.Saved)
	w.wantNothingHeld(t)
	m, _ := a.Get("web")
	before := m.snapshot().GetStatus()
	if before.GetImage().GetPath() != dir {
		t.Errorf("image %v, want %s", before.GetImage(), dir)
	}
	mac := before.GetEffectiveSpec().GetNetworks()[0].GetMac()
	a.mustStart(t, "web")
	a.wantState(t, "web", lifecycle.Running)
	after := m.snapshot().GetStatus()
	if r := w.proc("web").launched.Restore; r == nil || r.Directory != dir {
		t.Errorf("launched with %+v, want a restore from %s", r, dir)
	}
	if after.GetImage() != nil {
		t.Errorf("it runs and has image %v", after.GetImage())
	}
	if got := after.GetEffectiveSpec().GetNetworks()[0].GetMac(); got != mac {
		t.Errorf("MAC %s, was %s", got, mac)
	}
	if got := after.GetEffectiveSpec().GetMachineType(); got != "pc-q35-7.2" {
		t.Errorf("machine type %s", got)
	}
}

func TestSaveKeepsRunning(t *testing.T) {
	_, a := withRunning(t)
	dir := filepath.Join(t.TempDir(), "image")
	_, result, err := a.save(t.Context(), "web", SaveOptions{Directory: dir, KeepRunning: true}, func(shim.Progress) {})
	if err != nil {
		t.Fatal(err)
	}
	if result.GetStoppedMs() != 7 || result.GetImageId() == "" {
		t.Errorf("result %v", result)
	}
	a.wantState(t, "web", lifecycle.Running)
	m, _ := a.Get("web")
	if m.snapshot().GetStatus().GetImage() != nil {
		t.Error("a VM that goes on has an image to be started from")
	}
}

func TestSaveFails(t *testing.T) {
	for _, step := range []string{"save", "commit"} {
		t.Run(step, func(t *testing.T) {
			w, a := withRunning(t)
			w.failStep(step, &shim.Error{Code: shim.CodeSpace, Message: "disk full"})
			dir := filepath.Join(t.TempDir(), "image")
			_, _, err := a.save(t.Context(), "web", SaveOptions{Directory: dir}, func(shim.Progress) {})
			wantCode(t, "save", err, codes.ResourceExhausted)
			a.wantState(t, "web", lifecycle.Running)
			m, _ := a.Get("web")
			if m.snapshot().GetStatus().GetImage() != nil {
				t.Error("a failed save left an image in the record")
			}
		})
	}
}

// TestSaveCallerGoes loses the caller when the image is all but there.
func TestSaveCallerGoes(t *testing.T) {
	w, a := withRunning(t)
	ctx, cancel := context.WithCancel(t.Context())
	dir := filepath.Join(t.TempDir(), "image")
	_, _, err := a.save(ctx, "web", SaveOptions{Directory: dir}, func(shim.Progress) { cancel() })
	wantCode(t, "save", err, codes.Canceled)
	a.wantState(t, "web", lifecycle.Running)
	m, _ := a.Get("web")
	if got, want := m.snapshot().GetStatus().GetMessage(), "the save to "+dir+" was given up: who asked for it has gone"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	if p := w.proc("web"); p.saving != nil {
		t.Error("the shim was not told to give up")
	}
	if _, err := os.Stat(filepath.Join(dir, "manifest.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an image is there: %v", err)
	}
}

// TestSaveLosesConnection drops the connection to a shim that runs on.
func TestSaveLosesConnection(t *testing.T) {
	for _, step := range []string{"save", "commit"} {
		t.Run(step, func(t *testing.T) {
			w, a := withRunning(t)
			m, _ := a.Get("web")
			l := m.running()
			w.hooks[step] = func() {
				l.shim.(*fakeShim).hangUp()
				<-l.over // the agent has another connection
			}
			w.failStep(step, shim.ErrDisconnected)
			dir := filepath.Join(t.TempDir(), "image")
			_, _, err := a.save(t.Context(), "web", SaveOptions{Directory: dir}, func(shim.Progress) {})
			wantCode(t, "save", err, codes.Unavailable)
			a.wantState(t, "web", lifecycle.Running)
		})
	}
}

// TestSaveFailsAndGuestStands is a guest that could not be continued.
func TestSaveFailsAndGuestStands(t *testing.T) {
	w, a := withRunning(t)
	w.hooks["commit"] = func() { w.proc("web").paused = true }
	w.failStep("commit", &shim.Error{Code: shim.CodeInternal, Message: "the guest stands still"})
	dir := filepath.Join(t.TempDir(), "image")
	if _, _, err := a.save(t.Context(), "web", SaveOptions{Directory: dir}, func(shim.Progress) {}); err == nil {
		t.Fatal("it was saved")
	}
	a.wantState(t, "web", lifecycle.Paused)
	if _, err := a.resume(t.Context(), "web", false); err != nil || w.proc("web").paused {
		t.Errorf("it can't be resumed: %v", err)
	}
}

// TestSaveShimDies kills the shim when the image is there and nothing says so.
func TestSaveShimDies(t *testing.T) {
	w, a := withRunning(t)
	w.failStep("after the image", shim.ErrDisconnected)
	dir := filepath.Join(t.TempDir(), "image")
	_, _, err := a.save(t.Context(), "web", SaveOptions{Directory: dir}, func(shim.Progress) {})
	wantCode(t, "save", err, codes.Unavailable)
	a.wantState(t, "web", lifecycle.Saved)
	m, _ := a.Get("web")
	if got := m.snapshot().GetStatus().GetImage().GetPath(); got != dir {
		t.Errorf("the image is in %q, want %s", got, dir)
	}
	a.mustStart(t, "web")
}

func TestSaveTargets(t *testing.T) {
	w, a := withRunning(t)
	for _, dir := range []string{"relative", w.stateDir, filepath.Join(w.stateDir, "vms/web/image"), w.runDir + "/x/../y"} {
		_, _, err := a.save(t.Context(), "web", SaveOptions{Directory: dir}, nil)
		wantCode(t, dir, err, codes.InvalidArgument)
	}
	a.wantState(t, "web", lifecycle.Running)
}

func TestColdStart(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	dir := w.saved(t, a, "web")
	vm, err := a.Manager.start(t.Context(), "web", startOptions{cold: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if w.proc("web").launched.Restore != nil {
		t.Error("a cold start restored")
	}
	if want := "booted afresh: the image in " + dir + " is no longer its"; vm.GetStatus().GetMessage() != want {
		t.Errorf("message %q", vm.GetStatus().GetMessage())
	}
}

// TestRestoreFailsBesideStart has a client start a VM that a restore has only
// just entered and takes back. If the client is told that it runs, it does.
func TestRestoreFailsBesideStart(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	dir := w.saved(t, a, "web")
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		started := make(chan error, 1)
		w.hooks["info"] = func() { // before the state says that it is being restored
			go func() {
				_, err := a.Manager.start(t.Context(), "copy", startOptions{}, nil)
				started <- err
			}()
			runtime.Gosched()
		}
		w.hooks["join"] = cancel
		if _, err := a.restore(ctx, restoreOptions{directory: dir, name: "copy", newIdentity: true}, nil); err == nil {
			t.Fatal("it was restored")
		}
		if err := <-started; err == nil {
			a.wantState(t, "copy", lifecycle.Running)
			break
		}
		if _, err := a.Get("copy"); err == nil {
			t.Fatal("what was taken back is there")
		}
	}
	if held := w.holding(); len(held) > 0 {
		t.Errorf("held by a VM that nobody knows: %q", held)
	}
}

// TestRestoreFails leaves a saved VM saved.
func TestRestoreFails(t *testing.T) {
	breaks := map[string]func(*world, string){
		"damaged":    func(_ *world, dir string) { os.Truncate(filepath.Join(dir, "state"), 1) },
		"gone":       func(_ *world, dir string) { os.RemoveAll(dir) },
		"not for us": func(w *world, _ string) { w.vmm.checkErr = errors.New("other machine type") },
		"launch":     func(w *world, _ string) { w.failStep("launch", errors.New("broken")) },
		"connect":    func(w *world, _ string) { w.failStep("connect", errors.New("broken")) },
	}
	for name, breakIt := range breaks {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := w.start()
			dir := w.saved(t, a, "web")
			breakIt(w, dir)
			if _, err := a.Manager.start(t.Context(), "web", startOptions{}, nil); err == nil {
				t.Fatal("it started")
			}
			a.wantState(t, "web", lifecycle.Saved)
			w.wantNothingHeld(t)
			m, _ := a.Get("web")
			if m.snapshot().GetStatus().GetImage().GetPath() != dir {
				t.Error("the record forgot the image")
			}
		})
	}
}

// TestRestoreIsRecorded sees that no VMM runs of which no record is kept.
func TestRestoreIsRecorded(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	dir := w.saved(t, a, "web")
	w.hooks["launch"] = func() {
		if _, err := a.store.Load("copy"); err != nil {
			t.Error(err)
		}
	}
	if _, err := a.restore(t.Context(), restoreOptions{directory: dir, name: "copy", newIdentity: true}, nil); err != nil {
		t.Fatal(err)
	}
}

func TestRestore(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	dir := w.saved(t, a, "web")
	ctx := t.Context()
	m, _ := a.Get("web")
	id := m.snapshot().GetId()

	clone, err := a.restore(ctx, restoreOptions{directory: dir, name: "copy", newIdentity: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if clone.GetId() == id {
		t.Error("the clone has the id of the original")
	}
	original := m.snapshot().GetStatus().GetEffectiveSpec().GetNetworks()[0].GetMac()
	if got := clone.GetStatus().GetEffectiveSpec().GetNetworks()[0].GetMac(); got == original || got == "" {
		t.Errorf("the clone's MAC is %q, the original's %q", got, original)
	}
	_, err = a.restore(ctx, restoreOptions{directory: dir, newIdentity: true}, nil)
	wantCode(t, "under a name that is taken", err, codes.AlreadyExists)
	_, err = a.restore(ctx, restoreOptions{directory: dir, name: "lazy", lazy: true}, nil)
	wantCode(t, "lazily where it can't be", err, codes.FailedPrecondition)
	if _, err := a.Get("lazy"); err == nil {
		t.Error("a restore that failed left a VM")
	}
	vm, err := a.restore(ctx, restoreOptions{directory: dir, paused: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if vm.GetId() != id {
		t.Error("the VM was restored as another")
	}
	a.wantState(t, "web", lifecycle.Paused)
	_, err = a.restore(ctx, restoreOptions{directory: dir}, nil)
	wantCode(t, "what runs", err, codes.FailedPrecondition)
	_, err = a.restore(ctx, restoreOptions{directory: "relative"}, nil)
	wantCode(t, "from a relative path", err, codes.InvalidArgument)
	_, err = a.restore(ctx, restoreOptions{directory: t.TempDir()}, nil)
	wantCode(t, "from no image", err, codes.InvalidArgument)
}
