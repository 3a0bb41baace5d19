package agent

import (
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/shim"
	"google.golang.org/grpc/codes"
)

// TestShimHoldsGuestBack: a guest whose disks have changed since its restore runs by no
// operation, and can be killed.
func TestShimHoldsGuestBack(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	dir := w.saved(t, a, "web")
	ctx := t.Context()
	if _, err := a.restore(ctx, restoreOptions{directory: dir, paused: true}, nil); err != nil {
		t.Fatal(err)
	}
	w.failStep("shim resume", &shim.Error{Code: shim.CodeChangedDisk, Field: "disks[0].path", Message: "/a.img has changed"})
	_, resumed := a.resume(ctx, "web", false)
	_, _, stopped := a.stop(ctx, "web", nil)
	for what, err := range map[string]error{"resume": resumed, "stop": stopped} {
		wantCode(t, what, err, codes.FailedPrecondition)
		if want := "vm web: disks[0].path: /a.img has changed"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	a.wantState(t, "web", lifecycle.Paused)
	if slices.Contains(w.taken(), "resumed") {
		t.Error("the VMM was told to let the guest run")
	}
	w.failStep("shim resume", nil)
	if _, err := a.resume(ctx, "web", false); err != nil {
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
	if _, err := a.restore(ctx, restoreOptions{directory: dir, name: "moved"}, nil); err != nil {
		t.Fatal(err)
	}
	_, again := a.restore(ctx, restoreOptions{directory: dir, name: "third"}, nil)
	_, original := a.Manager.start(ctx, "web", startOptions{}, nil)
	_, cold := a.Manager.start(ctx, "web", startOptions{cold: true}, nil)
	for what, err := range map[string]error{"restore": again, "start": original, "cold start": cold} {
		wantCode(t, what, err, codes.FailedPrecondition)
		for _, want := range []string{"vm moved, which is running", "--new-identity"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", what, err, want)
			}
		}
	}
	a.wantState(t, "web", lifecycle.Saved)
	if _, err := a.Get("third"); err == nil {
		t.Error("the restore that was refused left a VM")
	}
	if _, err := a.restore(ctx, restoreOptions{directory: dir, name: "third", newIdentity: true}, nil); err != nil {
		t.Error(err)
	}
	if _, err := a.kill(ctx, "moved"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Manager.start(ctx, "web", startOptions{}, nil); err != nil {
		t.Errorf("when the other has ended: %v", err)
	}
}
