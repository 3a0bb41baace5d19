package probe

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/vmlet/vmlet/hypervisor/device"
)

func FuzzParseCPUID(f *testing.F) {
	f.Add(newCPUIDBuffer(2))
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, buf []byte) {
		leaves, err := parseCPUID(buf)
		if err == nil && (len(leaves) != int(binary.NativeEndian.Uint32(buf)) || len(leaves)*cpuidEntry > len(buf)) {
			t.Errorf("%d leaves of %d bytes", len(leaves), len(buf))
		}
	})
}

func FuzzParseMSRs(f *testing.F) {
	f.Add(newMSRBuffer(2))
	f.Add([]byte{1, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 0x40, 1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, buf []byte) {
		msrs, err := parseMSRs(buf)
		if err == nil && (len(msrs) != int(binary.NativeEndian.Uint32(buf)) || len(msrs)*4 > len(buf)) {
			t.Errorf("%d MSRs of %d bytes", len(msrs), len(buf))
		}
	})
}

func TestTSCOfCPUID(t *testing.T) {
	type leaves map[uint32]device.CPUIDLeaf
	for name, tt := range map[string]struct {
		leaves leaves
		hz     uint64
	}{
		"crystal":          {leaves{0: {EAX: 0x16}, 0x15: {EAX: 2, EBX: 200, ECX: 24_000_000}}, 2_400_000_000},
		"largest":          {leaves{0: {EAX: 0x16}, 0x15: {EAX: 1, EBX: 1<<32 - 1, ECX: 1<<32 - 1}}, (1<<32 - 1) * (1<<32 - 1)},
		"no crystal clock": {leaves{0: {EAX: 0x16}, 0x15: {EAX: 2, EBX: 200}}, 0},
		"no such leaf":     {leaves{0: {EAX: 0xD}, 0x15: {EAX: 2, EBX: 200, ECX: 24_000_000}}, 0},
		"hypervisor":       {leaves{0: {EAX: 0xD}, 0x40000000: {EAX: 0x40000010}, 0x40000010: {EAX: 2_600_000}}, 2_600_000_000},
		"no hypervisor":    {leaves{0: {EAX: 0xD}, 0x40000000: {EAX: 0x7FFFFFFF}, 0x40000010: {EAX: 2_600_000}}, 0},
		"another one":      {leaves{0: {EAX: 0xD}, 0x40000000: {EAX: 0x40000001}, 0x40000010: {EAX: 2_600_000}}, 0},
	} {
		read := func(function, _ uint32) (device.CPUIDLeaf, error) { return tt.leaves[function], nil }
		if hz := tscOfCPUID(read); hz != tt.hz {
			t.Errorf("%s: %d Hz, want %d", name, hz, tt.hz)
		}
	}
	if hz := tscOfCPUID(func(uint32, uint32) (device.CPUIDLeaf, error) { return device.CPUIDLeaf{}, errors.New("none") }); hz != 0 {
		t.Errorf("%d Hz without CPUID", hz)
	}
}
