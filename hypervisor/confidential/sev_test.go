package confidential

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/hypervisor/device"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/sysfs"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

var sevFlags = []string{"sev", "sev_es", "sev_snp", "svm"}

func amd(flags []string, m modules, misc map[string]uint64) *sysfs.Host {
	return &sysfs.Host{
		Processor:      sysfs.Processor{Vendor: "AuthenticAMD", Flags: flags},
		Virtualization: sysfs.Virtualization{Modules: m, Misc: misc},
	}
}

// psp is a made-up /dev/sev, as strict as the kernel's: sev_ioctl of drivers/crypto/ccp/sev-dev.c.
type psp struct {
	status [12]byte
	errno  error
	code   uint32
}

func (p psp) Call(int, uintptr, uintptr) (int, error) { return -1, unix.EINVAL }

func (p psp) Fill(_ int, request uintptr, buf []byte, links ...device.Link) (int, error) {
	switch {
	case errors.Is(p.errno, unix.ENODEV):
		return -1, p.errno
	case request != 0xC0105300:
		return -1, unix.EINVAL
	case len(buf) < 16:
		return -1, unix.EFAULT
	case binary.NativeEndian.Uint32(buf) != 1: // SEV_PLATFORM_STATUS; others would change something
		return -1, unix.EINVAL
	case p.errno != nil:
		binary.NativeEndian.PutUint32(buf[12:], p.code)
		return -1, p.errno
	case len(links) != 1 || links[0].Offset != 4 || len(links[0].Buf) < len(p.status):
		return -1, unix.EFAULT
	}
	copy(links[0].Buf, p.status[:])
	return 0, nil
}

// leaves are CPUID's of an EPYC 7xx3: 509 ids, 99 of them for ES and SNP, the C-bit at 51, 5 bits less.
func leaves(function, _ uint32) (device.CPUIDLeaf, error) {
	switch function {
	case 0x80000000:
		return device.CPUIDLeaf{EAX: 0x80000023}, nil
	case 0x8000001F:
		return device.CPUIDLeaf{EAX: 1<<0 | 1<<1 | 1<<3 | 1<<4, EBX: 51 | 5<<6, ECX: 509, EDX: 100}, nil
	}
	return device.CPUIDLeaf{}, nil
}

// withDevice makes a /dev/sev of the null device.
func withDevice(t *testing.T) sysfs.Roots {
	t.Helper()
	dev := t.TempDir()
	if err := os.Symlink("/dev/null", filepath.Join(dev, "sev")); err != nil {
		t.Fatal(err)
	}
	return sysfs.Roots{Dev: dev}
}

func healthy() psp {
	return psp{status: [12]byte{1, 55, 2, 1, 0, 0, 0, 24, 3, 0, 0, 0}}
}

func allOn() modules {
	return modules{"kvm_amd": {"sev": "Y", "sev_es": "1", "sev_snp": "Y"}}
}

func TestSEVOn(t *testing.T) {
	platform := &capabilitiesv1.SevPlatform{
		ApiMajor: 1, ApiMinor: 55, Build: 24, State: "working", GuestCount: 3,
		MaxGuests: 410, MaxEsGuests: 99, CbitPosition: 51, ReducedPhysicalBits: 5,
	}
	fewer := proto.CloneOf(platform)
	fewer.MaxGuests, fewer.MaxEsGuests = 400, 98
	for name, tt := range map[string]struct {
		misc map[string]uint64
		want *capabilitiesv1.SevPlatform
	}{
		"by CPUID":           {nil, platform},
		"by the misc cgroup": {map[string]uint64{"sev": 400, "sev_es": 98}, fewer},
	} {
		t.Run(name, func(t *testing.T) {
			a := &asker{kernel: healthy(), cpuid: leaves, roots: withDevice(t), host: amd(sevFlags, allOn(), tt.misc)}
			out, unknown := discover(t.Context(), a, "amd64")
			for _, f := range []*capabilitiesv1.ConfidentialFeature{out.Sev, out.SevEs, out.SevSnp} {
				check(t, f, true, nil)
			}
			if !proto.Equal(out.SevPlatform, tt.want) || len(unknown) != 0 {
				t.Errorf("%v, %v, want %v", out.SevPlatform, unknown, tt.want)
			}
		})
	}
}

