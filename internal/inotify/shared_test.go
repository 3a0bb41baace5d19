package inotify

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// instances counts this process's inotify instances.
func instances(t *testing.T) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range all {
		if target, _ := os.Readlink("/proc/self/fd/" + fd.Name()); target == "anon_inode:inotify" {
			n++
		}
	}
	return n
}

func arm(t *testing.T, f *Folder) {
	t.Helper()
	if err := f.Arm(); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func told(t *testing.T, f *Folder, what string) {
	t.Helper()
	select {
	case <-f.Changes():
	case <-time.After(patience):
		t.Fatal("not told: " + what)
	}
}

func silent(t *testing.T, f *Folder, what string) {
	t.Helper()
	select {
	case <-f.Changes():
		t.Error("told: " + what)
	default:
	}
}

func TestSharedIsOneInstance(t *testing.T) {
	before := instances(t)
	var s Shared
	defer s.Close()
	dirs := make(map[*Folder]string)
	for range 50 {
		dir := t.TempDir()
		f := s.Folder(dir, "a", "b")
		defer f.Close()
		arm(t, f)
		dirs[f] = dir
	}
	if n := instances(t) - before; n != 1 {
		t.Errorf("%d instances for 50 folders", n)
	}
	for f, dir := range dirs {
		write(t, dir, "other")
		write(t, dir, "b")
		told(t, f, "a name that is waited for")
	}
	s.Close()
	if n := instances(t) - before; n != 0 {
		t.Errorf("%d instances are left", n)
	}
}

// TestSharedFolders does one thing in a folder of which two watchers wait for different
// names. A name in another folder comes last: what has been reported by then is all.
func TestSharedFolders(t *testing.T) {
	for _, c := range []struct {
		name       string
		change     func(t *testing.T, dir string)
		one, other bool
	}{
		{"made", func(t *testing.T, dir string) { write(t, dir, "one") }, true, false},
		{"moved in", func(t *testing.T, dir string) {
			write(t, dir, "x")
			if err := os.Rename(dir+"/x", dir+"/other"); err != nil {
				t.Fatal(err)
			}
		}, false, true},
		{"another name", func(t *testing.T, dir string) { write(t, dir, "x") }, false, false},
		{"folder gone", func(t *testing.T, dir string) {
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
		}, true, true},
		{"more than is read", func(t *testing.T, dir string) {
			for i := range maxEvents {
				write(t, dir, fmt.Sprint(i))
			}
		}, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s Shared
			defer s.Close()
			dir, lastDir := t.TempDir(), t.TempDir()
			one, other, last := s.Folder(dir, "one"), s.Folder(dir, "other"), s.Folder(lastDir, "last")
			for _, f := range []*Folder{one, other, last} {
				arm(t, f)
			}
			c.change(t, dir)
			write(t, lastDir, "last")
			told(t, last, "the last")
			for f, want := range map[*Folder]bool{one: c.one, other: c.other} {
				if want {
					told(t, f, f.names[0])
				} else {
					silent(t, f, f.names[0])
				}
			}
		})
	}
}

// TestSharedFlood: a folder that is written to all the time is left alone until it is
// armed again, and costs the others nothing.
func TestSharedFlood(t *testing.T) {
	var s Shared
	defer s.Close()
	loud, quiet := s.Folder(t.TempDir(), "a"), s.Folder(t.TempDir(), "a")
	arm(t, loud)
	arm(t, quiet)
	for i := range 10 * maxEvents {
		write(t, loud.dir, fmt.Sprint(i))
	}
	write(t, quiet.dir, "b")
	told(t, loud, "a flood")
	silent(t, quiet, "a flood elsewhere")
	write(t, loud.dir, "a")
	write(t, quiet.dir, "a")
	told(t, quiet, "its own")
	silent(t, loud, "what came before it was armed again")
	arm(t, loud)
	if err := os.Rename(loud.dir+"/0", loud.dir+"/a"); err != nil {
		t.Fatal(err)
	}
	told(t, loud, "what came after it was armed again")
}

// TestSharedOverflow: events that the kernel has dropped may have been about any folder,
// also its end.
func TestSharedOverflow(t *testing.T) {
	var s Shared
	defer s.Close()
	one, other := s.Folder(t.TempDir(), "a"), s.Folder(t.TempDir(), "a")
	arm(t, one)
	arm(t, other)
	s.take(raw(-1, unix.IN_Q_OVERFLOW, ""))
	told(t, one, "the overflow")
	told(t, other, "the overflow")
	arm(t, one)
	write(t, one.dir, "a")
	told(t, one, "a name after the overflow")
}

func TestSharedNoSuchFolder(t *testing.T) {
	var s Shared
	defer s.Close()
	dir := filepath.Join(t.TempDir(), "late")
	f := s.Folder(dir, "a")
	if err := f.Arm(); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("no such folder: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	arm(t, f)
	write(t, dir, "a")
	told(t, f, "a name")
}

// limitVariable names the sysctl that a run of this test program in a user namespace of
// its own sets to 0.
const limitVariable = "VMLET_INOTIFY_LIMIT"

// TestLimits: an error says which of the kernel's limits is to be raised.
func TestLimits(t *testing.T) {
	if limit := os.Getenv(limitVariable); limit != "" {
		if err := os.WriteFile("/proc/sys/user/"+limit, []byte("0"), 0); err != nil {
			t.Fatal(err)
		}
		var s Shared
		defer s.Close()
		_, err := Watch([]Interest{{Path: t.TempDir()}})
		fmt.Printf("folder: %v\nset: %v\n", s.Folder(t.TempDir(), "a").Arm(), err)
		return
	}
	for limit, want := range map[string]string{
		"max_inotify_instances": "raise fs.inotify.max_user_instances", "max_inotify_watches": "raise fs.inotify.max_user_watches",
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestLimits$")
		cmd.Env = append(os.Environ(), limitVariable+"="+limit)
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
			t.Skipf("no user namespaces here: %v", err)
		}
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, what := range []string{"folder", "set"} {
			lines := slices.Collect(strings.Lines(string(out)))
			if i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, what+": ") }); i < 0 || !strings.Contains(lines[i], want) {
				t.Errorf("%s: %s has not %q: %s", limit, what, want, out)
			}
		}
	}
}
