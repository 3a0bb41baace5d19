package spec

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/vmlet/vmlet/contract"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/sysfs/notation"
)

// hostDevices are checked for what they are called; whether the node has them is
// for the node to say, when the VM starts.
func (v *validator) hostDevices(devices []*specv1.HostDevice) {
	if len(devices) > MaxHostDevices {
		v.add("hostDevices", "%d devices: at most %d", len(devices), MaxHostDevices)
		return
	}
	names, known := make(map[string]int), make(map[string]int)
	for i, d := range devices {
		field := fmt.Sprintf("hostDevices[%d]", i)
		v.uniqueName(field+".name", d.GetName(), i, names, "hostDevices")
		// The way that the kernel writes it is the only one taken, so that a device
		// has one name wherever names are compared.
		switch text := ""; device := d.GetDevice().(type) {
		case *specv1.HostDevice_PciAddress:
			text = device.PciAddress
			address, err := notation.ParsePCIAddress(text)
			if err != nil {
				v.add(field+".pciAddress", "%v", err)
			} else if address.String() != text {
				v.add(field+".pciAddress", "%q: write it as the kernel does: %s", text, address)
			}
			v.once(field+".pciAddress", text, i, known)
		case *specv1.HostDevice_Mdev:
			text = device.Mdev
			if id, err := uuid.Parse(text); err != nil || id.String() != text {
				v.add(field+".mdev", "%.80q is not the UUID of a mediated device: want one such as 0b2a1c1e-5f0d-4c33-9a35-1f3f8f9d7f10", text)
			}
			v.once(field+".mdev", text, i, known)
		default:
			v.add(field, "says no device: want pciAddress or mdev")
		}
	}
}

func (v *validator) once(field, text string, index int, known map[string]int) {
	if earlier, taken := known[text]; taken && text != "" {
		v.add(field, "%.80q is %s too", text, contract.FieldName(fmt.Sprintf("hostDevices[%d]", earlier)))
		return
	}
	known[text] = index
}

func (v *validator) tpm(t *specv1.TPM) {
	if t == nil {
		return
	}
	v.path("devices.tpm.socket", t.GetSocket(), "swtpm's control socket")
	if len(t.GetSocket()) > MaxSocketPath {
		v.add("devices.tpm.socket", "%d bytes: a socket's path has at most %d", len(t.GetSocket()), MaxSocketPath)
	}
	v.oneOf("devices.tpm.model", t.GetModel(), tpmModels())
}
