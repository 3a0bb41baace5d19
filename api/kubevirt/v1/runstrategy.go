package v1

// RunStrategyOf returns a VM's run strategy, also where it is spelled the old way. The API server stores no VM that
// has both fields, or neither: that would be Halted.
func RunStrategyOf(spec *VirtualMachineSpec) RunStrategy {
	switch {
	case spec.RunStrategy != nil:
		return *spec.RunStrategy
	case spec.Running != nil && *spec.Running:
		return RunStrategyAlways
	}
	return RunStrategyHalted
}
