//go:build !amd64

package device

const hasCPUID = false

func cpuid(uint32, uint32) CPUIDLeaf { return CPUIDLeaf{} }
