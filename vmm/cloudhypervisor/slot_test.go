package cloudhypervisor

import (
	"strings"
	"testing"
)

// TestSlotsRefused: they are QEMU's, and would be passed over.
func TestSlotsRefused(t *testing.T) {
	for yaml, field := range map[string]string{
		"disks: [{path: /a, slot: 0}]\n":   "disks[0].slot",
		"networks: [{tap: {}, slot: 1}]\n": "networks[0].slot",
	} {
		r := planCase{yaml: "boot: {kernel: {path: /boot/vmlinuz}}\n" + yaml}.request(t)
		if _, err := planVM(r); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v, want a fault in %s", yaml, err, field)
		}
	}
}
