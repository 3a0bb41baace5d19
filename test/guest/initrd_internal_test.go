package guest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestArchiveLayout(t *testing.T) {
	var a archive
	a.add("ab", modeFile, 0, 0, []byte("xyz"))
	got := a.close()
	// Header fields are 110 characters; name and content are padded to four.
	want := "070701" + "00000001" + "000081a4" + "00000000" + "00000000" + "00000001" + "00000000" + "00000003" +
		"00000000" + "00000000" + "00000000" + "00000000" + "00000003" + "00000000" + "ab\x00" + "\x00\x00\x00" + "xyz\x00"
	if !strings.HasPrefix(string(got), want) {
		t.Errorf("got  %q\nwant %q", got[:min(len(got), len(want))], want)
	}
	if !strings.Contains(string(got[len(want):]), "TRAILER!!!\x00") || len(got)%4 != 0 {
		t.Errorf("the end is %q", got[len(want):])
	}
}

func TestModulesComeAfterWhatTheyNeed(t *testing.T) {
	dir, err := Cached("linux", "modules")
	if missing := (*MissingError)(nil); errors.As(err, &missing) {
		t.Skip(err)
	}
	modules, err := modulesWith(dir, []string{"virtio-net", "nonesuch"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range modules {
		names = append(names, m.name)
	}
	if len(names) == 0 || names[len(names)-1] != "virtio_net" {
		t.Fatalf("got %q: want virtio_net last", names)
	}
	if failover, net := slices.Index(names, "failover"), slices.Index(names, "net_failover"); failover < 0 || failover > net {
		t.Errorf("got %q: want failover before net_failover", names)
	}
}

func TestBadModules(t *testing.T) {
	for name, content := range map[string]string{"plain.ko": "not an ELF file", "packed.ko.xz": "not xz", "empty.ko": ""} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
			_, err := modulesWith(dir, []string{moduleName(name)})
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("error %v does not name %s", err, name)
			}
		})
	}
}
