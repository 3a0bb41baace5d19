// Package wire has what the planner of cloud-hypervisor's VMs, the shim's driver and the
// agent's monitor must agree on: what is sent to the VMM about one VM over its API
// (plan.Plan.Instructions), the names of sockets, and the events that the driver passes
// on.
package wire

import (
	"encoding/json"
	"strings"

	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

// VsockSocket is the name of a socket that the VMM makes in its own folder. It leads
// to the guest's vsock ports, see chapi.Vsock.
const VsockSocket = "vsock.sock"

// APISocket is the name, in the VM's run folder, of the socket that the VMM serves
// its API on. The agent and the shim both connect to it.
const APISocket = "ch.sock"

// FolderName is the name of the VMM's own folder in the VM's state folder.
const FolderName = "vmm"

// Name is the VMM's in specifications, plans and images.
const Name = "cloud-hypervisor"

// DiskPrefix begins the ids of a specification's disks; their index follows.
const DiskPrefix = "disk"

// VM is one VM. One that boots is created with Config (vm.create), given what is in
// Add, in that order (vm.add-net), and booted (vm.boot). One that is restored is
// restored from a snapshot whose config.json is what Restored returns, with the taps
// of Add.
type VM struct {
	Config chapi.VMConfig `json:"config"`
	// Add is plugged in between vm.create, with which no file can go, and vm.boot.
	Add []AddNet `json:"add,omitempty"`
	// Devices of the host are plugged in likewise (vm.add-device): for one in
	// vm.create v53 wants a Landlock rule for a node of /dev/vfio by the name of the
	// device, not of its group, and there is none.
	Devices []chapi.Device `json:"devices,omitempty"`
	// Folder is the VMM's own folder as the VMM reaches it: "/proc/self/fd/3".
	Folder string `json:"folder"`
}

// AddNet is a network interface that goes with its tap.
type AddNet struct {
	Net chapi.Net `json:"net"`
	// Tap is the number of the first descriptor among those sent with the plan; there is
	// one for each pair of queues. The VMM doesn't inherit them: the tap would stay in use
	// when the interface is removed.
	Tap int `json:"tap"`
}

// Taps is how many descriptors the interface's tap has.
func (a *AddNet) Taps() int { return max(a.Net.NumQueues/2, 1) }

// Restored is Config as a snapshot's config.json has to have it for vm.restore: with
// the interfaces of Add. Each says that its tap comes as files.
func (v *VM) Restored() chapi.VMConfig {
	config := v.Config
	config.Nets = make([]chapi.Net, len(v.Add))
	for i, add := range v.Add {
		config.Nets[i] = add.Net
		// The numbers mean nothing to the VMM, how many there are does.
		fds := "[" + strings.Repeat("-1,", add.Taps()-1) + "-1]"
		config.Nets[i].Extra = chapi.Extra{"fds": json.RawMessage(fds)}
	}
	return config
}
