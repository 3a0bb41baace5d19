package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
		c, err := Config{StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"), HotplugFolders: []string{folder}}.Complete()
		if err != nil {
			t.Fatal(err)
		}
		err = c.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), "configuration: hotplugFolders[0]: ") || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", folder, err, want)
		}
	}
	c, err := Config{HotplugFolders: []string{disks, disks}}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	if err = c.Validate(); err == nil || !strings.Contains(err.Error(), "hotplugFolders[1]") {
		t.Error(err)
	}
}
