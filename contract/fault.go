package contract

// Fault is one thing that is wrong with a VM, in parts: each program puts them together in the words of its
// own users.
type Fault struct {
	// Reason is a word for programs, one of contract's; mostly empty.
	Reason string `json:"reason,omitempty"`
	// Field is the field of the VM's specification that is at fault: "disks[1].serial".
	Field string `json:"field,omitempty"`
	// Object is the file or the host's device that the fault is about; Text does not name it.
	Object string `json:"object,omitempty"`
	// Text says what was found and what is wanted.
	Text string `json:"text,omitempty"`
	// UseVMM is a VMM that can do what this one can't.
	UseVMM string `json:"useVmm,omitempty"`
	// Advice is for who works on the node: a command, or a flag of vmlet's.
	Advice string `json:"advice,omitempty"`
}
