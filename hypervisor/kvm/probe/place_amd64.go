package probe

import capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"

// withoutPlace takes out of CPUID leaves which of the host's CPUs answered: KVM passes on the APIC id of the one that it was asked
// on, which is another one each time and nothing that a guest gets (Intel SDM volume 2, CPUID; AMD APM volume 3, appendix E).
func withoutPlace(leaves []*capabilitiesv1.CpuidLeaf) []*capabilitiesv1.CpuidLeaf {
	for _, l := range leaves {
		switch l.Function {
		case 1:
			l.Ebx &^= 0xFF << 24 // initial APIC id
		case 0xB, 0x1F:
			l.Edx = 0 // x2APIC id
		case 0x8000001E:
			l.Eax, l.Ebx, l.Ecx = 0, l.Ebx&^0xFF, l.Ecx&^0xFF // extended APIC id, core id, node id
		}
	}
	return leaves
}
