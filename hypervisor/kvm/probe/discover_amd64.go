package probe

import (
	"fmt"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"golang.org/x/sys/unix"
	"slices"
)

// askProcessor asks for what only x86 has.
func (d *discovery) askProcessor() {
	var err error
	if d.found.Cpuid, err = d.cpuid(d.kvm, "KVM_GET_SUPPORTED_CPUID", kvmGetSupportedCPUID); err != nil {
		d.missing(factCPUID, err)
	}
	msrs, err := d.msrList("KVM_GET_MSR_INDEX_LIST", kvmGetMSRIndexList)
	if err != nil {
		d.missing(factMSRs, err)
		d.missing(factHyperV, err)
	} else {
		d.found.Msrs = msrs
		d.found.HypervFeatures = d.hypervFeatures()
	}
	if d.extension(capGetMSRFeatures) > 0 {
		if d.found.FeatureMsrs, err = d.msrList("KVM_GET_MSR_FEATURE_INDEX_LIST", kvmGetMSRFeatureList); err != nil {
			d.missing(factFeatureMSRs, err)
		}
	}
	d.processorOfVCPU()
}

// processorOfVCPU asks for what may need a vCPU, also where none can be made.
func (d *discovery) processorOfVCPU() {
	vcpu, err := d.createVCPU()
	if err == nil {
		defer unix.Close(vcpu)
	}
	d.tsc(vcpu, err)
	d.hypervCPUID(vcpu, err)
}

func (d *discovery) createVCPU() (int, error) {
	if d.vm < 0 {
		return -1, d.noVM
	}
	vcpu, err := d.kernel.Call(d.vm, kvmCreateVCPU, 0)
	if err != nil {
		return -1, d.failed("KVM_CREATE_VCPU", err)
	}
	return vcpu, nil
}

// hypervCPUID asks for the CPUID leaves with which KVM looks like Hyper-V: /dev/kvm where it tells, as a vCPU's depend on the
// others that it was given.
func (d *discovery) hypervCPUID(vcpu int, noVCPU error) {
	fd := d.kvm
	if d.extension(capSysHyperVCPUID) == 0 {
		if d.extension(capHyperVCPUID) == 0 {
			return
		}
		if noVCPU != nil {
			d.missing(factHyperVCPUID, noVCPU)
			return
		}
		fd = vcpu
	}
	leaves, err := d.cpuid(fd, "KVM_GET_SUPPORTED_HV_CPUID", kvmGetSupportedHVCPUID)
	if err != nil {
		d.missing(factHyperVCPUID, err)
	}
	d.found.HypervCpuid = leaves
}

// hypervFeatures are KubeVirt's names of Hyper-V enlightenments: each stands for an extension of KVM or for a synthetic MSR
// (Hyper-V TLFS, "Synthetic MSRs") that KVM lists. Sorted.
func (d *discovery) hypervFeatures() []string {
	var features []string
	for feature, extension := range map[string]int{
		"base": capHyperV, "time": capHyperVTime, "vpindex": capHyperVVPIndex, "tlbflush": capHyperVTLBFlush,
		"ipi": capHyperVSendIPI, "synic": capHyperVSynIC, "synic2": capHyperVSynIC2,
	} {
		if d.extension(extension) > 0 {
			features = append(features, feature)
		}
	}
	for feature, msr := range map[string]uint32{
		"reset":           0x40000003, // HV_X64_MSR_RESET
		"runtime":         0x40000010, // HV_X64_MSR_VP_RUNTIME
		"frequencies":     0x40000022, // HV_X64_MSR_TSC_FREQUENCY
		"synictimer":      0x400000B0, // HV_X64_MSR_STIMER0_CONFIG
		"reenlightenment": 0x40000106, // HV_X64_MSR_REENLIGHTENMENT_CONTROL
	} {
		if slices.Contains(d.found.Msrs, msr) {
			features = append(features, feature)
		}
	}
	slices.Sort(features)
	return features
}

// cpuid asks for a list of CPUID leaves, with more room until it fits.
func (d *discovery) cpuid(fd int, name string, request uintptr) ([]*capabilitiesv1.CpuidLeaf, error) {
	for room := 64; room <= maxListed; room *= 2 {
		buf := newCPUIDBuffer(room)
		_, err := d.kernel.Fill(fd, request, buf)
		switch {
		case err == unix.E2BIG:
			continue
		case err != nil:
			return nil, d.failed(name, err)
		}
		leaves, err := parseCPUID(buf)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", d.device, name, err)
		}
		return withoutPlace(leaves), nil
	}
	return nil, fmt.Errorf("%s: %s has more than %d leaves", d.device, name, maxListed)
}

// msrList asks for a list of MSRs, with more room until it fits.
func (d *discovery) msrList(name string, request uintptr) ([]uint32, error) {
	for room := 256; room <= maxListed; room *= 2 {
		buf := newMSRBuffer(room)
		_, err := d.kernel.Fill(d.kvm, request, buf)
		switch {
		case err == unix.E2BIG:
			continue
		case err != nil:
			return nil, d.failed(name, err)
		}
		msrs, err := parseMSRs(buf)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", d.device, name, err)
		}
		return msrs, nil
	}
	return nil, fmt.Errorf("%s: %s has more than %d MSRs", d.device, name, maxListed)
}

// tsc asks for the frequency of a new vCPU's TSC, which is the host's own. Where KVM doesn't tell, the kernel's file or the
// processor may.
func (d *discovery) tsc(vcpu int, noVCPU error) {
	d.found.Tsc = &capabilitiesv1.TscInfo{Scalable: d.extension(capTSCControl) > 0}
	hz, err := d.tscOf(vcpu, noVCPU)
	if err != nil {
		if hz = tscOfHost(d.roots); hz == 0 {
			d.missing(factTSC, err)
		}
	}
	d.found.Tsc.FrequencyHz = hz
}

func (d *discovery) tscOf(vcpu int, noVCPU error) (uint64, error) {
	if noVCPU != nil {
		return 0, noVCPU
	}
	if d.extension(capGetTSCKHz) == 0 {
		return 0, fmt.Errorf("%s has no KVM_CAP_GET_TSC_KHZ", d.device)
	}
	khz, err := d.kernel.Call(vcpu, kvmGetTSCKHz, 0)
	if err != nil {
		return 0, d.failed("KVM_GET_TSC_KHZ", err)
	}
	if khz <= 0 {
		return 0, fmt.Errorf("%s: KVM_GET_TSC_KHZ answers %d", d.device, khz)
	}
	return uint64(khz) * 1000, nil
}
