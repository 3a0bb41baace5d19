package place

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vmlet/vmlet/agent/store"
	"github.com/vmlet/vmlet/plan"
)

// revoker takes access to files back, and makes nothing.
type revoker struct{ Host }

func (revoker) RevokeFile(string, string, uint32) error { return nil }

// TestGranting: what an attachment gives a user is taken back with the rest.
func TestGranting(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(filepath.Join(dir, "state"), filepath.Join(dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	h := (&Resources{Store: st, Host: revoker{}}).At("web")
	if err := os.MkdirAll(h.StateDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	l := &Lease{UID: 7}
	more := []plan.File{{Kind: plan.FilePath, Path: "/b", Granted: true}, {Kind: plan.FileReceived}, {Kind: plan.FilePath, Path: "/c", Granted: true, Write: true}}
	if err := h.noteGranted(&Choice{Lease: l, Plan: &plan.Plan{Files: []plan.File{{Kind: plan.FilePath, Path: "/a", Granted: true}}}}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := h.Granting(l, more); err != nil {
			t.Fatal(err)
		}
	}
	g, err := h.readGranted()
	if err != nil || g.UID != 7 || !slices.Equal(g.Files, []grantedFile{{"/a"}, {"/b"}, {"/c"}}) {
		t.Errorf("%+v, %v", g, err)
	}
	if err := h.takeBackGranted(); err != nil {
		t.Fatal(err)
	}
	// One that was started with nothing to give.
	if err := h.Granting(l, more[:1]); err != nil {
		t.Fatal(err)
	}
	if g, err = h.readGranted(); err != nil || !slices.Equal(g.Files, []grantedFile{{"/b"}}) {
		t.Errorf("%+v, %v", g, err)
	}
}
