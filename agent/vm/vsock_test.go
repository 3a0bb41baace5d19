package vm

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"google.golang.org/grpc/codes"
)

// TestVsockIsOneVMs: a context id that a running VM has is no other's, also to an agent that
// has adopted the VM and to a VM that goes on from an image.
func TestVsockIsOneVMs(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	for _, name := range []string{"one", "two"} {
		s := vmtest.Spec(name)
		s.Devices = &specv1.Devices{Vsock: &specv1.Vsock{Cid: 42}}
		if _, err := a.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	refused := func() {
		t.Helper()
		_, err := a.Manager.Start(t.Context(), "two", StartOptions{}, nil)
		vmtest.WantCode(t, "start", err, codes.FailedPrecondition)
		if err != nil && !strings.Contains(err.Error(), "42 is that of vm one") {
			t.Errorf("the error does not say whose the id is: %v", err)
		}
	}
	a.mustStart(t, "two")
	image := filepath.Join(t.TempDir(), "image")
	if _, _, err := a.Save(t.Context(), "two", place.SaveOptions{Directory: image}, func(shim.Progress) {}); err != nil {
		t.Fatal(err)
	}
	a.mustStart(t, "one")
	refused()
	_, err := a.Restore(t.Context(), RestoreOptions{Directory: image, Name: "three", NewIdentity: true}, nil)
	vmtest.WantCode(t, "restore", err, codes.FailedPrecondition)
	a.end()
	a = w.start()
	refused()
	if _, err := a.Kill(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	a.mustStart(t, "two")
}
