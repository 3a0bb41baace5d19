package inotify

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is long: it only ends a test that has failed.
const patience = 20 * time.Second

// TestWatch does one thing in a folder, and it must be told.
func TestWatch(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name     string
		interest Interest
		change   func(dir string)
	}{
		{"made", Interest{Path: "a/b"}, func(dir string) { must(os.WriteFile(dir+"/a/b", nil, 0o600)) }},
		{"inside", Interest{Path: "a", Inside: "*.x"}, func(dir string) { must(os.WriteFile(dir+"/a/b.x", nil, 0o600)) }},
		{"way made", Interest{Path: "n/o/p"}, func(dir string) { must(os.Mkdir(dir+"/n", 0o700)) }},
		{"written", Interest{Path: "a/w", Written: true}, func(dir string) { must(os.WriteFile(dir+"/a/w", []byte("x"), 0o600)) }},
		{"folder gone", Interest{Path: "a/b"}, func(dir string) { must(os.RemoveAll(dir + "/a")) }},
		{"mode", Interest{Path: "a/w"}, func(dir string) { must(os.Chmod(dir+"/a/w", 0o640)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			must(os.Mkdir(dir+"/a", 0o700))
			must(os.WriteFile(dir+"/a/w", nil, 0o600))
			c.interest.Path = filepath.Join(dir, c.interest.Path)
			s, err := Watch([]Interest{c.interest})
			must(err)
			defer s.Close()
			c.change(dir)
			select {
			case <-s.Changes():
			case <-time.After(patience):
				t.Error("it wasn't told")
			}
		})
	}
}

// raw is an event as the kernel writes it.
func raw(wd int32, mask uint32, name string) []byte {
	padded := (len(name) + 16) / 16 * 16
	if name == "" {
		padded = 0
	}
	b := binary.NativeEndian.AppendUint32(nil, uint32(wd))
	b = binary.NativeEndian.AppendUint32(b, mask)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = binary.NativeEndian.AppendUint32(b, uint32(padded))
	return append(b, append([]byte(name), make([]byte, padded-len(name))...)...)
}

func join(events ...[]byte) (out []byte) {
	for _, e := range events {
		out = append(out, e...)
	}
	return out
}

func TestMatters(t *testing.T) {
	w := &Set{patterns: map[int32][]string{1: {Literal("kvm"), "vhost-*"}, 2: {Literal("a[b]-c")}}}
	for _, c := range []struct {
		name   string
		events []byte
		want   bool
	}{
		{"none", nil, false},
		{"wanted", raw(1, unix.IN_CREATE, "kvm"), true},
		{"pattern", raw(1, unix.IN_ATTRIB, "vhost-net"), true},
		{"other", raw(1, unix.IN_CREATE, "kvm2"), false},
		{"other folder", raw(2, unix.IN_CREATE, "kvm"), false},
		{"odd name", raw(2, unix.IN_CREATE, "a[b]-c"), true},
		{"odd name is no pattern", raw(2, unix.IN_CREATE, "ab-c"), false},
		{"the folder's own mode", raw(1, unix.IN_ATTRIB, ""), false},
		{"second of two", join(raw(1, unix.IN_CREATE, "x"), raw(1, unix.IN_CREATE, "kvm")), true},
		{"overflow", raw(-1, unix.IN_Q_OVERFLOW, ""), true},
		{"folder gone", raw(1, unix.IN_DELETE_SELF, ""), true},
		{"cut off", raw(1, unix.IN_CREATE, "x")[:20], true},
	} {
		if got := w.matters(c.events); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func FuzzMatters(f *testing.F) {
	f.Add(raw(1, unix.IN_CREATE, "kvm"))
	f.Fuzz(func(_ *testing.T, events []byte) {
		(&Set{patterns: map[int32][]string{1: {"*"}}}).matters(events)
	})
}
