package chapi

// VMM is what the VMM says of itself.
type VMM struct {
	// Version is as in "53.0.0"; BuildVersion is as in "v53.0.0", and may have a
	// commit behind it.
	Version      string `json:"version"`
	BuildVersion string `json:"build_version"`
	// PID is the process's own idea of it, in its PID namespace.
	PID int64 `json:"pid"`
	// Features are those it was built with: "kvm", "mshv", "io_uring", "tdx" and so on.
	Features []string `json:"features"`
	Extra    Extra    `json:"-"`
}

// State is a VM's. Other states are from a newer VMM.
type State string

// The states.
const (
	StateCreated    State = "Created"  // configured and not booted, or shut down since
	StateRunning    State = "Running"  // its vCPUs run
	StateShutdown   State = "Shutdown" // on the way out
	StatePaused     State = "Paused"
	StateBreakPoint State = "BreakPoint" // stopped by a debugger
)

// Info is what the VMM says of the VM.
type Info struct {
	State  State    `json:"state"`
	Config VMConfig `json:"config"`
	// MemoryActual is the RAM that the guest has, in bytes: without what the
	// balloon took, with what was added.
	MemoryActual uint64 `json:"memory_actual_size"`
	// Devices are those of a VM that has been booted, by id. Bridges and the parts
	// of devices are among them.
	Devices map[string]DeviceNode `json:"device_tree,omitempty"`
	Extra   Extra                 `json:"-"`
}

// Address returns a device's PCI address in the guest, such as "0000:00:06.0", or an
// empty string. A virtio device's is that of its parent in the tree.
func (i Info) Address(id string) string {
	node := i.Devices[id]
	if node.Address == "" {
		return i.Devices[node.Parent].Address
	}
	return node.Address
}

// DeviceNode is a device's place in the tree of devices. A virtio device has a node
// for itself and one above it for its place on PCI.
type DeviceNode struct {
	ID       string   `json:"id"`
	Parent   string   `json:"parent,omitempty"`
	Children []string `json:"children,omitempty"`
	// Address is the PCI address of this node, see [Info.Address].
	Address string `json:"pci_bdf,omitempty"`
	Extra   Extra  `json:"-"`
}
