package vm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/shim"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// saved makes a VM that is saved, and returns its image's folder.
func (w *world) saved(t *testing.T, a *testAgent, name string) string {
	t.Helper()
	a.mustCreate(t, name)
	a.mustStart(t, name)
	dir := filepath.Join(t.TempDir(), "image")
	if _, _, err := a.Save(t.Context(), name, place.SaveOptions{Directory: dir}, func(shim.Progress) {}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSaveAndStart(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	dir := w.saved(t, a, "web")
	a.wantState(t, "web", lifecycle.Saved)
	w.WantNothingHeld(t)
	m, _ := a.Get(t.Context(), "web")
	before := m.Snapshot().GetStatus()
	if before.GetImage().GetPath() != dir {
		t.Errorf("image %v, want %s", before.GetImage(), dir)
	}
	mac := before.GetEffectiveSpec().GetNetworks()[0].GetMac()
	a.mustStart(t, "web")
	a.wantState(t, "web", lifecycle.Running)
	after := m.Snapshot().GetStatus()
	if r := w.Proc("web").Launched.Restore; r == nil || r.Directory != dir {
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

// TestSaveIsAnnounced: an agent that comes while a save is under way, or just after its commit, finds
// in the record which image to look for.
func TestSaveIsAnnounced(t *testing.T) {
	for _, keep := range []bool{false, true} {
		_, a := withRunning(t)
		m, _ := a.Get(t.Context(), "web")
		dir := filepath.Join(t.TempDir(), "image")
		var announced *nodev1.ImageReference
		_, result, err := a.Save(t.Context(), "web", place.SaveOptions{Directory: dir, KeepRunning: keep}, func(shim.Progress) {
			announced = m.Snapshot().GetStatus().GetImage()
		})
		if err != nil {
			t.Fatal(err)
		}
		want := &nodev1.ImageReference{Path: dir, ImageId: result.GetImageId()}
		if keep {
			want = nil // the VM is not to be started from it
		}
		if !proto.Equal(announced, want) {
			t.Errorf("kept running %t: the record has image %v during the save, want %v", keep, announced, want)
		}
	}
}

func TestSaveKeepsRunning(t *testing.T) {
	_, a := withRunning(t)
	dir := filepath.Join(t.TempDir(), "image")
	_, result, err := a.Save(t.Context(), "web", place.SaveOptions{Directory: dir, KeepRunning: true}, func(shim.Progress) {})
	if err != nil {
		t.Fatal(err)
	}
	if result.GetStoppedMs() != 7 || result.GetImageId() == "" {
		t.Errorf("result %v", result)
	}
	a.wantState(t, "web", lifecycle.Running)
	m, _ := a.Get(t.Context(), "web")
	if m.Snapshot().GetStatus().GetImage() != nil {
		t.Error("a VM that goes on has an image to be started from")
	}
}

func TestSaveFails(t *testing.T) {
	for _, step := range []string{"save", "commit"} {
		t.Run(step, func(t *testing.T) {
			w, a := withRunning(t)
			w.FailStep(step, &shim.Error{Code: shim.CodeSpace, Message: "disk full"})
			dir := filepath.Join(t.TempDir(), "image")
			_, _, err := a.Save(t.Context(), "web", place.SaveOptions{Directory: dir}, func(shim.Progress) {})
			vmtest.WantCode(t, "save", err, codes.ResourceExhausted)
			a.wantState(t, "web", lifecycle.Running)
			m, _ := a.Get(t.Context(), "web")
			if m.Snapshot().GetStatus().GetImage() != nil {
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
	_, _, err := a.Save(ctx, "web", place.SaveOptions{Directory: dir}, func(shim.Progress) { cancel() })
	vmtest.WantCode(t, "save", err, codes.Canceled)
	a.wantState(t, "web", lifecycle.Running)
	m, _ := a.Get(t.Context(), "web")
	if got, want := m.Snapshot().GetStatus().GetMessage(), "the save to "+dir+" was given up: who asked for it has gone"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	if p := w.Proc("web"); p.Saving != nil {
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
			m, _ := a.Get(t.Context(), "web")
			l := m.running()
			w.Hooks[step] = func() {
				l.shim.(*vmtest.Shim).HangUp()
				<-l.over // the agent has another connection
			}
			w.FailStep(step, shim.ErrDisconnected)
			dir := filepath.Join(t.TempDir(), "image")
			_, _, err := a.Save(t.Context(), "web", place.SaveOptions{Directory: dir}, func(shim.Progress) {})
			vmtest.WantCode(t, "save", err, codes.Unavailable)
			a.wantState(t, "web", lifecycle.Running)
		})
	}
}

// TestSavedPaused: the shim says that the guest stood still, or its agent knew.
func TestSavedPaused(t *testing.T) {
	for _, shimSays := range []bool{true, false} {
		w, a := withRunning(t)
		w.Hooks["save"] = func() { w.Proc("web").Paused = shimSays }
		if !shimSays {
			if _, err := a.Pause(t.Context(), "web"); err != nil {
				t.Fatal(err)
			}
		}
		_, result, err := a.Save(t.Context(), "web", place.SaveOptions{Directory: filepath.Join(t.TempDir(), "image")}, nil)
		if err != nil || !result.GetPaused() {
			t.Errorf("the shim says so: %t: %v, %v", shimSays, result, err)
		}
	}
}

// TestSaveFailsAndGuestStands is a guest that could not be continued.
func TestSaveFailsAndGuestStands(t *testing.T) {
	w, a := withRunning(t)
	w.Hooks["commit"] = func() { w.Proc("web").Paused = true }
	w.FailStep("commit", &shim.Error{Code: shim.CodeInternal, Message: "the guest stands still"})
	dir := filepath.Join(t.TempDir(), "image")
	if _, _, err := a.Save(t.Context(), "web", place.SaveOptions{Directory: dir}, func(shim.Progress) {}); err == nil {
		t.Fatal("it was saved")
	}
	a.wantState(t, "web", lifecycle.Paused)
	if _, err := a.Resume(t.Context(), "web", false); err != nil || w.Proc("web").Paused {
		t.Errorf("it can't be resumed: %v", err)
	}
}

// TestSaveShimDies kills the shim when the image is there and nothing says so.
func TestSaveShimDies(t *testing.T) {
	w, a := withRunning(t)
	w.FailStep("after the image", shim.ErrDisconnected)
	dir := filepath.Join(t.TempDir(), "image")
	_, _, err := a.Save(t.Context(), "web", place.SaveOptions{Directory: dir}, func(shim.Progress) {})
	vmtest.WantCode(t, "save", err, codes.Unavailable)
	a.wantState(t, "web", lifecycle.Saved)
	m, _ := a.Get(t.Context(), "web")
	if got := m.Snapshot().GetStatus().GetImage().GetPath(); got != dir {
		t.Errorf("the image is in %q, want %s", got, dir)
	}
	a.mustStart(t, "web")
}

func TestSaveTargets(t *testing.T) {
	w, a := withRunning(t)
	for _, dir := range []string{"relative", w.StateDir, filepath.Join(w.StateDir, "vms/web/image"), w.RunDir + "/x/../y"} {
		_, _, err := a.Save(t.Context(), "web", place.SaveOptions{Directory: dir}, nil)
		vmtest.WantCode(t, dir, err, codes.InvalidArgument)
	}
	a.wantState(t, "web", lifecycle.Running)
}

func TestColdStart(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	dir := w.saved(t, a, "web")
	vm, err := a.Manager.Start(t.Context(), "web", StartOptions{Cold: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if w.Proc("web").Launched.Restore != nil {
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
		w.Hooks["info"] = func() { // before the state says that it is being restored
			go func() {
				_, err := a.Manager.Start(t.Context(), "copy", StartOptions{}, nil)
				started <- err
			}()
			runtime.Gosched()
		}
		w.Hooks["join"] = cancel
		if _, err := a.Restore(ctx, RestoreOptions{Directory: dir, Name: "copy", NewIdentity: true}, nil); err == nil {
			t.Fatal("it was restored")
		}
		if err := <-started; err == nil {
			a.wantState(t, "copy", lifecycle.Running)
			break
		}
		if _, err := a.Get(t.Context(), "copy"); err == nil {
			t.Fatal("what was taken back is there")
		}
	}
	if held := w.Holding(); len(held) > 0 {
		t.Errorf("held by a VM that nobody knows: %q", held)
	}
}

// TestRestoreFails leaves a saved VM saved.
func TestRestoreFails(t *testing.T) {
	breaks := map[string]func(*world, string){
		"damaged":    func(_ *world, dir string) { os.Truncate(filepath.Join(dir, "state"), 1) },
		"gone":       func(_ *world, dir string) { os.RemoveAll(dir) },
		"not for us": func(w *world, _ string) { w.VMM.CheckErr = errors.New("other machine type") },
		"launch":     func(w *world, _ string) { w.FailStep("launch", errors.New("broken")) },
		"connect":    func(w *world, _ string) { w.FailStep("connect", errors.New("broken")) },
	}
	for name, breakIt := range breaks {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := w.start()
			dir := w.saved(t, a, "web")
			breakIt(w, dir)
			if _, err := a.Manager.Start(t.Context(), "web", StartOptions{}, nil); err == nil {
				t.Fatal("it started")
			}
			a.wantState(t, "web", lifecycle.Saved)
			w.WantNothingHeld(t)
			m, _ := a.Get(t.Context(), "web")
			if m.Snapshot().GetStatus().GetImage().GetPath() != dir {
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
	w.Hooks["launch"] = func() {
		if _, err := a.store.Load("copy"); err != nil {
			t.Error(err)
		}
	}
	if _, err := a.Restore(t.Context(), RestoreOptions{Directory: dir, Name: "copy", NewIdentity: true}, nil); err != nil {
		t.Fatal(err)
	}
}

func TestRestore(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	dir := w.saved(t, a, "web")
	ctx := t.Context()
	m, _ := a.Get(t.Context(), "web")
	id := m.Snapshot().GetId()

	clone, err := a.Restore(ctx, RestoreOptions{Directory: dir, Name: "copy", NewIdentity: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if clone.GetId() == id {
		t.Error("the clone has the id of the original")
	}
	original := m.Snapshot().GetStatus().GetEffectiveSpec().GetNetworks()[0].GetMac()
	if got := clone.GetStatus().GetEffectiveSpec().GetNetworks()[0].GetMac(); got == original || got == "" {
		t.Errorf("the clone's MAC is %q, the original's %q", got, original)
	}
	_, err = a.Restore(ctx, RestoreOptions{Directory: dir, NewIdentity: true}, nil)
	vmtest.WantCode(t, "under a name that is taken", err, codes.AlreadyExists)
	_, err = a.Restore(ctx, RestoreOptions{Directory: dir, Name: "lazy", Lazy: true}, nil)
	vmtest.WantCode(t, "lazily where it can't be", err, codes.FailedPrecondition)
	if _, err := a.Get(t.Context(), "lazy"); err == nil {
		t.Error("a restore that failed left a VM")
	}
	vm, err := a.Restore(ctx, RestoreOptions{Directory: dir, Paused: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if vm.GetId() != id {
		t.Error("the VM was restored as another")
	}
	a.wantState(t, "web", lifecycle.Paused)
	_, err = a.Restore(ctx, RestoreOptions{Directory: dir}, nil)
	vmtest.WantCode(t, "what runs", err, codes.FailedPrecondition)
	_, err = a.Restore(ctx, RestoreOptions{Directory: "relative"}, nil)
	vmtest.WantCode(t, "from a relative path", err, codes.InvalidArgument)
	_, err = a.Restore(ctx, RestoreOptions{Directory: t.TempDir()}, nil)
	vmtest.WantCode(t, "from no image", err, codes.InvalidArgument)
}
