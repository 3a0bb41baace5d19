package confidential

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/hypervisor/device"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/sysfs"
)

// without answers CPUID of a processor that has no leaf of encryption.
func without(uint32, uint32) (device.CPUIDLeaf, error) { return device.CPUIDLeaf{}, nil }

type modules = map[string]map[string]string

func intel(flags []string, m modules, misc map[string]uint64) *sysfs.Host {
	return &sysfs.Host{
		Processor:      sysfs.Processor{Vendor: "GenuineIntel", Flags: flags},
		Virtualization: sysfs.Virtualization{Modules: m, Misc: misc},
	}
}

func TestTDX(t *testing.T) {
	tdx := []string{"tdx_host_platform", "tme"}
	guest := intel([]string{"tme"}, nil, nil)
	guest.Virtualization.Guest = true
	tests := []struct {
		name      string
		host      *sysfs.Host
		supported bool
		says      []string
	}{
		{"on", intel(tdx, modules{"kvm_intel": {"tdx": "Y"}}, nil), true, nil},
		{"with keys", intel(tdx, modules{"kvm_intel": {"tdx": "Y"}}, map[string]uint64{"tdx": 31}), true, nil},
		{"no keys", intel(tdx, modules{"kvm_intel": {"tdx": "Y"}}, map[string]uint64{}), false, []string{"no keys", "in firmware"}},
		{"off", intel(tdx, modules{"kvm_intel": {"tdx": "N"}}, nil), false,
			[]string{"the processor has TDX (flag tdx_host_platform)", `parameter tdx is "N"`, "boot with kvm_intel.tdx=1"}},
		{"senseless", intel(tdx, modules{"kvm_intel": {"tdx": strings.Repeat("x", 4000)}}, nil), false, []string{"xxx"}},
		{"old kernel", intel(tdx, modules{"kvm_intel": {"nested": "Y"}}, nil), false, []string{"no parameter tdx"}},
		{"not loaded", intel(tdx, modules{"kvm": {}}, nil), false, []string{"modprobe kvm_intel tdx=1"}},
		{"firmware", intel([]string{"tme"}, nil, nil), false, []string{"enable TME-MT and TDX in firmware"}},
		{"in a guest", guest, false, nil},
		{"nothing", intel([]string{"vmx"}, modules{"kvm_intel": {"tdx": "N"}}, nil), false, nil},
		{"AMD", &sysfs.Host{Processor: sysfs.Processor{Vendor: "AuthenticAMD", Flags: tdx}}, false, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, unknown := discover(t.Context(), &asker{host: tt.host, cpuid: without, roots: sysfs.Roots{Dev: t.TempDir()}}, "amd64")
			check(t, out.Tdx, tt.supported, tt.says)
			if len(unknown) != 0 || out.SevPlatform != nil || out.Sev.GetSupported() {
				t.Errorf("%v, %v", unknown, out)
			}
		})
	}
}

// check compares a feature; without words to say it must have no reason.
func check(t *testing.T, got *capabilitiesv1.ConfidentialFeature, supported bool, says []string) {
	t.Helper()
	if got.GetSupported() != supported || (got.GetReason() == "") != (len(says) == 0) || len(got.GetReason()) > 500 {
		t.Errorf("%v, want supported %v and to be told %q", got, supported, says)
	}
	for _, s := range says {
		if !strings.Contains(got.GetReason(), s) {
			t.Errorf("%q doesn't say %q", got.GetReason(), s)
		}
	}
}

// TestS390 reads the tree with the real reader.
func TestS390(t *testing.T) {
	for content, want := range map[string]struct {
		supported bool
		says      []string
	}{
		"1\n": {true, nil},
		"0\n": {false, []string{"prot_virt=1"}},
		"":    {false, nil}, // no such file
		"x\n": {false, nil},
	} {
		roots := sysfs.Roots{Sys: t.TempDir(), Proc: t.TempDir(), Dev: t.TempDir()}
		if content != "" {
			path := filepath.Join(roots.Sys, "firmware/uv/prot_virt_host")
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out, unknown := Discover(t.Context(), roots, sysfs.Read(roots), "s390x")
		check(t, out.S390Pv, want.supported, want.says)
		if len(unknown) != 0 || out.Sev.GetReason() != "" {
			t.Errorf("%v, %v", unknown, out)
		}
	}
}

// Another architecture's features are not looked for, whatever the files say.
func TestArm64(t *testing.T) {
	host := amd(sevFlags, modules{"kvm_amd": {"sev": "Y"}}, nil)
	out, unknown := Discover(t.Context(), sysfs.Roots{Dev: t.TempDir()}, host, "arm64")
	for _, f := range []*capabilitiesv1.ConfidentialFeature{out.Sev, out.SevEs, out.SevSnp, out.Tdx, out.S390Pv} {
		if f == nil || f.Supported || f.Reason != "" {
			t.Errorf("%v", f)
		}
	}
	if len(unknown) != 0 {
		t.Error(unknown)
	}
}

// Whatever this machine has, each feature is answered, and one that is there has no reason.
func TestReal(t *testing.T) {
	out, unknown := Discover(t.Context(), sysfs.Roots{}, sysfs.Read(sysfs.Roots{}), runtime.GOARCH)
	t.Log(out, unknown)
	for _, f := range []*capabilitiesv1.ConfidentialFeature{out.Sev, out.SevEs, out.SevSnp, out.Tdx, out.S390Pv} {
		if f == nil || f.Supported && f.Reason != "" {
			t.Errorf("%v", f)
		}
	}
}
