package chtest

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// device is one that the guest sees.
type device struct {
	id     string
	config deviceConfig // nil: it is the VMM's own
	bdf    string
	slot   [2]int // segment and device number
	disk   *disk
	end    func()
	// ejecting is one that was removed, and that the guest has not let go of.
	ejecting bool
}

// pciBus is a VM's devices.
type pciBus struct {
	devices map[string]*device
	slots   map[[2]int]bool
	names   int // given to devices without one
}

func newBus() *pciBus {
	return &pciBus{devices: map[string]*device{}, slots: map[[2]int]bool{}}
}

// add makes a device of a configuration's, and gives it an id if it has none.
func (v *vm) add(c deviceConfig) (*device, error) {
	p := c.pci()
	if strings.HasPrefix(p.ID, "__") || v.bus.devices[p.ID] != nil {
		return nil, fmt.Errorf("id %q is taken, or the VMM's own", p.ID)
	}
	id := p.ID
	for ; id == "" || p.ID == "" && (v.bus.devices[id] != nil || v.named(id)); v.bus.names++ {
		id = fmt.Sprintf("%s%d", prefix(c), v.bus.names)
	}
	d := &device{id: id, config: c, end: func() {}}
	if err := v.prepare(d); err != nil {
		return nil, err
	}
	if err := v.bus.plug(d, *p); err != nil {
		d.end()
		return nil, err
	}
	p.ID = id
	return d, nil
}

// named reports whether the configuration has something of that id.
func (v *vm) named(id string) bool {
	return slices.ContainsFunc(v.vmm.config.devices(), func(d deviceConfig) bool { return d.pci().ID == id })
}

// plug gives a device its place.
func (b *pciBus) plug(d *device, p pciConfig) error {
	d.slot = [2]int{int(p.Segment), 1}
	if p.DeviceID != nil {
		d.slot[1] = int(*p.DeviceID)
		if b.slots[d.slot] {
			return fmt.Errorf("PCI device %d is taken", *p.DeviceID)
		}
	}
	for b.slots[d.slot] {
		d.slot[1]++
	}
	if d.slot[1] > 31 {
		return errors.New("there is no place left on the PCI bus")
	}
	b.slots[d.slot], b.devices[d.id] = true, d
	d.bdf = fmt.Sprintf("%04x:00:%02x.0", d.slot[0], d.slot[1])
	return nil
}

func (b *pciBus) unplug(d *device) {
	delete(b.slots, d.slot)
	delete(b.devices, d.id)
	d.end()
}

// prepare does what the device needs of the host.
func (v *vm) prepare(d *device) error {
	switch c := d.config.(type) {
	case *diskConfig:
		return v.startDisk(d, c)
	case *netConfig:
		return v.startNet(c)
	case *vsockConfig:
		return v.startVsock(d, c)
	case *vfioConfig:
		if err := v.vmm.fence.allows(c.Path, "r"); err != nil {
			return err
		}
		_, err := os.Stat(c.Path)
		return err
	}
	return nil
}

// reach connects to another program's socket.
func (v *vm) reach(path string) error {
	if err := v.vmm.fence.allows(path, "rw"); err != nil {
		return err
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

func (v *vm) startNet(c *netConfig) error {
	switch {
	case c.Tap == "" && len(c.Fds) > 0:
		for _, fd := range c.Fds {
			if err := v.vmm.checkTap(fd); err != nil {
				return err
			}
		}
		return nil
	case len(c.Tap) >= unix.IFNAMSIZ:
		return fmt.Errorf("tap %q: the name is too long", c.Tap)
	}
	file, err := v.vmm.fence.open("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return causedBy(err, "opening tap %q", c.Tap)
	}
	return file.Close()
}

// checkTap wants a descriptor that came with a request, and is a tap.
func (m *VMM) checkTap(fd int) error {
	file := m.descriptors[fd]
	switch {
	case file == nil:
		return fmt.Errorf("descriptor %d is not open", fd)
	case m.knobs().AnyTap:
		return nil
	}
	// An interface's name and flags: struct ifreq.
	request := make([]byte, 40)
	if err := ioctlBytes(int(file.Fd()), unix.TUNGETIFF, request); err != nil {
		return causedBy(err, "descriptor %d is no tap", fd)
	}
	return nil
}

// startVsock listens for connections to the guest, which takes none.
func (v *vm) startVsock(d *device, c *vsockConfig) error {
	if v.vsock {
		return errors.New("there is a vsock device already")
	}
	if err := v.vmm.fence.allows(filepath.Dir(c.Socket), "w"); err != nil {
		return err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.Socket, Net: "unix"})
	if err != nil {
		return err
	}
	listener.SetUnlinkOnClose(false)
	v.vsock = true
	d.end = func() {
		listener.Close()
		v.vmm.fence.remove(c.Socket)
		v.vsock = false
	}
	return nil
}

// tree is the devices' part of vm.info.
func (b *pciBus) tree() map[string]any {
	out := map[string]any{}
	for id, d := range b.devices {
		node := map[string]any{"id": id, "resources": []any{}, "children": []string{}}
		if _, host := d.config.(*vfioConfig); host {
			node["pci_bdf"] = d.bdf
		} else {
			parent := "_virtio-pci-" + id
			node["parent"] = parent
			out[parent] = map[string]any{"id": parent, "resources": []any{}, "children": []string{id}, "pci_bdf": d.bdf}
		}
		out[id] = node
	}
	return out
}

// counters are those of disks and networks. A latency is the largest number that
// there is until something was read or written, which is more than an int64 has.
func (b *pciBus) counters() map[string]map[string]uint64 {
	out := map[string]map[string]uint64{}
	for id, d := range b.devices {
		switch d.config.(type) {
		case *diskConfig:
			out[id] = map[string]uint64{"read_bytes": 0, "write_bytes": 0, "read_ops": 0, "write_ops": 0}
			for _, name := range []string{"read", "write"} {
				for _, kind := range []string{"min", "max", "avg"} {
					out[id][name+"_latency_"+kind] = math.MaxUint64
				}
			}
		case *netConfig:
			out[id] = map[string]uint64{"rx_bytes": 0, "tx_bytes": 0, "rx_frames": 0, "tx_frames": 0}
		}
	}
	return out
}

// addOwn makes the devices that a boot makes of other parts of the configuration: they
// can't be removed.
func (v *vm) addOwn(c *config) error {
	var balloon pciConfig
	if c.Balloon != nil {
		balloon = c.Balloon.pciConfig
	}
	random, err := v.vmm.fence.open(c.Rng.Src, os.O_RDONLY, 0)
	if err != nil {
		return causedBy(err, "rng")
	}
	random.Close()
	own := []struct {
		wanted bool
		id     string
		pci    pciConfig
	}{
		{c.Console.Mode != "Off", "__console", c.Console.pciConfig}, {true, "__rng", c.Rng.pciConfig},
		{c.Balloon != nil, "__balloon", balloon}, {c.Watchdog, "__watchdog", pciConfig{}},
	}
	for _, o := range own {
		if !o.wanted {
			continue
		}
		if o.pci.ID != "" {
			o.id = o.pci.ID
		}
		if err := v.bus.plug(&device{id: o.id, end: func() {}}, o.pci); err != nil {
			return err
		}
	}
	return nil
}

// end takes all devices away.
func (b *pciBus) end() {
	for d := range maps.Values(maps.Clone(b.devices)) {
		b.unplug(d)
	}
}
