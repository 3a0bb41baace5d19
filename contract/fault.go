package contract

// Fault is one thing that is wrong with a VM, in parts: each program puts them together in the words of its
// own users. Errorf makes them, FaultsOf gets them out of an error.
type Fault struct {
	// Reason is a word for programs, one of contract's; mostly empty.
	Reason string `json:"reason,omitempty"`
	// Field is the field of the VM's specification that is at fault: "disks[1].serial".
	Field string `json:"field,omitempty"`
	// Object is the file, the host's device or the interface that the fault is about. Where Text names it, it
	// does so in the same letters.
	Object string `json:"object,omitempty"`
	// Text says what was found and what is wanted.
	Text string `json:"text,omitempty"`
	// UseVMM is a VMM that can do what this one can't.
	UseVMM string `json:"useVmm,omitempty"`
	// Advice is for who works on the node: a command, or a flag of vmlet's. Text does not have it.
	Advice string `json:"advice,omitempty"`
	// OtherVM is another VM that has to do with it, by its name in the node API. Text names it as "vm NAME".
	OtherVM string `json:"otherVm,omitempty"`
	// Fields are further fields of the specification, in the letters in which Text names them.
	Fields []string `json:"fields,omitempty"`
}

// Reasons of a Fault.
const (
	// FaultNoInterface: the pod has no network interface of the name Object.
	FaultNoInterface = "NoInterface"
	// FaultSaveInstead: the VM's guest can't suspend itself to disk, whatever the guest does. The VM can be saved.
	FaultSaveInstead = "SaveInstead"
	// FaultSuspendInstead: the VM can't be saved. Its guest may suspend itself to disk.
	FaultSuspendInstead = "SuspendInstead"
	// FaultPodAddress: the VM can't be saved, as its guest has its pod's address.
	FaultPodAddress = "PodAddress"
)
