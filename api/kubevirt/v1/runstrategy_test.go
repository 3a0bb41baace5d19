package v1

import "testing"

// TestRunStrategyOf: the old field counts where the new one is unset.
func TestRunStrategyOf(t *testing.T) {
	for name, c := range map[string]struct {
		spec VirtualMachineSpec
		want RunStrategy
	}{
		"named":       {VirtualMachineSpec{RunStrategy: new(RunStrategyManual)}, RunStrategyManual},
		"both":        {VirtualMachineSpec{RunStrategy: new(RunStrategyManual), Running: new(true)}, RunStrategyManual},
		"running":     {VirtualMachineSpec{Running: new(true)}, RunStrategyAlways},
		"not running": {VirtualMachineSpec{Running: new(false)}, RunStrategyHalted},
		"neither":     {VirtualMachineSpec{}, RunStrategyHalted},
	} {
		if got := RunStrategyOf(&c.spec); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
