package podvm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/podnet"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

// TestVhost: a device that the container was given is opened for each queue that can use it,
// after all that was made, and before cloud-init's seed.
func TestVhost(t *testing.T) {
	device := filepath.Join(t.TempDir(), "vhost-net")
	if err := os.WriteFile(device, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := &specv1.VirtualMachineSpec{
		Networks:  []*specv1.NetworkInterface{{}, {Model: "virtio"}, {Model: "e1000"}, {}},
		CloudInit: &specv1.CloudInit{},
	}
	given := map[string]bool{contract.ResourceVhostNet: true}
	for name, test := range map[string]struct {
		allocated map[string]bool
		device    string
		vhost     []int
		files     int
		err       string
	}{
		"given":     {given, device, []int{9, -1, -1, 10}, 13, ""},
		"not given": {nil, device, nil, 9, ""},
		"gone":      {given, device + "-none", []int{9, -1, -1, -1}, 9, "devices.kubevirt.io/vhost-net"},
	} {
		g := guestNetworks{
			places: []int{0, 2, 3},
			made:   podnet.Made{Networks: []podnet.Attached{{Taps: 1}, {Taps: 2}, {Taps: 3}}},
			files:  make([]*os.File, 9),
		}
		err := g.openVhost(s, test.allocated, test.device)
		if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
			t.Errorf("%s: error %v, want %q", name, err, test.err)
		}
		if !slices.Equal(g.vhost, test.vhost) {
			t.Errorf("%s: descriptors %v, want %v", name, g.vhost, test.vhost)
		}
		if _, seed := g.number(s); len(g.files) != test.files || seed != test.files {
			t.Errorf("%s: %d files, the seed is %d: want both %d", name, len(g.files), seed, test.files)
		}
	}
}
