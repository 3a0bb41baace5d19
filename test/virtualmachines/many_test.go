package virtualmachines_test

import (
	"fmt"
	"testing"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

const (
	batches   = 2
	batchSize = 25
)

// testMany makes VMs of all kinds and deletes them, each in another state: nothing of them is
// left.
func (v *installed) testMany(t *testing.T) {
	for batch := range batches {
		var names []string
		for i := range batchSize {
			name := fmt.Sprintf("many-%d-%d", batch, i)
			names = append(names, name)
			v.create(t, v.anyMachine(t, name, i))
			if i%5 == 1 {
				v.remove(t, machine(t, name, "", idle)) // while its pod is made
			}
		}
		for i, name := range names {
			if i%5 == 0 {
				v.phase(t, name, kubevirtv1.PhaseRunning)
			}
		}
		v.nothingLeft(t)
	}
}

// anyMachine is one of five kinds.
func (v *installed) anyMachine(t *testing.T, name string, i int) *kubevirtv1.VirtualMachine {
	t.Helper()
	switch i % 5 {
	case 2:
		return machine(t, name, kubevirtv1.RunStrategyOnce, brief)
	case 3:
		return machine(t, name, kubevirtv1.RunStrategyHalted, idle)
	case 4:
		return machine(t, name, kubevirtv1.RunStrategyAlways, broken)
	}
	return machine(t, name, kubevirtv1.RunStrategyAlways, idle)
}
