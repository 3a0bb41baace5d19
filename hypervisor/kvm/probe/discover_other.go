//go:build !amd64

package probe

// askProcessor has nothing to ask: CPUID, MSRs, Hyper-V features and the TSC are x86's.
func (d *discovery) askProcessor() {}
