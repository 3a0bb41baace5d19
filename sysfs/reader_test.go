package sysfs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/sysfs/sysfstest"
)

func jsonText(t *testing.T, value any) string {
	t.Helper()
	content, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestReader is about what can be at the place of a file. Each case is read as
// text; note is what is noted.
func TestReader(t *testing.T) {
	cases := []struct {
		name, want, note string
		make             func(t *testing.T, tree *sysfstest.Tree)
	}{
		{name: "missing"},
		{name: "file", want: "7", make: func(_ *testing.T, tree *sysfstest.Tree) { tree.File("sys/x/file", "  7") }},
		{name: "nul", want: "0-3", make: func(_ *testing.T, tree *sysfstest.Tree) { tree.Raw("sys/x/nul", "0-3\n\x00") }},
		{name: "nul-only", make: func(_ *testing.T, tree *sysfstest.Tree) { tree.Raw("sys/x/nul-only", "\x00\n") }},
		{name: "empty", make: func(_ *testing.T, tree *sysfstest.Tree) { tree.Raw("sys/x/empty", "") }},
		{name: "link", make: func(_ *testing.T, tree *sysfstest.Tree) {
			tree.File("sys/y/z", "7")
			tree.RawLink("sys/x/link", "../../sys/../proc/../sys/y/z")
		}, note: "leads out of the root"},
		{name: "within", want: "7", make: func(_ *testing.T, tree *sysfstest.Tree) {
			tree.File("sys/y/z", "7")
			tree.RawLink("sys/x/within", "../w/../y/z")
			tree.RawLink("sys/w", "y")
		}},
		{name: "absolute", note: "leads out of the root", make: func(_ *testing.T, tree *sysfstest.Tree) { tree.RawLink("sys/x/absolute", "/proc/version") }},
		{name: "other-root", note: "leads out of the root", make: func(_ *testing.T, tree *sysfstest.Tree) {
			tree.File("proc/version", "secret")
			tree.RawLink("sys/x/other-root", "../../proc/version")
		}},
		{name: "loop", note: "too many levels", make: func(_ *testing.T, tree *sysfstest.Tree) { tree.RawLink("sys/x/loop", "loop") }},
		{name: "dangling", make: func(_ *testing.T, tree *sysfstest.Tree) { tree.RawLink("sys/x/dangling", "nothing") }},
		{name: "folder", note: "directory", make: func(_ *testing.T, tree *sysfstest.Tree) { tree.Folder("sys/x/folder") }},
		{name: "pipe", note: "pipe or a device", make: pipe},
		{name: "pipe-held", note: "pipe or a device", make: func(t *testing.T, tree *sysfstest.Tree) {
			pipe(t, tree)
			f, err := os.OpenFile(tree.Path("sys/x/pipe-held"), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
		}},
		{name: "long", note: "too long", make: func(_ *testing.T, tree *sysfstest.Tree) {
			tree.Raw("sys/x/long", "")
			os.Truncate(tree.Path("sys/x/long"), 1<<40)
		}},
		{name: "pages", want: strings.Repeat("x", 20000), make: func(_ *testing.T, tree *sysfstest.Tree) { tree.File("sys/x/pages", strings.Repeat("x", 20000)) }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			tree := sysfstest.Empty(t, t.TempDir())
			tree.Folder("sys/x")
			if c.make != nil {
				c.make(t, tree)
			}
			r := &reader{roots: rootsOf(tree)}
			defer r.close()
			got, ok := r.text(r.sys("x/" + c.name))
			if c.note == "" && (got != c.want || len(r.notes) != 0) {
				t.Errorf("got %.40q, notes %v, want %.40q", got, r.notes, c.want)
			}
			if c.note != "" && (ok || len(r.notes) != 1 || !strings.Contains(r.notes[0].Message, c.note)) {
				t.Errorf("got %q, notes %v, want a note of %q", got, r.notes, c.note)
			}
		})
	}
}

func pipe(t *testing.T, tree *sysfstest.Tree) {
	if err := syscall.Mkfifo(tree.Path("sys/x/"+filepath.Base(t.Name())), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestPipesEverywhere: a tree of nothing but pipes is read, without waiting.
func TestPipesEverywhere(t *testing.T) {
	tree := sysfstest.Machine{Dies: 1, Cores: 2}.Write(t)
	err := filepath.WalkDir(tree.Root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		return syscall.Mkfifo(path, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	h := Read(rootsOf(tree))
	checkHost(t, h)
	if len(h.CPUs) != 2 || len(h.Notes) < 10 {
		t.Errorf("%d CPUs, notes %v", len(h.CPUs), h.Notes)
	}
}

// TestDevice: a device at the place of a file is bounded, whatever it gives.
func TestDevice(t *testing.T) {
	tree := sysfstest.Empty(t, t.TempDir())
	if err := unix.Mknod(tree.Path("sys/zero"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))); err != nil {
		t.Skipf("needs the right to make a device: %v", err)
	}
	r := &reader{roots: rootsOf(tree)}
	defer r.close()
	if text, ok := r.text(r.sys("zero")); ok || len(r.notes) != 1 {
		t.Errorf("got %.20q, notes %v", text, r.notes)
	}
}

// TestMountWithin: what is mounted below /sys is read, as cgroups are.
func TestMountWithin(t *testing.T) {
	names, err := os.ReadDir("/sys/fs/cgroup")
	if err != nil || len(names) == 0 {
		t.Skip("nothing is mounted there")
	}
	r := &reader{}
	defer r.close()
	if got := r.names("/sys/fs/cgroup"); len(got) != len(names) || len(r.notes) != 0 {
		t.Errorf("%d names, want %d; notes %v", len(got), len(names), r.notes)
	}
}

// TestRoots: roots that aren't there, in one another, or relative.
func TestRoots(t *testing.T) {
	tree := sysfstest.Machine{Dies: 1}.Write(t)
	h := Read(Roots{Sys: filepath.Join(tree.Root, "nowhere"), Proc: tree.Proc, Dev: tree.Dev})
	checkHost(t, h)
	if len(h.Notes) != 1 || h.Notes[0].Path != filepath.Join(tree.Root, "nowhere") {
		t.Errorf("notes: %v", h.Notes)
	}
	if err := os.Rename(tree.Proc, tree.Path("sys/proc")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(tree.Root)
	h = Read(Roots{Sys: "sys", Proc: "./sys/proc", Dev: "dev"})
	checkHost(t, h)
	if len(h.CPUs) != 1 || h.Kernel.Release == "" || len(h.Notes) != 0 {
		t.Errorf("%d CPUs, kernel %q, notes %v", len(h.CPUs), h.Kernel.Release, h.Notes)
	}
}

// TestThisMachine: nothing that its own files say is senseless.
func TestThisMachine(t *testing.T) {
	h := Read(Roots{})
	checkHost(t, h)
	if len(h.CPUs) == 0 || h.Architecture == "" || h.Memory.Total == 0 {
		t.Errorf("%d CPUs, architecture %q, memory %+v", len(h.CPUs), h.Architecture, h.Memory)
	}
	for _, note := range h.Notes {
		if !strings.Contains(note.Message, "permission denied") {
			t.Errorf("%s: %s", note.Path, note.Message)
		}
	}
}

// TestReaderLeavesNothingOpen: each Read would keep three descriptors.
func TestReaderLeavesNothingOpen(t *testing.T) {
	open := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(all)
	}
	tree := sysfstest.Empty(t, t.TempDir())
	Read(rootsOf(tree)) // what it may keep for good
	before := open()
	for range 20 {
		Read(rootsOf(tree))
	}
	if after := open(); after >= before+20 {
		t.Errorf("%d descriptors are open after 20 reads, and %d before", after, before)
	}
}
