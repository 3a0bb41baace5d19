package spec

import (
	"crypto/sha256"
	"fmt"
	"net"
	"slices"
	"strings"

	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// finalise fills in what depends on other fields.
func finalise(s *specv1.VirtualMachineSpec, target Target) {
	choose(&s.Hypervisor, target.Hypervisor)
	choose(&s.Vmm, target.VMM)
	if s.Devices == nil {
		s.Devices = new(specv1.Devices)
	}
	if s.Devices.Balloon == nil {
		// Pages of a balloon are 4 KiB: it gives nothing back from huge ones.
		// Nor does it from what a device of the host may reach at any time.
		s.Devices.Balloon = proto.Bool(s.GetMemory().GetHugePages() == nil && len(s.HostDevices) == 0)
	}
	if w := s.Devices.Watchdog; w != nil {
		set(&w.Model, target.Defaults.Watchdog)
		set(&w.Action, "reset")
	}
	for _, feature := range s.GetCpu().GetFeatures() {
		set(&feature.Policy, PolicyRequire)
	}
	if tpm := s.Devices.Tpm; tpm != nil {
		set(&tpm.Model, target.Defaults.TPM)
	}
	for _, node := range s.GetNuma().GetNodes() {
		if node.HostNodes != "" {
			set(&node.Policy, MemoryStrict)
		}
	}
	finaliseHyperV(s)
	finaliseGraphics(s, target.Arch)
	finaliseDisks(s, target.Defaults)
	finaliseNetworks(s.Networks, target)
	finaliseSlots(s)
	taken := make(map[string]bool)
	for _, d := range s.HostDevices {
		taken[d.Name] = true
	}
	for i, d := range s.HostDevices {
		setName(&d.Name, "host", i, taken)
	}
}

// finaliseGraphics is for inputs and the display. There are none unless asked for.
func finaliseGraphics(s *specv1.VirtualMachineSpec, arch string) {
	taken := make(map[string]bool)
	for _, input := range s.Devices.Inputs {
		taken[input.Name] = true
	}
	for i, input := range s.Devices.Inputs {
		setName(&input.Name, "input", i, taken)
		set(&input.Type, InputTablet)
		set(&input.Bus, BusUSB)
	}
	if v := s.Devices.Video; v != nil {
		switch {
		case arch == ArchARM64:
			set(&v.Type, VideoVirtio)
		case s.GetBoot().GetFirmware() == FirmwareUEFI:
			set(&v.Type, VideoBochs)
		default:
			set(&v.Type, VideoVGA)
		}
	}
}

func finaliseDisks(s *specv1.VirtualMachineSpec, defaults VMMDefaults) {
	taken := make(map[string]bool)
	ordered := s.GetBoot().GetKernel() != nil || slices.ContainsFunc(s.Networks, func(n *specv1.NetworkInterface) bool { return n.BootOrder != 0 })
	for _, d := range s.Disks {
		taken[d.Name] = true
		ordered = ordered || d.BootOrder != 0
	}
	for i, d := range s.Disks {
		setName(&d.Name, "disk", i, taken)
		fill(d.ProtoReflect(), defaults.Disk.ProtoReflect())
		setStandards(d.ProtoReflect(), diskChoices())
		if d.Type == DiskTypeCDROM {
			set(&d.Bus, defaults.CDROMBus)
			d.ReadOnly = true
		} else {
			set(&d.Bus, BusVirtio)
		}
		for _, b := range d.BackingFiles {
			set(&b.Format, FormatRaw)
		}
		if !ordered {
			// No boot order is set: firmware tries them in the order listed.
			d.BootOrder = uint32(i + 1)
		}
	}
}

func finaliseNetworks(networks []*specv1.NetworkInterface, target Target) {
	taken, macs := make(map[string]bool), make(map[string]bool)
	for _, n := range networks {
		taken[n.Name] = true
		macs[strings.ToLower(n.Mac)] = true
	}
	for i, n := range networks {
		setName(&n.Name, "net", i, taken)
		set(&n.Model, NetVirtio)
		if n.Mac == "" {
			n.Mac = freeMAC(target.ID, i, macs)
		}
		if n.Backend == nil && target.Defaults.UserNetwork {
			n.Backend = &specv1.NetworkInterface_User{User: new(specv1.UserNetwork)}
		}
		finaliseForwards(n.GetUser())
		finalisePodNetwork(n.GetPod())
	}
}

func finaliseForwards(u *specv1.UserNetwork) {
	for _, p := range u.GetPorts() {
		set(&p.Protocol, ProtocolTCP)
		set(&p.HostAddress, "127.0.0.1")
	}
}

func finalisePodNetwork(p *specv1.PodNetwork) {
	if p == nil {
		return
	}
	set(&p.Binding, BindingMasquerade)
	set(&p.Interface, DefaultPodInterface)
	p.Queues = max(p.Queues, 1)
	if p.Binding == BindingMasquerade {
		set(&p.Cidr, DefaultPodCIDR)
		set(&p.Ipv6Cidr, DefaultPodIPv6CIDR)
	}
	for _, r := range p.Ports {
		set(&r.Protocol, ProtocolTCP)
		if r.Last == 0 {
			r.Last = r.First
		}
	}
	finaliseForwards(p.Fallback)
}

// MAC returns the default address of the interface with this index of the VM
// with this id: under 52:54:00, the prefix that QEMU's and libvirt's
// guests have, which is locally administered.
func MAC(id string, index int) string { return freeMAC(id, index, make(map[string]bool)) }

func freeMAC(id string, index int, taken map[string]bool) string {
	for attempt := 0; ; attempt++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d/%d", id, index, attempt))
		mac := net.HardwareAddr{0x52, 0x54, 0x00, sum[0], sum[1], sum[2]}.String()
		if !taken[mac] {
			taken[mac] = true
			return mac
		}
	}
}

// setName names the element with this index, around what users have named so.
func setName(name *string, prefix string, index int, taken map[string]bool) {
	if *name != "" {
		return
	}
	candidate := fmt.Sprintf("%s%d", prefix, index)
	for n := 1; taken[candidate]; n++ {
		candidate = fmt.Sprintf("%s%d-%d", prefix, index, n)
	}
	taken[candidate] = true
	*name = candidate
}

func set(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

// setStandards sets those of a message's choices that have a default.
func setStandards(m protoreflect.Message, all []choice) {
	for _, c := range all {
		if f := c.of(m); c.standard != "" && !m.Has(f) {
			m.Set(f, protoreflect.ValueOfString(c.standard))
		}
	}
}

func choose(field *string, value string) {
	if *field == "" || *field == Auto {
		if value != "" {
			*field = value
		}
	}
}
