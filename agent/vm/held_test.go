package vm

import (
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"github.com/vmlet/vmlet/shim"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// TestShimHoldsGuestBack: a guest whose disks have changed since its restore runs by no
// operation, and can be killed.
func TestShimHoldsGuestBack(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	dir := w.saved(t, a, "web")
	ctx := t.Context()
	if _, err := a.Restore(ctx, RestoreOptions{Directory: dir, Paused: true}, nil); err != nil {
		t.Fatal(err)
	}
	w.FailStep("shim resume", &shim.Error{Code: shim.CodeChangedDisk, Field: "disks[0].path", Message: "/a.img has changed"})
	_, resumed := a.Resume(ctx, "web", false)
	_, _, stopped := a.Stop(ctx, "web", nil)
	for what, err := range map[string]error{"resume": resumed, "stop": stopped} {
		vmtest.WantCode(t, what, err, codes.FailedPrecondition)
		if want := "vm web: disks[0].path: /a.img has changed"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	a.wantState(t, "web", lifecycle.Paused)
	if slices.Contains(w.Taken(), "resumed") {
		t.Error("the VMM was told to let the guest run")
	}
	w.FailStep("shim resume", nil)
	if _, err := a.Resume(ctx, "web", false); err != nil {
		t.Error(err)
	}
	a.wantState(t, "web", lifecycle.Running)
}

// TestOneVMWithAnID: two VMs with one id, and with one's addresses, never run together.
func TestOneVMWithAnID(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	dir := w.saved(t, a, "web")
	ctx := t.Context()
	// The original is saved, and lives on under another name.
	if _, err := a.Restore(ctx, RestoreOptions{Directory: dir, Name: "moved"}, nil); err != nil {
		t.Fatal(err)
	}
	_, again := a.Restore(ctx, RestoreOptions{Directory: dir, Name: "third"}, nil)
	_, original := a.Manager.Start(ctx, "web", StartOptions{}, nil)
	_, cold := a.Manager.Start(ctx, "web", StartOptions{Cold: true}, nil)
	for what, err := range map[string]error{"restore": again, "start": original, "cold start": cold} {
		vmtest.WantCode(t, what, err, codes.FailedPrecondition)
		for _, want := range []string{"vm moved, which is running", "--new-identity"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", what, err, want)
			}
		}
	}
	a.wantState(t, "web", lifecycle.Saved)
	if _, err := a.Get(t.Context(), "third"); err == nil {
		t.Error("the restore that was refused left a VM")
	}
	if _, err := a.Restore(ctx, RestoreOptions{Directory: dir, Name: "third", NewIdentity: true}, nil); err != nil {
		t.Error(err)
	}
	if _, err := a.Kill(ctx, "moved"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Manager.Start(ctx, "web", StartOptions{}, nil); err != nil {
		t.Errorf("when the other has ended: %v", err)
	}
	a.end()
	w.FailStep("process", unix.EMFILE)
	a = w.start()
	w.FailStep("process", nil)
	_, err := a.Restore(ctx, RestoreOptions{Directory: dir, Name: "fourth"}, nil)
	vmtest.WantCode(t, "restore of one that may run", err, codes.FailedPrecondition)
	if err == nil || !strings.Contains(err.Error(), "which is crashed") {
		t.Errorf("restore of one that may run: %v", err)
	}
}
