package standard_test

import (
	"strings"
	"testing"

	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/standard"
)

// TestRenewable: which VMMs can be renewed under a guest, and what of a VM keeps one from it.
func TestRenewable(t *testing.T) {
	for name, c := range map[string]struct {
		vmm  string
		vm   *specv1.VirtualMachineSpec
		want string // the first fault; empty: it can be
	}{
		"plain":             {spec.VMMQEMU, new(specv1.VirtualMachineSpec), ""},
		"cloud-hypervisor":  {spec.VMMCloudHypervisor, new(specv1.VirtualMachineSpec), "vmm: cloud-hypervisor can't"},
		"a host's device":   {spec.VMMQEMU, &specv1.VirtualMachineSpec{HostDevices: []*specv1.HostDevice{{}}}, "hostDevices: "},
		"a socket's device": {spec.VMMQEMU, &specv1.VirtualMachineSpec{Devices: &specv1.Devices{Vsock: new(specv1.Vsock)}}, "devices.vsock: "},
		"forwarded ports": {spec.VMMQEMU, &specv1.VirtualMachineSpec{Networks: []*specv1.NetworkInterface{{
			Backend: &specv1.NetworkInterface_User{User: &specv1.UserNetwork{Ports: []*specv1.PortForward{{}}}},
		}}}, "networks[0].user.ports: "},
		"a TPM": {spec.VMMQEMU, &specv1.VirtualMachineSpec{Devices: &specv1.Devices{Tpm: new(specv1.TPM)}}, "devices.tpm: "},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range standard.Registry().All() {
				if v.Name() != c.vmm {
					continue
				}
				faults := vmm.Renewable(v, c.vm)
				if (c.want == "") != (len(faults) == 0) || c.want != "" && !strings.HasPrefix(faults.Error(), c.want) {
					t.Errorf("%v, want %q", faults, c.want)
				}
			}
		})
	}
}
