package probe

import (
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/sysfs"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A KVM that has everything, with lists that are too long for the first try.
func fullKVM() *fakeKVM {
	k := &fakeKVM{
		extensions: map[uintptr]int{
			9: 8, 10: 32764, 44: 1, 60: 1, 61: 1, 66: 1024, 96: 1, 105: 1, 123: 1, 128: 4096, 148: 1, 149: 1, 153: 1, 155: 1, 161: 1,
			191: 1, 213: -0x80000000 | 5,
		},
		onVM:        map[uintptr]int{10: 509, 235: 3},
		hvLeaves:    [][7]uint32{{0x40000000, 0, 0, 0x4000000A, 1, 2, 3}},
		featureMSRs: []uint32{0x10A},
		khz:         2_596_120,
	}
	for i := range uint32(150) {
		k.leaves = append(k.leaves, [7]uint32{i, i + 1, 99, i + 3, i + 4, i + 5, i + 6})
	}
	for i := range uint32(600) {
		k.msrs = append(k.msrs, i)
	}
	k.msrs = append(k.msrs, 0x40000022, 0x40000003, 0x40000010, 0x400000B0, 0x40000106)
	return k
}

func TestDiscoverFull(t *testing.T) {
	k := fullKVM()
	d := k.discovery(t, sysfs.Roots{Sys: t.TempDir()})
	d.ask()
	got := d.found
	if len(d.unknown) != 0 || got.ApiVersion != 12 {
		t.Errorf("version %d, unknown: %v", got.ApiVersion, d.unknown)
	}
	want := []string{"base", "frequencies", "ipi", "reenlightenment", "reset", "runtime", "synic", "synic2", "synictimer", "time", "tlbflush", "vpindex"}
	if !slices.Equal(got.HypervFeatures, want) {
		t.Errorf("Hyper-V: %v, want %v", got.HypervFeatures, want)
	}
	if l := (&capabilitiesv1.HypervisorLimits{MaxVcpus: 1024, RecommendedVcpus: 8, MaxVcpuId: 4096, MaxMemorySlots: 509}); !proto.Equal(got.Limits, l) {
		t.Errorf("limits: %v, want %v", got.Limits, l)
	}
	if tsc := (&capabilitiesv1.TscInfo{FrequencyHz: 2_596_120_000, Scalable: true}); !proto.Equal(got.Tsc, tsc) {
		t.Errorf("TSC: %v, want %v", got.Tsc, tsc)
	}
	for name, answer := range map[string]int64{
		"KVM_CAP_NR_MEMSLOTS": 509, "KVM_CAP_VM_TYPES": 3, "KVM_CAP_HYPERV": 1, "KVM_CAP_DISABLE_QUIRKS2": 0x80000005,
	} {
		if got.Extensions[name] != answer {
			t.Errorf("%s: %d, want %d", name, got.Extensions[name], answer)
		}
	}
	if _, listed := got.Extensions["KVM_CAP_IRQCHIP"]; listed || len(got.Extensions) != len(k.extensions)+1 {
		t.Errorf("extensions that weren't answered: %v", got.Extensions)
	}
	if leaf := (&capabilitiesv1.CpuidLeaf{Function: 149, Index: 150, Eax: 152, Ebx: 153, Ecx: 154, Edx: 155}); len(got.Cpuid) != 150 || !proto.Equal(got.Cpuid[149], leaf) {
		t.Errorf("%d leaves, the last %v", len(got.Cpuid), got.Cpuid[len(got.Cpuid)-1])
	}
	if !slices.Equal(got.Msrs, k.msrs) || !slices.Equal(got.FeatureMsrs, k.featureMSRs) || len(got.HypervCpuid) != 1 || got.HypervCpuid[0].Eax != 0x4000000A {
		t.Errorf("%d MSRs, %v, %v", len(got.Msrs), got.FeatureMsrs, got.HypervCpuid)
	}
	for fd, kind := range k.open {
		if err := unix.Fstat(fd, new(unix.Stat_t)); (err == nil) != (kind == ofKVM) {
			t.Errorf("the %s's descriptor afterwards: %v", kind, err)
		}
	}
}

// Each Hyper-V feature hangs on its own extension or MSR.
func TestHyperVFeatures(t *testing.T) {
	for feature, number := range map[string]uintptr{
		"base": 44, "time": 96, "vpindex": 149, "tlbflush": 155, "ipi": 161, "synic": 123, "synic2": 148,
	} {
		d := (&fakeKVM{extensions: map[uintptr]int{number: 1}}).discovery(t, sysfs.Roots{Sys: t.TempDir(), Dev: t.TempDir()})
		d.ask()
		if !slices.Equal(d.found.HypervFeatures, []string{feature}) {
			t.Errorf("%s: %v", feature, d.found.HypervFeatures)
		}
	}
	for feature, msr := range map[string]uint32{
		"frequencies": 0x40000022, "reset": 0x40000003, "runtime": 0x40000010, "synictimer": 0x400000B0, "reenlightenment": 0x40000106,
	} {
		d := (&fakeKVM{msrs: []uint32{0x10, msr, 0x4B564D00}}).discovery(t, sysfs.Roots{Sys: t.TempDir(), Dev: t.TempDir()})
		d.ask()
		if !slices.Equal(d.found.HypervFeatures, []string{feature}) {
			t.Errorf("%s: %v", feature, d.found.HypervFeatures)
		}
	}
}

// An old KVM answers little; what it leaves out is taken as its documentation says.
func TestDiscoverOld(t *testing.T) {
	k := &fakeKVM{extensions: map[uintptr]int{61: 1, 167: 1}, khz: 1_000_000, hvLeaves: [][7]uint32{{0x40000000}}}
	d := k.discovery(t, sysfs.Roots{Sys: t.TempDir()})
	d.ask()
	if l := (&capabilitiesv1.HypervisorLimits{MaxVcpus: 4, RecommendedVcpus: 4, MaxVcpuId: 4}); !proto.Equal(d.found.Limits, l) {
		t.Errorf("limits: %v, want %v", d.found.Limits, l)
	}
	if len(d.found.HypervCpuid) != 1 || len(d.unknown) != 0 || d.found.Tsc.GetScalable() {
		t.Errorf("a vCPU's Hyper-V leaves: %v; %v; unknown: %v", d.found.HypervCpuid, d.found.Tsc, d.unknown)
	}
	if slices.Contains(k.asked, kvmGetMSRFeatureList) {
		t.Error("feature MSRs were asked for without KVM_CAP_GET_MSR_FEATURES")
	}
}

// What one question is refused costs that fact and no other.
func TestDiscoverRefused(t *testing.T) {
	tests := []struct {
		request uintptr
		errno   error
		unknown []string
		says    string
	}{
		{kvmGetAPIVersion, unix.ENOTTY, []string{"hypervisors.kvm"}, "KVM_GET_API_VERSION: inappropriate ioctl for device (ENOTTY)"},
		{kvmCheckExtension, unix.EPERM, []string{"hypervisors.kvm"}, "KVM_CHECK_EXTENSION KVM_CAP_IRQCHIP: operation not permitted (EPERM)"},
		{kvmCreateVM, unix.EBUSY, []string{"hypervisors.kvm.tsc"}, "KVM_CREATE_VM: device or resource busy (EBUSY)"},
		{kvmCreateVCPU, unix.ENOMEM, []string{"hypervisors.kvm.tsc"}, "KVM_CREATE_VCPU: cannot allocate memory (ENOMEM)"},
		{kvmGetTSCKHz, unix.EIO, []string{"hypervisors.kvm.tsc"}, "KVM_GET_TSC_KHZ: input/output error (EIO)"},
		{kvmGetSupportedCPUID, unix.ENOMEM, []string{"hypervisors.kvm.cpuid"}, "KVM_GET_SUPPORTED_CPUID: cannot allocate memory (ENOMEM)"},
		{kvmGetSupportedCPUID, unix.E2BIG, []string{"hypervisors.kvm.cpuid"}, "more than 8192 leaves"},
		{kvmGetSupportedHVCPUID, unix.EINVAL, []string{"hypervisors.kvm.hypervCpuid"}, "KVM_GET_SUPPORTED_HV_CPUID: invalid argument (EINVAL)"},
		{kvmGetMSRIndexList, unix.EFAULT, []string{"hypervisors.kvm.msrs", "hypervisors.kvm.hypervFeatures"}, "KVM_GET_MSR_INDEX_LIST: bad address (EFAULT)"},
		{kvmGetMSRIndexList, unix.E2BIG, []string{"hypervisors.kvm.msrs", "hypervisors.kvm.hypervFeatures"}, "more than 8192 MSRs"},
		{kvmGetMSRFeatureList, unix.EFAULT, []string{"hypervisors.kvm.featureMsrs"}, "KVM_GET_MSR_FEATURE_INDEX_LIST: bad address (EFAULT)"},
	}
	for _, tt := range tests {
		k := fullKVM()
		k.errors = map[uintptr]error{tt.request: tt.errno}
		// The roots are not this machine's, whose processor might tell its TSC's frequency.
		d := k.discovery(t, sysfs.Roots{Sys: t.TempDir(), Dev: t.TempDir()})
		d.ask()
		var facts []string
		for _, u := range d.unknown {
			facts = append(facts, u.Fact)
			if !strings.Contains(u.Reason, "/dev/kvm") || !strings.Contains(u.Reason, tt.says) {
				t.Errorf("%q doesn't say %q", u.Reason, tt.says)
			}
		}
		if !slices.Equal(facts, tt.unknown) {
			t.Errorf("%#x, %v: unknown %q, want %q", tt.request, tt.errno, facts, tt.unknown)
		}
	}
}

func TestDiscoverOtherVersion(t *testing.T) {
	k := fullKVM()
	k.version = 13
	d := k.discovery(t, sysfs.Roots{})
	d.ask()
	if len(d.unknown) != 1 || d.unknown[0].Fact != "hypervisors.kvm" || d.found.ApiVersion != 13 || len(k.asked) != 1 {
		t.Errorf("%v, %v, asked %d times", d.found, d.unknown, len(k.asked))
	}
}

// A kernel that says more entries than it wrote is not believed.
func TestDiscoverLies(t *testing.T) {
	k := fullKVM()
	k.lie = 1 << 20
	d := k.discovery(t, sysfs.Roots{Sys: t.TempDir()})
	d.ask()
	if len(d.found.Cpuid)+len(d.found.Msrs)+len(d.found.FeatureMsrs)+len(d.found.HypervCpuid) != 0 || len(d.unknown) != 5 {
		t.Errorf("%v", d.unknown)
	}
	for _, u := range d.unknown {
		if !strings.Contains(u.Reason, "there was room for") {
			t.Error(u)
		}
	}
}

// Where KVM doesn't tell the TSC's frequency, a file does.
func TestTSCOfFile(t *testing.T) {
	for content, hz := range map[string]uint64{"2400000\n": 2_400_000_000, "x\n": 0, "0\n": 0, "99999999999999999999\n": 0} {
		k := fullKVM()
		delete(k.extensions, 61)
		roots := sysfs.Roots{Sys: t.TempDir(), Dev: t.TempDir()}
		write(t, roots.SysPath("devices/system/cpu/cpu0/tsc_freq_khz"), content)
		d := k.discovery(t, roots)
		d.ask()
		if d.found.Tsc.GetFrequencyHz() != hz || !d.found.Tsc.GetScalable() || (len(d.unknown) == 0) != (hz != 0) {
			t.Errorf("%q: %v, unknown: %v", content, d.found.Tsc, d.unknown)
		}
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
