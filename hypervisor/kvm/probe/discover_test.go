package probe

import (
	"context"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/sysfs"
	"golang.org/x/sys/unix"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Numbers are part of the kernel's interface: the ones that something hangs on must be those of their names.
func TestExtensionNames(t *testing.T) {
	names := extensionNames()
	for number, want := range map[int]string{
		capNRVCPUs: "NR_VCPUS", capNRMemslots: "NR_MEMSLOTS", capHyperV: "HYPERV", capTSCControl: "TSC_CONTROL", capGetTSCKHz: "GET_TSC_KHZ",
		capMaxVCPUs: "MAX_VCPUS", capHyperVTime: "HYPERV_TIME", capCheckExtensionVM: "CHECK_EXTENSION_VM", capHyperVSynIC: "HYPERV_SYNIC",
		capMaxVCPUID: "MAX_VCPU_ID", capHyperVSynIC2: "HYPERV_SYNIC2", capHyperVVPIndex: "HYPERV_VP_INDEX",
		capGetMSRFeatures: "GET_MSR_FEATURES", capHyperVTLBFlush: "HYPERV_TLBFLUSH", capPPCNestedHV: "PPC_NESTED_HV",
		capHyperVSendIPI: "HYPERV_SEND_IPI", capHyperVCPUID: "HYPERV_CPUID", capSysHyperVCPUID: "SYS_HYPERV_CPUID", capARMEL2: "ARM_EL2",
	} {
		if names[number] != want {
			t.Errorf("%d is %s, want %s", number, names[number], want)
		}
	}
	seen := map[string]bool{}
	for _, name := range names {
		if name != "" && (seen[name] || strings.HasPrefix(name, extensionPrefix)) {
			t.Errorf("%s is listed twice, or with its prefix", name)
		}
		seen[name] = true
	}
}

func TestExtensionNamesOfHeader(t *testing.T) {
	header, err := os.ReadFile("/usr/include/linux/kvm.h")
	if err != nil {
		t.Skip(err)
	}
	names := extensionNames()
	for line := range strings.Lines(string(header)) {
		f := strings.Fields(line)
		if len(f) < 3 || f[0] != "#define" || !strings.HasPrefix(f[1], extensionPrefix) {
			continue
		}
		number := slices.Index(names, strings.TrimPrefix(f[1], extensionPrefix))
		if want := f[2]; number < 0 || want != strconv.Itoa(number) {
			t.Errorf("%s is %d, and %s in the header", f[1], number, want)
		}
	}
}

// Without the device nothing is unknown; with what is none, or another one, all is.
func TestDiscoverDevice(t *testing.T) {
	for name, tt := range map[string]struct {
		make func(path string) error
		says string
	}{
		"none":    {func(string) error { return nil }, ""},
		"file":    {func(path string) error { return os.WriteFile(path, nil, 0o600) }, "not a character device"},
		"pipe":    {func(path string) error { return unix.Mkfifo(path, 0o600) }, "not a character device"},
		"another": {func(path string) error { return os.Symlink("/dev/null", path) }, "KVM_GET_API_VERSION: inappropriate ioctl for device (ENOTTY)"},
	} {
		t.Run(name, func(t *testing.T) {
			roots := sysfs.Roots{Sys: t.TempDir(), Dev: t.TempDir(), Proc: t.TempDir()}
			if err := tt.make(roots.DevPath("kvm")); err != nil {
				t.Fatal(err)
			}
			var found capabilitiesv1.HypervisorCapabilities
			unknown := KVM{Roots: roots}.Discover(t.Context(), &found)
			if tt.says == "" && len(unknown) == 0 {
				return
			}
			if len(unknown) != 1 || unknown[0].Fact != "hypervisors.kvm" || !strings.Contains(unknown[0].Reason, tt.says) {
				t.Errorf("unknown: %v", unknown)
			}
		})
	}
}

// Given up at once, it leaves the caller's document alone.
func TestDiscoverGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	found := capabilitiesv1.HypervisorCapabilities{Name: "kvm"}
	if unknown := (KVM{}).Discover(ctx, &found); len(unknown) > 0 && found.Extensions != nil {
		t.Errorf("%v, and extensions", unknown)
	}
	if found.Name != "kvm" {
		t.Errorf("the name is now %q", found.Name)
	}
}