// Without CPUID the rest is still told, and what is missing is said.
func TestSEVWithoutCPUID(t *testing.T) {
	none := func(uint32, uint32) (device.CPUIDLeaf, error) { return device.CPUIDLeaf{}, errors.New("no cpuid here") }
	a := &asker{kernel: healthy(), cpuid: none, roots: withDevice(t), host: amd(sevFlags, allOn(), map[string]uint64{"sev": 5, "sev_es": 4})}
	out, unknown := discover(t.Context(), a, "amd64")
	if p := out.SevPlatform; !out.Sev.Supported || p.GetMaxGuests() != 5 || p.GetMaxEsGuests() != 4 || p.GetCbitPosition() != 0 {
		t.Errorf("%v", out)
	}
	if len(unknown) != 1 || unknown[0].Fact != "confidentialComputing.sevPlatform" || !strings.Contains(unknown[0].Reason, "no cpuid here") {
		t.Errorf("%v", unknown)
	}
}

func TestSEVOff(t *testing.T) {
	none := []string{}
	guest := amd([]string{"svm", "hypervisor"}, allOn(), nil)
	guest.Virtualization.Guest = true
	only := func(on string) modules {
		m := allOn()
		for k := range m["kvm_amd"] {
			if k != on {
				m["kvm_amd"][k] = "N"
			}
		}
		return m
	}
	tests := []struct {
		name string
		host *sysfs.Host
		// What each says; nil: it is supported; empty: it says nothing.
		sev, es, snp []string
	}{
		{"parameters", amd(sevFlags, modules{"kvm_amd": {"sev": "N", "sev_es": "0", "sev_snp": "N"}}, nil),
			[]string{"the processor has SEV (flag sev)", `parameter sev is "N"`, "boot with kvm_amd.sev=1"},
			[]string{"the processor has SEV-ES (flag sev_es)", "kvm_amd.sev_es=1"},
			[]string{"the processor has SEV-SNP (flag sev_snp)", "kvm_amd.sev_snp=1"}},
		{"SEV alone", amd(sevFlags, only("sev"), nil), nil, []string{"kvm_amd.sev_es=1"}, []string{"kvm_amd.sev_snp=1"}},
		{"no module", amd(sevFlags, nil, nil),
			[]string{"modprobe kvm_amd sev=1"}, []string{"modprobe kvm_amd sev_es=1"}, []string{"modprobe kvm_amd sev_snp=1"}},
		{"old kernel", amd([]string{"sev"}, modules{"kvm_amd": {"sev": "Y"}}, nil), nil,
			[]string{"no flag sev_es", "enable SMEE and SEV-ES in firmware"}, []string{"no flag sev_snp"}},
		{"kernel without it", amd(sevFlags, modules{"kvm_amd": {"sev": "Y"}}, nil), nil,
			[]string{"no parameter sev_es"}, []string{"no parameter sev_snp"}},
		{"all ids for ES", amd(sevFlags, allOn(), map[string]uint64{"sev_es": 509}), []string{"no ids", "in firmware"}, nil, nil},
		{"no ids for ES", amd(sevFlags, allOn(), map[string]uint64{"sev": 509}), nil, []string{"raise the minimum SEV ASID"}, []string{"no ids"}},
		{"firmware", amd(none, allOn(), nil), []string{"no flag sev in"}, []string{"no flag sev_es"}, []string{"no flag sev_snp"}},
		{"in a guest", guest, none, none, none},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, unknown := discover(t.Context(), &asker{kernel: healthy(), cpuid: leaves, roots: withDevice(t), host: tt.host}, "amd64")
			check(t, out.Sev, tt.sev == nil, tt.sev)
			check(t, out.SevEs, tt.es == nil, tt.es)
			check(t, out.SevSnp, tt.snp == nil, tt.snp)
			if len(unknown) != 0 {
				t.Error(unknown)
			}
		})
	}
}

