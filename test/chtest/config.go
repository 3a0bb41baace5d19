package chtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// config is what the stand-in looks at in a VM's configuration. The whole is the
// tree that it is decoded from.
type config struct {
	Cpus struct {
		Boot     uint64    `json:"boot_vcpus"`
		Max      uint64    `json:"max_vcpus"`
		Topology *topology `json:"topology"`
	} `json:"cpus"`
	Memory  memoryConfig `json:"memory"`
	Payload struct {
		Firmware  string `json:"firmware"`
		Kernel    string `json:"kernel"`
		Initramfs string `json:"initramfs"`
	} `json:"payload"`
	Disks []diskConfig `json:"disks"`
	Net   []netConfig  `json:"net"`
	Rng   struct {
		pciConfig
		Src string `json:"src"`
	} `json:"rng"`
	Balloon *struct {
		pciConfig
		Size uint64 `json:"size"`
	} `json:"balloon"`
	Console struct {
		pciConfig
		Mode string `json:"mode"`
	} `json:"console"`
	Devices []deviceConfig `json:"devices"`
	Vsock   *vsockConfig   `json:"vsock"`
	Numa    []struct {
		ID          uint64   `json:"guest_numa_id"`
		MemoryZones []string `json:"memory_zones"`
		PciSegments []uint64 `json:"pci_segments"`
	} `json:"numa"`
	Watchdog bool `json:"watchdog"`
	Platform *struct {
		Segments uint64 `json:"num_pci_segments"`
	} `json:"platform"`
	Tpm *struct {
		Socket string `json:"socket"`
	} `json:"tpm"`
	Landlock bool `json:"landlock_enable"`
	Rules    []struct {
		Path   string `json:"path"`
		Access string `json:"access"`
	} `json:"landlock_rules"`
}

type topology struct {
	Threads  uint64 `json:"threads_per_core"`
	Cores    uint64 `json:"cores_per_die"`
	Dies     uint64 `json:"dies_per_package"`
	Packages uint64 `json:"packages"`
}

type memoryConfig struct {
	zoneConfig
	Zones []zoneConfig `json:"zones"`
}

type zoneConfig struct {
	ID           string  `json:"id"`
	Size         uint64  `json:"size"`
	File         string  `json:"file"`
	Shared       bool    `json:"shared"`
	Mergeable    bool    `json:"mergeable"`
	Hugepages    bool    `json:"hugepages"`
	HugepageSize *uint64 `json:"hugepage_size"`
	HostNode     *uint64 `json:"host_numa_node"`
	Hotplug      *uint64 `json:"hotplug_size"`
}

type pciConfig struct {
	ID       string  `json:"id"`
	Iommu    bool    `json:"iommu"`
	Segment  uint64  `json:"pci_segment"`
	DeviceID *uint64 `json:"pci_device_id"`
}

type diskConfig struct {
	pciConfig
	Path            string `json:"path"`
	Readonly        bool   `json:"readonly"`
	Queues          uint64 `json:"num_queues"`
	QueueSize       uint64 `json:"queue_size"`
	Serial          string `json:"serial"`
	ImageType       string `json:"image_type"`
	LockGranularity string `json:"lock_granularity"`
}

type netConfig struct {
	pciConfig
	Tap       string  `json:"tap"`
	MTU       *uint64 `json:"mtu"`
	Queues    uint64  `json:"num_queues"`
	QueueSize uint64  `json:"queue_size"`
	Fds       []int   `json:"fds"`
	TSO       bool    `json:"offload_tso"`
	UFO       bool    `json:"offload_ufo"`
	Csum      bool    `json:"offload_csum"`
}

type deviceConfig struct {
	pciConfig
	Path string `json:"path"`
}

type vsockConfig struct {
	pciConfig
	CID    uint64 `json:"cid"`
	Socket string `json:"socket"`
}

// look decodes a tree that was checked.
func look(t tree) (*config, error) {
	var c config
	return &c, convert(t, &c)
}

// convert copies between trees and structures.
func convert(from, to any) error {
	data, err := json.Marshal(from)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("%T: %w", to, err)
	}
	return nil
}

// clone copies a tree, as deep as it goes.
func clone(value any) any {
	switch v := value.(type) {
	case tree:
		out := maps.Clone(v)
		for name := range out {
			out[name] = clone(out[name])
		}
		return out
	case []any:
		out := slices.Clone(v)
		for i := range out {
			out[i] = clone(out[i])
		}
		return out
	}
	return value
}

// deviceLists are the fields of a configuration whose devices have ids, and how
// one is called that has none (vmm/src/device_manager.rs). They come in the order
// in which a boot makes them.
func deviceLists() []deviceList {
	return []deviceList{{"disks", "_disk"}, {"net", "_net"}, {"vsock", "_vsock"}, {"devices", "_vfio"}}
}

type deviceList struct{ field, prefix string }

// items are the devices of one field, which for vsock is one alone.
func items(t tree, name string) []tree {
	var out []tree
	switch v := t[name].(type) {
	case tree:
		out = append(out, v)
	case []any:
		for _, item := range v {
			if device, ok := item.(tree); ok {
				out = append(out, device)
			}
		}
	}
	return out
}

// addItem puts a device into a configuration.
func addItem(t tree, name string, device tree) {
	if name == "vsock" {
		t[name] = device
		return
	}
	old, _ := t[name].([]any)
	t[name] = append(slices.Clip(old), device)
}

// removeItem takes the devices of an id out, and tells whether there were any.
func removeItem(t tree, id string) bool {
	removed := false
	for _, l := range deviceLists() {
		switch v := t[l.field].(type) {
		case tree:
			if v["id"] == id {
				delete(t, l.field)
				removed = true
			}
		case []any:
			left := slices.DeleteFunc(slices.Clone(v), func(item any) bool {
				device, ok := item.(tree)
				return ok && device["id"] == id
			})
			removed = removed || len(left) != len(v)
			t[l.field] = left
		}
	}
	return removed
}

// boot is the VM's memory in bytes.
func (m *memoryConfig) boot() uint64 {
	size := m.Size
	for _, z := range m.Zones {
		size += z.Size
	}
	return size
}
