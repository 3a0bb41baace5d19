package chtest

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strings"
)

// validate is what a boot and every device that is added checks, and vm.create
// does not (VmConfig::validate in vmm/src/config.rs).
func (c *config) validate() error {
	ids := idSet{}
	return firstOf(
		c.checkPayload, func() error { return c.checkPCI(c.Console.pciConfig) }, c.checkCPUs,
		func() error { return c.checkDisks(ids) },
		func() error { return c.checkNets(ids) },
		func() error { return c.checkOthers(ids) },
		c.checkMemory, c.checkNuma,
		func() error {
			for _, z := range c.Memory.Zones {
				if err := ids.add(z.ID); err != nil {
					return err
				}
			}
			return nil
		},
		c.checkPlatform,
	)
}

func firstOf(checks ...func() error) error {
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// idSet is of names that devices, zones and groups share.
type idSet map[string]bool

func (s idSet) add(id string) error {
	switch {
	case id == "":
		return nil
	case strings.HasPrefix(id, "__"):
		return fmt.Errorf("id %q: two underscores are the VMM's own", id)
	case s[id]:
		return fmt.Errorf("id %q is taken", id)
	}
	s[id] = true
	return nil
}

func (c *config) checkPayload() error {
	switch p := c.Payload; {
	case p.Firmware == "" && p.Kernel == "":
		return errors.New("nothing to boot: neither firmware nor kernel")
	case p.Firmware != "" && p.Kernel != "":
		return errors.New("firmware and kernel: only one of them can be booted")
	}
	return nil
}

func (c *config) checkCPUs() error {
	const most = 8192 // on x86-64
	switch cpus := c.Cpus; {
	case cpus.Max < cpus.Boot:
		return fmt.Errorf("max_vcpus %d is less than boot_vcpus %d", cpus.Max, cpus.Boot)
	case cpus.Max > most:
		return fmt.Errorf("max_vcpus %d: at most %d", cpus.Max, most)
	case cpus.Boot == 0:
		return errors.New("boot_vcpus is 0")
	}
	t := c.Cpus.Topology
	switch {
	case t == nil:
	case t.vcpus() == 0:
		return errors.New("topology: no part may be 0")
	case t.Threads > 2:
		return errors.New("topology: at most 2 threads a core")
	case t.vcpus() != uint64(c.Cpus.Max):
		return fmt.Errorf("topology: the product is not max_vcpus %d", c.Cpus.Max)
	}
	return nil
}

func (c *config) checkPCI(p pciConfig) error {
	segments := uint16(1)
	if c.Platform != nil {
		segments = c.Platform.Segments
	}
	switch {
	case p.Segment >= segments:
		return fmt.Errorf("there is no PCI segment %d", p.Segment)
	case p.DeviceID != nil && (*p.DeviceID == 0 || *p.DeviceID >= 32):
		return fmt.Errorf("PCI device id %d: want 1 to 31", *p.DeviceID)
	}
	return nil
}

func (c *config) checkQueues(queues uint64, size uint16) error {
	if queues > uint64(c.Cpus.Boot) {
		return fmt.Errorf("%d queues for %d vCPUs are too many", queues, c.Cpus.Boot)
	}
	if bits.OnesCount16(size) != 1 {
		return fmt.Errorf("queue size %d is no power of two", size)
	}
	return nil
}

func (c *config) checkDisks(ids idSet) error {
	for _, d := range c.Disks {
		switch {
		case d.QueueSize <= 2:
			return fmt.Errorf("queue size %d of a disk is too small", d.QueueSize)
		case len(d.Serial) > 20: // VIRTIO_BLK_ID_BYTES
			return fmt.Errorf("serial %q is longer than 20 bytes", d.Serial)
		}
		if err := firstOf(func() error { return c.checkPCI(d.pciConfig) }, func() error { return c.checkQueues(d.Queues, d.QueueSize) },
			func() error { return ids.add(d.ID) }); err != nil {
			return err
		}
	}
	return nil
}

func (c *config) checkNets(ids idSet) error {
	for _, n := range c.Net {
		switch {
		case n.Queues < 2:
			return fmt.Errorf("%d queues of a network device: at least 2", n.Queues)
		case n.Fds != nil && uint64(len(n.Fds))*2 != n.Queues:
			return fmt.Errorf("%d descriptors for %d queues: want one for two", len(n.Fds), n.Queues)
		case n.MTU != nil && *n.MTU < 1280:
			return fmt.Errorf("MTU %d is too small", *n.MTU)
		case !n.Csum && (n.TSO || n.UFO):
			return errors.New("segmentation can't be offloaded without checksums")
		}
		for _, fd := range n.Fds {
			if fd <= 2 {
				return fmt.Errorf("descriptor %d is not for a network device", fd)
			}
		}
		if err := firstOf(func() error { return c.checkPCI(n.pciConfig) }, func() error { return c.checkQueues(n.Queues/2, n.QueueSize) },
			func() error { return ids.add(n.ID) }); err != nil {
			return err
		}
	}
	return nil
}

func (c *config) checkOthers(ids idSet) error {
	var common []pciConfig
	paths := map[string]bool{}
	for _, d := range c.Devices {
		if d.Path == "" || paths[d.Path] {
			return fmt.Errorf("path %q of a device: want one, and each once", d.Path)
		}
		paths[d.Path] = true
		common = append(common, d.pciConfig)
	}
	common = append(common, c.Rng.pciConfig, pciConfig{ID: c.Console.ID})
	if c.Vsock != nil {
		if cid := c.Vsock.CID; cid <= 2 || cid == 1<<32-1 {
			return fmt.Errorf("CID %d has a meaning of its own", cid)
		}
		common = append(common, c.Vsock.pciConfig)
	}
	if c.Balloon != nil {
		if c.Balloon.Size >= c.Memory.boot() {
			return fmt.Errorf("a balloon of %d bytes in memory of %d", c.Balloon.Size, c.Memory.boot())
		}
		common = append(common, c.Balloon.pciConfig)
	}
	for _, p := range common {
		if err := firstOf(func() error { return c.checkPCI(p) }, func() error { return ids.add(p.ID) }); err != nil {
			return err
		}
	}
	return nil
}

func (c *config) checkMemory() error {
	if size := c.Memory.HugepageSize; size != nil && (!c.Memory.Hugepages || bits.OnesCount64(*size) != 1) {
		return fmt.Errorf("huge pages of %d bytes: want hugepages, and a power of two", *size)
	}
	for _, z := range append(slices.Clip(c.Memory.Zones), zoneConfig{ramConfig: c.Memory.ramConfig}) {
		if z.Shared && z.Mergeable {
			return errors.New("shared memory can't be mergeable")
		}
	}
	return nil
}

func (c *config) checkNuma() error {
	zones, segments := map[string]bool{}, map[uint16]bool{}
	for _, n := range c.Numa {
		for _, zone := range n.MemoryZones {
			if zones[zone] {
				return fmt.Errorf("memory zone %q is in two NUMA nodes", zone)
			}
			zones[zone] = true
		}
		for _, s := range n.PciSegments {
			if err := c.checkPCI(pciConfig{Segment: s, Iommu: true}); err != nil {
				return err
			}
			if segments[s] || s == 0 && n.ID != 0 {
				return fmt.Errorf("PCI segment %d can't be in NUMA node %d", s, n.ID)
			}
			segments[s] = true
		}
	}
	return nil
}

func (c *config) checkPlatform() error {
	if p := c.Platform; p != nil {
		if p.Segments == 0 || p.Segments > 96 {
			return fmt.Errorf("%d PCI segments: want 1 to 96", p.Segments)
		}
	}
	for _, r := range c.Rules {
		if _, err := os.Stat(r.Path); err != nil {
			return causedBy(err, "Landlock rule for %s", r.Path)
		}
		if err := checkAccess(r.Access); err != nil {
			return err
		}
	}
	return nil
}
