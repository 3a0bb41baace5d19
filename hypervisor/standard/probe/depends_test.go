package probe_test

import (
	"path"
	"testing"

	hypervisors "github.com/vmlet/vmlet/hypervisor/standard/probe"
	"github.com/vmlet/vmlet/sysfs"
)

// TestDependsOn: answers of a hypervisor with a device are asked again when that is another,
// and the patterns of its modules are such.
func TestDependsOn(t *testing.T) {
	roots := sysfs.Roots{Dev: "/made-up"}
	for _, h := range hypervisors.Hypervisors(roots).All() {
		depends := h.DependsOn()
		if len(depends.Devices) == 0 {
			if h.Device() != "" {
				t.Errorf("%s depends on no device, and needs %s", h.Name(), h.Device())
			}
			continue
		}
		if got := roots.DevPath(depends.Devices[0].Path); got != h.Device() {
			t.Errorf("%s depends on %s first, want its own %s", h.Name(), got, h.Device())
		}
		for _, d := range depends.Devices {
			if d.Name == "" || d.Remedy == "" {
				t.Errorf("%s: %+v lacks a name or a remedy", h.Name(), d)
			}
		}
		for _, pattern := range depends.Modules {
			if _, err := path.Match(pattern, ""); err != nil {
				t.Errorf("%s: %q: %v", h.Name(), pattern, err)
			}
		}
	}
}
