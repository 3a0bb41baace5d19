package probe_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vmlet/vmlet/hypervisor"
	kvm "github.com/vmlet/vmlet/hypervisor/kvm/probe"
	mshv "github.com/vmlet/vmlet/hypervisor/mshv/probe"
	"github.com/vmlet/vmlet/sysfs"
	"golang.org/x/sys/unix"
)

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
				if s.Level != hypervisor.Unusable || s.Errno != tt.errno {
					t.Errorf("%v with errno %v, want unusable with %v", s.Level, s.Errno, tt.errno)
				}
				if line := s.Sentence(); !strings.HasPrefix(line, h.Device()) || !strings.Contains(line, tt.says) {
					t.Errorf("%q doesn't begin with the device and say %q", line, tt.says)
				}
			})
		}
	}
}

func hypervisorsOver() map[string]func(dev string) hypervisor.Hypervisor {
	return map[string]func(dev string) hypervisor.Hypervisor{
		"kvm":  func(dev string) hypervisor.Hypervisor { return kvm.KVM{Roots: sysfs.Roots{Dev: dev, Proc: dev}} },
		"mshv": func(dev string) hypervisor.Hypervisor { return mshv.MSHV{Roots: sysfs.Roots{Dev: dev}} },
	}
}
