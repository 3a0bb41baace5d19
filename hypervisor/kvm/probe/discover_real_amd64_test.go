package probe

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/hypervisor/device"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/sysfs"
	"golang.org/x/sys/unix"
)

// discoverReal asks the real /dev/kvm, and skips where there is none.
func discoverReal(t *testing.T) *capabilitiesv1.HypervisorCapabilities {
	t.Helper()
	realMachine(t)
	var found capabilitiesv1.HypervisorCapabilities
	for _, u := range (KVM{}).Discover(t.Context(), &found) {
		t.Errorf("unknown: %v", u)
	}
	return &found
}

func TestDiscoverReal(t *testing.T) {
	found := discoverReal(t)
	if found.ApiVersion != 12 || found.Extensions["KVM_CAP_NR_VCPUS"] < 1 || found.Extensions["KVM_CAP_USER_MEMORY"] != 1 {
		t.Errorf("version %d, %v", found.ApiVersion, found.Extensions)
	}
	if l := found.Limits; l.MaxVcpus < l.RecommendedVcpus || l.MaxVcpuId < l.MaxVcpus-1 || l.MaxMemorySlots < 32 {
		t.Errorf("limits: %v", l)
	}
	if len(found.Cpuid) == 0 || len(found.Msrs) == 0 {
		t.Errorf("%d leaves, %d MSRs", len(found.Cpuid), len(found.Msrs))
	}
	if hz := found.Tsc.GetFrequencyHz(); hz < 100_000_000 || hz > 20_000_000_000 {
		t.Errorf("the TSC runs at %d Hz", hz)
	}
	// Asked again, it says the same.
	again := discoverReal(t)
	if len(again.Extensions) != len(found.Extensions) || len(again.Cpuid) != len(found.Cpuid) || again.Tsc.FrequencyHz != found.Tsc.FrequencyHz {
		t.Errorf("%v, then %v", found, again)
	}
}

// A vCPU's own leaf of the vendor is the processor's.
func TestVendorAgreesWithCPUID(t *testing.T) {
	want, err := device.CPUIDReader(sysfs.Roots{})(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	leaf := leafOf(t, discoverReal(t), 0)
	if leaf.Ebx != want.EBX || leaf.Ecx != want.ECX || leaf.Edx != want.EDX {
		t.Errorf("%v, and the processor says %#x", leaf, want)
	}
}

func leafOf(t *testing.T, found *capabilitiesv1.HypervisorCapabilities, function uint32) *capabilitiesv1.CpuidLeaf {
	t.Helper()
	for _, l := range found.Cpuid {
		if l.Function == function && l.Index == 0 {
			return l
		}
	}
	t.Fatalf("no leaf %#x", function)
	return nil
}

// What KVM supports is what QEMU's host model has, of those features that QEMU neither adds nor takes away.
func TestCPUIDAgreesWithQEMU(t *testing.T) {
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skip(err)
	}
	found := discoverReal(t)
	props := hostModel(t, qemu, KVM{}.Check(t.Context()).CPUQuirks)
	compared := 0
	for _, f := range []struct {
		name     string
		function uint32
		word     func(*capabilitiesv1.CpuidLeaf) uint32
		bit      uint
	}{
		{"sse2", 1, (*capabilitiesv1.CpuidLeaf).GetEdx, 26}, {"pclmulqdq", 1, (*capabilitiesv1.CpuidLeaf).GetEcx, 1},
		{"ssse3", 1, (*capabilitiesv1.CpuidLeaf).GetEcx, 9}, {"fma", 1, (*capabilitiesv1.CpuidLeaf).GetEcx, 12},
		{"pcid", 1, (*capabilitiesv1.CpuidLeaf).GetEcx, 17}, {"aes", 1, (*capabilitiesv1.CpuidLeaf).GetEcx, 25},
		{"avx", 1, (*capabilitiesv1.CpuidLeaf).GetEcx, 28}, {"rdrand", 1, (*capabilitiesv1.CpuidLeaf).GetEcx, 30},
		{"bmi1", 7, (*capabilitiesv1.CpuidLeaf).GetEbx, 3}, {"hle", 7, (*capabilitiesv1.CpuidLeaf).GetEbx, 4},
		{"avx2", 7, (*capabilitiesv1.CpuidLeaf).GetEbx, 5}, {"rtm", 7, (*capabilitiesv1.CpuidLeaf).GetEbx, 11},
		{"avx512f", 7, (*capabilitiesv1.CpuidLeaf).GetEbx, 16}, {"rdseed", 7, (*capabilitiesv1.CpuidLeaf).GetEbx, 18},
		{"sha-ni", 7, (*capabilitiesv1.CpuidLeaf).GetEbx, 29}, {"umip", 7, (*capabilitiesv1.CpuidLeaf).GetEcx, 2},
		{"gfni", 7, (*capabilitiesv1.CpuidLeaf).GetEcx, 8}, {"fsrm", 7, (*capabilitiesv1.CpuidLeaf).GetEdx, 4},
		{"nx", 0x80000001, (*capabilitiesv1.CpuidLeaf).GetEdx, 20}, {"pdpe1gb", 0x80000001, (*capabilitiesv1.CpuidLeaf).GetEdx, 26},
		{"sse4a", 0x80000001, (*capabilitiesv1.CpuidLeaf).GetEcx, 6}, {"tbm", 0x80000001, (*capabilitiesv1.CpuidLeaf).GetEcx, 21},
	} {
		want, told := props[f.name].(bool)
		if !told {
			t.Errorf("QEMU doesn't say whether the host model has %s", f.name)
			continue
		}
		if got := f.word(leafOf(t, found, f.function))>>f.bit&1 == 1; got != want {
			t.Errorf("%s: KVM says %v, QEMU's host model %v", f.name, got, want)
		}
		compared++
	}
	t.Logf("%d features agree", compared)
}

// hostModel is QEMU's host model under KVM, with each feature.
func hostModel(t *testing.T, qemu string, quirks []string) map[string]any {
	t.Helper()
	out, err := askQEMU(t, qemu, strings.Join(append([]string{"host"}, quirks...), ","),
		`{"execute":"query-cpu-model-expansion","arguments":{"type":"full","model":{"name":"host"}},"id":"host"}`)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for line := range strings.Lines(out) {
		var answer struct {
			ID     string
			Return struct {
				Model struct{ Props map[string]any }
			}
		}
		if json.Unmarshal([]byte(line), &answer) == nil && answer.ID == "host" {
			return answer.Return.Model.Props
		}
	}
	t.Fatalf("no answer: %s", out)
	return nil
}

// The header of this machine's KVM and the requests here agree where the kernel could tell: a request of the wrong size is one
// that it doesn't know.
func TestRealRefusesWrongSize(t *testing.T) {
	kvm, fail := device.Open(KVM{}.Device(), func() string { return "" })
	if fail != nil {
		t.Skip(fail)
	}
	defer unix.Close(kvm)
	_, err := device.System{}.Fill(kvm, kvmGetSupportedCPUID+1<<16, newCPUIDBuffer(256))
	if err == nil {
		t.Error("a request of another size was taken")
	}
	if _, err := (device.System{}).Fill(kvm, kvmGetSupportedCPUID, newCPUIDBuffer(1)); err != unix.E2BIG {
		t.Errorf("room for one leaf: %v, want E2BIG", err)
	}
	if _, err := (device.System{}).Fill(kvm, kvmGetMSRIndexList, newMSRBuffer(1)); err != unix.E2BIG {
		t.Errorf("room for one MSR: %v, want E2BIG", err)
	}
}
