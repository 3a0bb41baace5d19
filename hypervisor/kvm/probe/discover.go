package probe

import (
	"context"
	"fmt"
	"runtime"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/device"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/proto/vmlet/capabilities/v1/fact"
	"github.com/vmlet/vmlet/sysfs"
	"golang.org/x/sys/unix"
)

// Facts by their path in the document.
const (
	factAll         = string(fact.Hypervisors) + "." + hypervisor.NameKVM
	factHyperV      = factAll + "." + string(fact.HypervFeatures)
	factHyperVCPUID = factAll + "." + string(fact.HypervCPUID)
	factTSC         = factAll + "." + string(fact.TSC)
	factCPUID       = factAll + "." + string(fact.CPUID)
	factMSRs        = factAll + "." + string(fact.MSRs)
	factFeatureMSRs = factAll + "." + string(fact.FeatureMSRs)
)

var _ hypervisor.Discoverer = KVM{}

// Discover asks /dev/kvm for its API version, extensions and limits, and on x86 for CPUID, MSRs, Hyper-V features and the TSC.
// Whether guests may have guests it says where an extension tells; elsewhere it is in the files of KVM's modules, which sysfs reads.
// Where there is no /dev/kvm there is nothing to ask for, and so nothing unknown. It makes a virtual machine and a vCPU, and runs
// nothing.
func (k KVM) Discover(ctx context.Context, into *capabilitiesv1.HypervisorCapabilities) []*capabilitiesv1.UnknownFact {
	d, err := device.Within(ctx, k.discover)
	if err != nil {
		return []*capabilitiesv1.UnknownFact{{Fact: factAll, Reason: device.NoAnswer(k.Device(), err).Error()}}
	}
	found := d.found
	into.ApiVersion, into.Limits, into.Extensions = found.ApiVersion, found.Limits, found.Extensions
	into.HypervFeatures, into.Tsc, into.Nested = found.HypervFeatures, found.Tsc, found.Nested
	into.Cpuid, into.HypervCpuid = found.Cpuid, found.HypervCpuid
	into.Msrs, into.FeatureMsrs = found.Msrs, found.FeatureMsrs
	return d.unknown
}

func (k KVM) discover(context.Context) *discovery {
	d := newDiscovery(device.System{}, k.Roots, k.Device())
	fd, fail := device.Open(k.Device(), k.absentRemedy)
	if fail != nil {
		if !device.Absent(fail.Errno) {
			d.missing(factAll, fail)
		}
		return d
	}
	defer unix.Close(fd)
	d.kvm = fd
	d.ask()
	return d
}

// discovery is one round of questions to a KVM.
type discovery struct {
	kernel device.Kernel
	roots  sysfs.Roots
	device string
	// Descriptors of /dev/kvm and of a virtual machine; vm is -1 when none could be made, for the reason in noVM.
	kvm, vm int
	noVM    error
	found   *capabilitiesv1.HypervisorCapabilities
	unknown []*capabilitiesv1.UnknownFact
}

func newDiscovery(kernel device.Kernel, roots sysfs.Roots, path string) *discovery {
	return &discovery{kernel: kernel, roots: roots, device: path, kvm: -1, vm: -1, found: &capabilitiesv1.HypervisorCapabilities{}}
}

// missing notes a fact that could not be asked for.
func (d *discovery) missing(fact string, err error) {
	d.unknown = append(d.unknown, &capabilitiesv1.UnknownFact{Fact: fact, Reason: err.Error()})
}

// failed words what the kernel answered to an ioctl.
func (d *discovery) failed(ioctl string, err error) error {
	return device.Failed(d.device+": "+ioctl, device.Errno(err), "")
}

func (d *discovery) ask() {
	version, err := d.kernel.Call(d.kvm, kvmGetAPIVersion, 0)
	if err != nil {
		d.missing(factAll, d.failed("KVM_GET_API_VERSION", err))
		return
	}
	d.found.ApiVersion = uint32(version)
	if version != kvmAPIVersion {
		d.missing(factAll, fmt.Errorf("%s speaks KVM API version %d and only %d is known", d.device, version, kvmAPIVersion))
		return
	}
	if d.vm, err = d.kernel.Call(d.kvm, kvmCreateVM, 0); err != nil {
		d.vm, d.noVM = -1, d.failed("KVM_CREATE_VM", err)
	} else {
		defer unix.Close(d.vm)
	}
	if d.extensions() {
		d.limits()
		d.nestedExtension()
		d.askProcessor()
	}
}

// extensions asks for every extension; on a virtual machine where KVM can be asked there, as some answers then differ (KVM's
// api.rst, KVM_CHECK_EXTENSION). False: KVM doesn't say, and then there is nothing to go on with.
func (d *discovery) extensions() bool {
	fd := d.kvm
	onVM, err := d.kernel.Call(d.kvm, kvmCheckExtension, capCheckExtensionVM)
	if err == nil && onVM > 0 && d.vm >= 0 {
		fd = d.vm
	}
	answers := map[string]int64{}
	for number, name := range extensionNames() {
		if name == "" {
			continue
		}
		answer, err := d.kernel.Call(fd, kvmCheckExtension, uintptr(number))
		if err != nil {
			d.missing(factAll, d.failed("KVM_CHECK_EXTENSION "+extensionPrefix+name, err))
			return false
		}
		// An answer is a C int; a set of flags may have the bit that makes it negative.
		if flags := uint32(answer); flags != 0 {
			answers[extensionPrefix+name] = int64(flags)
		}
	}
	d.found.Extensions = answers
	return true
}

// extension returns what KVM answered; 0 if it doesn't have the extension.
func (d *discovery) extension(number int) uint32 {
	return uint32(d.found.Extensions[extensionPrefix+extensionNames()[number]])
}

// limits follow from extensions, with what KVM's api.rst says of those that aren't there.
func (d *discovery) limits() {
	const minVCPUs = 4 // without KVM_CAP_NR_VCPUS
	recommended := d.extension(capNRVCPUs)
	if recommended == 0 {
		recommended = minVCPUs
	}
	most := d.extension(capMaxVCPUs)
	if most == 0 {
		most = recommended
	}
	ids := d.extension(capMaxVCPUID)
	if ids == 0 {
		ids = most
	}
	d.found.Limits = &capabilitiesv1.HypervisorLimits{
		MaxVcpus: most, RecommendedVcpus: recommended, MaxVcpuId: ids, MaxMemorySlots: d.extension(capNRMemslots),
	}
}

// nestedExtension is how KVM says that guests may have guests where its modules' parameters don't.
func (d *discovery) nestedExtension() {
	number := map[string]int{"arm64": capARMEL2, "ppc64le": capPPCNestedHV, "ppc64": capPPCNestedHV}[runtime.GOARCH]
	if number != 0 {
		d.found.Nested = new(d.extension(number) > 0)
	}
}
