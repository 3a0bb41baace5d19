package hypervisor

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// needsDevice is a hypervisor with the check's own body, to be run on the calling thread.
type needsDevice interface {
	Hypervisor
	try(ctx context.Context) Status
}

// TestMadeUpDevices shows each of the ways in which a device can't be had, over a made-up tree.
func TestMadeUpDevices(t *testing.T) {
	tests := []struct {
		name  string
		make  func(path string) error
		errno syscall.Errno
		says  string
	}{
		{"nothing there", func(string) error { return nil }, unix.ENOENT, "no such file or directory (ENOENT): "},
		{"no such folder", func(path string) error { return os.Remove(filepath.Dir(path)) }, unix.ENOENT, "(ENOENT)"},
		{"a regular file", func(path string) error { return os.WriteFile(path, nil, 0o600) }, unix.ENOTTY, "is not a character device"},
		{"a pipe", func(path string) error { return unix.Mkfifo(path, 0o600) }, unix.ENOTTY, "is not a character device"},
		{"a folder", func(path string) error { return os.Mkdir(path, 0o700) }, unix.EISDIR, "(EISDIR): remove the folder"},
		{"a loop of links", func(path string) error { return os.Symlink(path, path) }, unix.ELOOP, "(ELOOP)"},
		{"another device", func(path string) error { return os.Symlink("/dev/null", path) }, unix.ENOTTY, "(ENOTTY): "},
	}
	for _, tt := range tests {
		for name, of := range hypervisorsOver() {
			t.Run(name+"/"+tt.name, func(t *testing.T) {
				h := of(filepath.Join(t.TempDir(), "dev"))
				if err := os.Mkdir(filepath.Dir(h.Device()), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := tt.make(h.Device()); err != nil {
					t.Fatal(err)
				}
				s := h.Check(t.Context())
				if s.Level != Unusable || s.Errno != tt.errno {
					t.Errorf("%v with errno %v, want unusable with %v", s.Level, s.Errno, tt.errno)
				}
				if line := s.Sentence(); !strings.HasPrefix(line, h.Device()) || !strings.Contains(line, tt.says) {
					t.Errorf("%q doesn't begin with the device and say %q", line, tt.says)
				}
			})
		}
	}
}

func hypervisorsOver() map[string]func(dev string) needsDevice {
	return map[string]func(dev string) needsDevice{
		"kvm":  func(dev string) needsDevice { return KVM{Roots{Dev: dev, Proc: dev}} },
		"mshv": func(dev string) needsDevice { return MSHV{Roots{Dev: dev}} },
	}
}

// TestNoAccess needs a thread that isn't root's; the file system user id is a thread's own.
func TestNoAccess(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: can't become another user")
	}
	for name, of := range hypervisorsOver() {
		h := of(t.TempDir())
		if err := os.WriteFile(h.Device(), nil, 0); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Dir(h.Device()), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Dir(filepath.Dir(h.Device())), 0o755); err != nil {
			t.Fatal(err)
		}
		status := make(chan Status)
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
			if err := unix.Setfsuid(65534); err != nil {
				t.Error(err)
			}
			status <- h.try(t.Context())
		}()
		s := <-status
		if s.Level != Unusable || s.Errno != unix.EACCES {
			t.Errorf("%s: %+v, want unusable with EACCES", name, s)
		}
		for _, want := range []string{"permission denied (EACCES)", "mode 0000", "group"} {
			if !strings.Contains(s.Sentence(), want) {
				t.Errorf("%s: %q doesn't say %q", name, s.Sentence(), want)
			}
		}
	}
}

func TestAbsentRemedy(t *testing.T) {
	for flags, want := range map[string]string{
		"fpu vmx sse":        "modprobe kvm_intel",
		"fpu svm sse":        "modprobe kvm_amd",
		"fpu hypervisor sse": "nested virtualisation",
		"fpu sse":            "VT-x or AMD-V in firmware",
	} {
		proc := t.TempDir()
		info := "processor\t: 0\nmodel name\t: X\nflags\t\t: " + flags + "\nprocessor\t: 1\nflags\t\t: none\n"
		if err := os.WriteFile(filepath.Join(proc, "cpuinfo"), []byte(info), 0o600); err != nil {
			t.Fatal(err)
		}
		s := KVM{Roots{Dev: t.TempDir(), Proc: proc}}.Check(t.Context())
		if !strings.Contains(s.Remedy, want) {
			t.Errorf("%s: %q doesn't say %q", flags, s.Remedy, want)
		}
	}
}

func TestFailedNamesErrno(t *testing.T) {
	if got := failed("/dev/x", unix.EBUSY, "").Error(); got != "/dev/x: device or resource busy (EBUSY)" {
		t.Error(got)
	}
	if got := failed("/dev/x", 4000, "").Error(); !strings.Contains(got, "(errno 4000)") {
		t.Error(got)
	}
}