// The firmware's device can be had in several ways badly. Only what hangs on this process or this moment leaves the features
// unknown.
func TestSEVDevice(t *testing.T) {
	file := func(t *testing.T) sysfs.Roots {
		dev := t.TempDir()
		if err := os.WriteFile(filepath.Join(dev, "sev"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return sysfs.Roots{Dev: dev}
	}
	tests := []struct {
		name    string
		roots   func(t *testing.T) sysfs.Roots
		psp     psp
		unknown bool
		says    []string
	}{
		{"none", func(t *testing.T) sysfs.Roots { return sysfs.Roots{Dev: t.TempDir()} }, healthy(), false,
			[]string{"is on and", "(ENOENT)", "modprobe ccp", "container"}},
		{"a file", file, healthy(), false, []string{"not a character device"}},
		{"no firmware", withDevice, psp{errno: unix.ENODEV}, false, []string{"SEV_PLATFORM_STATUS", "(ENODEV)", "dmesg"}},
		{"firmware fails", withDevice, psp{errno: unix.EIO, code: 0x19}, false, []string{"(EIO)", "the firmware says 0x19"}},
		{"not called", withDevice, psp{errno: unix.EBUSY, code: 0xFFFFFFFF}, true, []string{"(EBUSY)", "try again"}},
		{"forbidden", withDevice, psp{errno: unix.EPERM}, true, []string{"(EPERM)"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, unknown := discover(t.Context(), &asker{kernel: tt.psp, cpuid: leaves, roots: tt.roots(t), host: amd(sevFlags, allOn(), nil)}, "amd64")
			for _, f := range []*capabilitiesv1.ConfidentialFeature{out.Sev, out.SevEs, out.SevSnp} {
				check(t, f, false, tt.says)
			}
			if out.SevPlatform != nil || (len(unknown) == 3) != tt.unknown || !tt.unknown && len(unknown) > 0 {
				t.Errorf("%v, %v", out.SevPlatform, unknown)
			}
			if strings.Contains(out.Sev.Reason, "0xffffffff") {
				t.Errorf("%q: a firmware that wasn't called says nothing", out.Sev.Reason)
			}
		})
	}
}

func TestGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	hang := func(uint32, uint32) (device.CPUIDLeaf, error) { cancel(); <-release; return device.CPUIDLeaf{}, nil }
	out, unknown := discover(ctx, &asker{kernel: healthy(), cpuid: hang, roots: withDevice(t), host: amd(sevFlags, allOn(), nil)}, "amd64")
	if len(unknown) != 1 || unknown[0].Fact != "confidentialComputing" || out.Sev == nil || out.Sev.Supported {
		t.Errorf("%v, %v", out, unknown)
	}
}

// FuzzStatus: whatever the firmware answers.
func FuzzStatus(f *testing.F) {
	h := healthy()
	f.Add(h.status[:], uint32(51), uint32(509), uint32(100))
	f.Add([]byte{}, uint32(0), uint32(0), uint32(1<<31))
	f.Fuzz(func(t *testing.T, b []byte, ebx, ecx, edx uint32) {
		p, fail := parseStatus(b)
		if (fail == nil) != (len(b) == statusSize) || (p == nil) != (fail != nil) {
			t.Fatalf("%d bytes: %v, %v", len(b), p, fail)
		}
		if p == nil {
			return
		}
		if p.State == "" || p.ApiMajor != uint32(b[0]) || p.Build != uint32(b[7]) {
			t.Errorf("%v of %v", p, b)
		}
		a := &asker{host: amd(nil, nil, nil)}
		a.describe(p, device.CPUIDLeaf{EBX: ebx, ECX: ecx, EDX: edx}, nil)
		if p.CbitPosition > 63 || uint64(p.MaxGuests)+uint64(p.MaxEsGuests) > uint64(ecx) {
			t.Errorf("%v of %d ids", p, ecx)
		}
	})
}
