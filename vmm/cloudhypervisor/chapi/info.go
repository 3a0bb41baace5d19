package chapi

// VMM is what the VMM says of itself.
type VMM struct {
	// Version is as in "v53.0"; BuildVersion may have a commit behind it.
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

// DeviceNode is a device's place in the tree of devices.
type DeviceNode struct {
	ID       string   `json:"id"`
	Parent   string   `json:"parent,omitempty"`
	Children []string `json:"children,omitempty"`
	// Address is the device's PCI address in the guest; empty for one not on PCI.
	Address string `json:"pci_bdf,omitempty"`
	Extra   Extra  `json:"-"`
}
