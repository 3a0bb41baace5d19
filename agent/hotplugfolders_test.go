package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/plan"
)

// TestHotplugFolders: what VMMs may reach later is there, and nobody else's.
func TestHotplugFolders(t *testing.T) {
	dir := t.TempDir()
	file, disks, link := filepath.Join(dir, "file"), filepath.Join(dir, "disks"), filepath.Join(dir, "link")
	for _, err := range []error{
		os.WriteFile(file, nil, 0o600), os.Mkdir(disks, 0o700), os.Mkdir(filepath.Join(dir, "state"), 0o700),
		os.Symlink("state", link),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for folder, want := range map[string]string{
		disks:                          "",
		"disks":                        "not an absolute, clean path",
		disks + "/":                    "not an absolute, clean path",
		filepath.Join(dir, "none"):     "no such file or directory: make the folder",
		file:                           "is no folder",
		dir:                            "stateDir",
		"/":                            "runDir",
		filepath.Join(dir, "state"):    "stateDir",
		link:                           "stateDir",
		filepath.Join(dir, "run/vms"):  "no such file",
		filepath.Join(link, "..", "x"): "no such file",
	} {
		c, err := Config{StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"), HotplugFolders: []string{folder}}.complete()
		if err != nil {
			t.Fatal(err)
		}
		err = c.validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), "configuration: hotplugFolders[0]: ") || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", folder, err, want)
		}
	}
	c, err := Config{HotplugFolders: []string{disks, disks}}.complete()
	if err != nil {
		t.Fatal(err)
	}
	if err = c.validate(); err == nil || !strings.Contains(err.Error(), "hotplugFolders[1]") {
		t.Error(err)
	}
}

// TestGranting: what an attachment gives a user is taken back with the rest.
func TestGranting(t *testing.T) {
	a := newWorld(t).start()
	h := a.own.At("web")
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
