package vm

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"testing"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/shim"
	"google.golang.org/grpc/codes"
)

func TestOutcomeOf(t *testing.T) {
	for want, err := range map[string]error{
		"succeeded": nil,
		"cancelled": context.Canceled,
		"no-space":  &memory.SpaceError{Dir: "/i"},
		"refused":   &shim.Error{Code: shim.CodeChangedDisk},
		"damaged":   fault.Errorf(codes.DataLoss, "chunk"),
		"failed":    errors.New("something"),
	} {
		if got := outcomeOf(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// TestImagesAreCounted: each save and restore once, by how it ended.
func TestImagesAreCounted(t *testing.T) {
	w, a := withRunning(t)
	into := func(name string) place.SaveOptions {
		return place.SaveOptions{Directory: filepath.Join(t.TempDir(), name)}
	}
	w.FailStep("save", &shim.Error{Code: shim.CodeSpace, Message: "full"})
	if _, _, err := a.Save(t.Context(), "web", into("full"), nil); err == nil {
		t.Fatal("a save succeeded that was to fail")
	}
	w.FailStep("save", nil)
	if _, _, err := a.Save(t.Context(), "web", place.SaveOptions{Directory: "relative"}, nil); err == nil {
		t.Fatal("a save into a relative path succeeded")
	}
	options := into("one")
	_, result, err := a.Save(t.Context(), "web", options, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := a.Get(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	vmtest.Eventually(t, "it is saved", func() bool { return m.State() == lifecycle.Saved })
	w.VMM.CheckErr = errors.New("another CPU")
	if _, err := a.Restore(t.Context(), RestoreOptions{Directory: options.Directory}, nil); err == nil {
		t.Fatal("a restore succeeded that was to fail")
	}
	w.VMM.CheckErr = nil
	if _, err := a.Restore(t.Context(), RestoreOptions{Directory: options.Directory}, nil); err != nil {
		t.Fatal(err)
	}
	saves := map[string]uint64{"succeeded": 1, "cancelled": 0, "no-space": 1, "refused": 1, "damaged": 0, "failed": 0}
	if got := a.Saves(); !maps.Equal(got.Outcomes, saves) || got.Bytes != result.ImageBytes || got.Duration <= 0 {
		t.Errorf("saves %+v, want %v and %d bytes", got, saves, result.ImageBytes)
	}
	restores := map[string]uint64{"succeeded": 1, "cancelled": 0, "no-space": 0, "refused": 1, "damaged": 0, "failed": 0}
	if got := a.Launcher.Restores(); !maps.Equal(got.Outcomes, restores) || got.Duration <= 0 {
		t.Errorf("restores %+v, want %v", got, restores)
	}
}
