package probe

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/sysfs"
)

func TestAbsentRemedy(t *testing.T) {
	for flags, want := range map[string]string{
		"fpu vmx sse":        "modprobe kvm_intel",
		"fpu svm sse":        "modprobe kvm_amd",
		"fpu hypervisor sse": "nested virtualisation",
		"fpu sse":            "VT-x or AMD-V in firmware",
		"arm64":              "load the kvm module",
	} {
		proc := t.TempDir()
		info := "processor\t: 0\nmodel name\t: X\nflags\t\t: " + flags + "\nprocessor\t: 1\nflags\t\t: none\n"
		if flags == "arm64" { // only x86 calls them flags
			info = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n"
		}
		if err := os.WriteFile(filepath.Join(proc, "cpuinfo"), []byte(info), 0o600); err != nil {
			t.Fatal(err)
		}
		s := KVM{Roots: sysfs.Roots{Dev: t.TempDir(), Proc: proc}}.Check(t.Context())
		if !strings.Contains(s.Remedy, want) {
			t.Errorf("%s: %q doesn't say %q", flags, s.Remedy, want)
		}
	}
}
