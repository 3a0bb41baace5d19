package device

const hasCPUID = true

func cpuid(function, index uint32) CPUIDLeaf {
	var l CPUIDLeaf
	l.EAX, l.EBX, l.ECX, l.EDX = cpuidInstruction(function, index)
	return l
}

// cpuidInstruction is the instruction, with EAX and ECX as given.
func cpuidInstruction(function, index uint32) (eax, ebx, ecx, edx uint32)
