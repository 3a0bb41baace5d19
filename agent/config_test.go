package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func load(t *testing.T, content string) (Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "vmlet.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return LoadConfig(path)
}

func TestLoadConfig(t *testing.T) {
	c, err := load(t, "stateDir: /srv/vmlet\nusers: {first: 5000, count: 10}\nram: {huge: advise}\nallowedUsers: [1000]\n")
	if err != nil {
		t.Fatal(err)
	}
	if c, err = c.complete(); err != nil {
		t.Fatal(err)
	}
	if err := c.validate(); err != nil {
		t.Fatal(err)
	}
	if c.StateDir != "/srv/vmlet" || c.Users.First != 5000 || c.RAM.Huge != "advise" || c.Socket != "/run/vmlet/vmlet.sock" {
		t.Errorf("loaded %+v", c)
	}
	for content, want := range map[string]string{
		"stateDir: /a\nstatedir: /b\n": "line 2",
		"users:\n  first: many\n":      "line 2",
		"ram: {sise: 1g}\n":            "line 1",
		"a: [\n":                       "line",
		"stateDir: /a\n---\nrunDir: /": "second document",
	} {
		if _, err := load(t, content); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", content, err, want)
		}
	}
	if _, err := load(t, ""); err != nil {
		t.Errorf("an empty file: %v", err)
	}
	if _, err := LoadConfig("/nonexistent"); err == nil {
		t.Error("a file that is not there is taken")
	}
}

// TestValidateNamesEveryFault makes one fault in each field.
func TestValidateNamesEveryFault(t *testing.T) {
	c, err := Config{
		StateDir: "relative", RunDir: "relative", Socket: "/" + strings.Repeat("s", 110), Shim: "/a/../b",
		QEMU:      QEMUConfig{Binary: "qemu"},
		Users:     UserRange{First: 2147483647, Count: 2},
		RAM:       RAMConfig{Size: "1g,mode=777", Huge: "sometimes"},
		HugePages: []HugePageDir{{PageSize: "2Mi", Path: "hugepages"}},
		Cgroup:    CgroupConfig{Parent: "/"},
	}.complete()
	if err != nil {
		t.Fatal(err)
	}
	err = c.validate()
	for _, key := range []string{"stateDir", "runDir", "socket", "shim", "qemu.binary", "users", "ram.size", "ram.huge", "hugePages[0].path", "cgroup.parent"} {
		if err == nil || !strings.Contains(err.Error(), "configuration: "+key+": ") {
			t.Errorf("%s is not complained about in: %v", key, err)
		}
	}
}
