package deviceplugin

import (
	"fmt"
	"slices"
	"sync"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// snapshot is the devices of one moment. It is not changed once it is made.
type snapshot struct {
	devices []Device
	byID    map[string]*Device
	// message is what the plugin tells the kubelet of them.
	message *api.ListAndWatchResponse
}

func newSnapshot(devices []Device) *snapshot {
	s := &snapshot{devices: devices, byID: make(map[string]*Device, len(devices)), message: &api.ListAndWatchResponse{}}
	for i := range devices {
		d := &devices[i]
		s.byID[d.ID] = d
		told := &api.Device{ID: d.ID, Health: api.Healthy}
		if d.Obstacle != "" {
			told.Health = api.Unhealthy
		}
		if len(d.NUMANodes) > 0 {
			told.Topology = &api.TopologyInfo{}
		}
		for _, n := range d.NUMANodes {
			told.Topology.Nodes = append(told.Topology.Nodes, &api.NUMANode{ID: int64(n)})
		}
		s.message.Devices = append(s.message.Devices, told)
	}
	return s
}

// state is the newest snapshot. Anyone who changes it never waits for those who
// read: they see the newest one, and maybe not all that were before.
type state struct {
	mu  sync.Mutex
	now *snapshot
	// changed is closed once there is news for the kubelet.
	changed chan struct{}
}

func newState() *state { return &state{now: newSnapshot(nil), changed: make(chan struct{})} }

func (s *state) get() (now *snapshot, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now, s.changed
}

// set takes the devices over. False: they are as they were.
func (s *state) set(devices []Device) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.EqualFunc(s.now.devices, devices, Device.equal) {
		return false
	}
	told := slices.EqualFunc(s.now.devices, devices, Device.looksLike)
	s.now = newSnapshot(devices)
	if !told {
		close(s.changed)
		s.changed = make(chan struct{})
	}
	return true
}

// sound returns the devices without those that the kubelet would refuse or mix
// up, and what is wrong with them. A kind that is right has none.
func sound(devices []Device) (good []Device, faults []string) {
	known := make(map[string]bool, len(devices))
	for _, d := range devices {
		switch {
		case d.ID == "" || len(d.ID) > MaxID:
			faults = append(faults, fmt.Sprintf("the id %.80q has %d bytes: 1 to %d are allowed", d.ID, len(d.ID), MaxID))
		case known[d.ID]:
			faults = append(faults, fmt.Sprintf("there are two devices with the id %q", d.ID))
		case d.Grant == nil:
			faults = append(faults, fmt.Sprintf("the device %q gives nothing", d.ID))
		default:
			known[d.ID] = true
			good = append(good, d)
		}
	}
	return good, faults
}
