package confidential

import (
	"fmt"
	"syscall"

	"github.com/vmlet/vmlet/hypervisor/device"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/proto/vmlet/capabilities/v1/fact"
	"golang.org/x/sys/unix"
)

// kind is one of SEV's.
type kind struct {
	fact, name string
	// The processor's flag, kvm_amd's parameter, and the resource of the misc controller that a guest takes one of.
	flag, parameter, resource string
	// The bit of EAX of CPUID leaf 0x8000001f (AMD APM volume 3, E.4.17).
	bit uint
	// What firmware has to do so that there are ids for such guests.
	ids string
	out **capabilitiesv1.ConfidentialFeature
}

func (a *asker) kinds() []kind {
	return []kind{
		{string(fact.ConfidentialSEV), "SEV", "sev", "sev", "sev", 1,
			"lower the minimum SEV ASID (\"SEV-ES ASID space limit\")", &a.out.Sev},
		{string(fact.ConfidentialSEVES), "SEV-ES", "sev_es", "sev_es", "sev_es", 3,
			"raise the minimum SEV ASID (\"SEV-ES ASID space limit\")", &a.out.SevEs},
		{string(fact.ConfidentialSEVSNP), "SEV-SNP", "sev_snp", "sev_snp", "sev_es", 4,
			"raise the minimum SEV ASID (\"SEV-ES ASID space limit\")", &a.out.SevSnp},
	}
}

// sev finds out about all of SEV's kinds. The processor, kvm_amd and the firmware's driver must each have one.
func (a *asker) sev() {
	if v := a.host.Processor.Vendor; v != "AuthenticAMD" && v != "HygonGenuine" {
		return
	}
	leaf, leafErr := a.encryptionLeaf()
	var platform *capabilitiesv1.SevPlatform
	var noPlatform *device.Failure
	asked := false
	for _, k := range a.kinds() {
		if !a.flag(k.flag) {
			*k.out = a.withoutFlag(k, leaf)
			continue
		}
		if !asked {
			platform, noPlatform = a.platform()
			asked = true
		}
		*k.out = a.sevFeature(k, noPlatform)
	}
	if platform == nil {
		return
	}
	a.out.SevPlatform = platform
	a.describe(platform, leaf, leafErr)
}

// withoutFlag says why the kernel doesn't show a kind that the processor has. A virtual machine's processor can't tell.
func (a *asker) withoutFlag(k kind, leaf device.CPUIDLeaf) *capabilitiesv1.ConfidentialFeature {
	if leaf.EAX>>k.bit&1 == 0 || a.host.Virtualization.Guest {
		return unsupported("")
	}
	return unsupported(fmt.Sprintf("the processor has %s and the kernel doesn't use it (no flag %s in /proc/cpuinfo): "+
		"enable SMEE and %s in firmware, and boot without mem_encrypt=off", k.name, k.flag, k.name))
}

func (a *asker) sevFeature(k kind, noPlatform *device.Failure) *capabilitiesv1.ConfidentialFeature {
	if problem := a.parameter("kvm_amd", k.parameter, k.name, "flag "+k.flag); problem != "" {
		return unsupported(problem)
	}
	if n, told := a.capacity(k.resource); told && n == 0 {
		return unsupported(fmt.Sprintf("kvm_amd's parameter %s is on and there are no ids for such guests (%s in misc.capacity): %s in firmware",
			k.parameter, k.resource, k.ids))
	}
	if noPlatform == nil {
		return &capabilitiesv1.ConfidentialFeature{Supported: true}
	}
	why := "kvm_amd's parameter " + k.parameter + " is on and " + noPlatform.Sentence()
	if undecided(noPlatform.Errno) {
		a.missing(k.fact, why)
	}
	return unsupported(why)
}

// undecided reports whether the kernel's answer tells of this process or this moment rather than of the machine.
func undecided(errno syscall.Errno) bool {
	switch errno {
	case unix.EACCES, unix.EPERM, unix.EBUSY, unix.EAGAIN, unix.ETIMEDOUT, unix.ENOMEM, unix.EMFILE, unix.ENFILE:
		return true
	}
	return false
}

// platform opens /dev/sev and asks for its status; the failure is why that can't be.
func (a *asker) platform() (*capabilitiesv1.SevPlatform, *device.Failure) {
	path := a.roots.DevPath("sev")
	fd, fail := device.OpenFor(path, unix.O_RDONLY, func() string {
		return "load ccp (modprobe ccp) and look in the kernel's log (dmesg) for its firmware; in a container, pass the device in"
	})
	if fail != nil {
		return nil, fail
	}
	defer unix.Close(fd)
	return platformStatus(a.kernel, fd, path)
}

// describe adds what only CPUID and the misc controller tell.
func (a *asker) describe(p *capabilitiesv1.SevPlatform, leaf device.CPUIDLeaf, err error) {
	if err != nil {
		a.missing(factPlatform, fmt.Sprintf("C-bit and physical bits: %v", err))
	}
	p.CbitPosition, p.ReducedPhysicalBits = leaf.EBX&0x3F, leaf.EBX>>6&0x3F
	// ECX is the number of ids, EDX the first that is for SEV without ES; those below it, but 0, are ES's and SNP's.
	if leaf.EDX > 0 && leaf.ECX >= leaf.EDX-1 {
		p.MaxGuests, p.MaxEsGuests = leaf.ECX-(leaf.EDX-1), leaf.EDX-1
	}
	if plain, told := a.capacity("sev"); told {
		es, _ := a.capacity("sev_es")
		p.MaxGuests, p.MaxEsGuests = uint32(min(plain, 1<<31)), uint32(min(es, 1<<31))
	}
}

// encryptionLeaf is CPUID leaf 0x8000001f; zero where the processor has none.
func (a *asker) encryptionLeaf() (device.CPUIDLeaf, error) {
	const extended, encryption = 0x80000000, 0x8000001F
	top, err := a.cpuid(extended, 0)
	if err != nil || top.EAX < encryption {
		return device.CPUIDLeaf{}, err
	}
	return a.cpuid(encryption, 0)
}
