package spec

import (
	"fmt"
	"github.com/vmlet/vmlet/contract"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"net"
	"net/netip"
	"strings"
	"unicode"
)

func (v *validator) disks(disks []*specv1.Disk) {
	if len(disks) > MaxDisks {
		v.add("disks", "%d disks: at most %d", len(disks), MaxDisks)
		return
	}
	names, slots := make(map[string]int), make(map[uint32]int)
	paths := make(map[string]int)
	for i, d := range disks {
		field := fmt.Sprintf("disks[%d]", i)
		v.uniqueName(field+".name", d.GetName(), i, names, "disks")
		v.path(field+".path", d.GetPath(), "a disk image or block device")
		if earlier, taken := paths[d.GetPath()]; !taken {
			paths[d.GetPath()] = i
		} else if d.GetPath() != "" && !(onlyRead(d) && onlyRead(disks[earlier])) {
			v.add(field+".path", "%s is that of %s too: two disks over one file destroy each other's filesystem", d.GetPath(), contract.FieldName(fmt.Sprintf("disks[%d]", earlier)))
		}
		v.choices(field, d.ProtoReflect(), diskChoices())
		if d.GetType() == DiskTypeCDROM && d.GetBus() == BusVirtio {
			v.add(field+".bus", "virtio has no CD-ROM: want sata, scsi or usb")
		}
		if cache := d.GetCache(); d.GetIo() == IONative && cache != "" && cache != CacheNone {
			v.add(field+".io", "native goes past the host's page cache, and the cache is %.40q: want cache none, or io threads", cache)
		}
		v.shareable(field, d)
		v.serial(field+".serial", d.GetSerial(), SerialRoom(d.GetBus()))
		v.bootOrder(field, d.GetBootOrder())
		v.slot(field+".slot", d.Slot, i, slots, "disks")
		v.backingFiles(field, d)
	}
}

// shareable finds fault with a disk that other VMs may have at once: none of them may keep to itself what it reads or
// writes, nor have the disk's metadata in memory.
func (v *validator) shareable(field string, d *specv1.Disk) {
	if !d.GetShareable() {
		return
	}
	if d.GetType() == DiskTypeCDROM {
		v.add(field+".shareable", "a CD-ROM is only read: leave shareable out, or want type disk")
	}
	if d.GetFormat() != "" && d.GetFormat() != FormatRaw {
		v.add(field+".format", "%.40q: a shareable disk is raw: convert it (qemu-img convert -O raw)", d.GetFormat())
	}
	if cache := d.GetCache(); cache != "" && cache != CacheNone {
		v.add(field+".cache", "%.40q: a shareable disk goes past the host's page cache, as other hosts have theirs: want none", cache)
	}
}

// bootOrder wants each number once among disks and interfaces.
func (v *validator) bootOrder(field string, order uint32) {
	if order == 0 {
		return
	}
	if earlier, taken := v.orders[order]; taken {
		v.add(field+".bootOrder", "%d is that of %s too", order, earlier)
	} else if order > MaxBootOrder {
		v.add(field+".bootOrder", "%d: at most %d", order, MaxBootOrder)
	}
	v.orders[order] = field
}

// onlyRead: the guest can't write to it.
func onlyRead(d *specv1.Disk) bool { return d.GetReadOnly() || d.GetType() == DiskTypeCDROM }

func (v *validator) uniqueName(field, name string, index int, names map[string]int, list string) {
	if name == "" {
		return
	}
	if !deviceName().MatchString(name) {
		v.add(field, "%.80q is not a device's name: want a letter, then letters, digits, '-', '_' and '.', at most 31 in all", name)
	}
	if earlier, taken := names[name]; taken {
		v.add(field, "%.80q is the name of %s[%d] too", name, list, earlier)
		return
	}
	names[name] = index
}

// SerialRoom is how many characters of a serial number the disks on a bus have room for.
func SerialRoom(bus string) int {
	if bus == BusSCSI {
		return maxSCSISerial
	}
	return MaxSerial
}

func (v *validator) serial(field, text string, room int) {
	switch {
	case len(text) > room:
		v.add(field, "%d characters: at most %d", len(text), room)
	case !serial().MatchString(text):
		v.add(field, "%q: want letters, digits, spaces and any of -_.+:", text)
	}
}

func (v *validator) backingFiles(field string, d *specv1.Disk) {
	files := d.GetBackingFiles()
	switch {
	case len(files) == 0:
		return
	case len(files) > MaxDisks:
		v.add(field+".backingFiles", "%d files: at most %d", len(files), MaxDisks)
		return
	case d.GetFormat() != FormatQCOW2:
		v.add(field+".backingFiles", "only an image of format qcow2 has them")
	}
	for i, b := range files {
		at := fmt.Sprintf("%s.backingFiles[%d]", field, i)
		v.path(at+".path", b.GetPath(), "a backing file")
		v.oneOf(at+".format", b.GetFormat(), formats())
		if i < len(files)-1 && b.GetFormat() != FormatQCOW2 {
			v.add(at+".format", "only an image of format qcow2 has a backing file, and this one is followed by another")
		}
	}
}

func (v *validator) networks(networks []*specv1.NetworkInterface) {
	if len(networks) > MaxInterfaces {
		v.add("networks", "%d interfaces: at most %d", len(networks), MaxInterfaces)
		return
	}
	names, macs, slots := make(map[string]int), make(map[string]int), make(map[uint32]int)
	for i, n := range networks {
		field := fmt.Sprintf("networks[%d]", i)
		v.uniqueName(field+".name", n.GetName(), i, names, "networks")
		v.oneOf(field+".model", n.GetModel(), netModels())
		v.mac(field+".mac", n.GetMac(), i, macs)
		v.slot(field+".slot", n.Slot, i, slots, "networks")
		v.bootOrder(field, n.GetBootOrder())
		v.userNetwork(field+".user", n.GetUser())
		if tap := n.GetTap(); tap != nil {
			v.device(field+".tap.device", tap.GetDevice())
			v.device(field+".tap.bridge", tap.GetBridge())
		}
	}
	v.podNetworks(networks)
}

func (v *validator) mac(field, text string, index int, macs map[string]int) {
	if text == "" {
		return
	}
	mac, err := net.ParseMAC(text)
	key := strings.ToLower(text)
	switch earlier, taken := macs[key]; {
	case err != nil || len(mac) != 6 || strings.Count(text, ":") != 5:
		v.add(field, "%.40q is not a MAC address: want six bytes such as 52:54:00:12:34:56", text)
	case mac[0]&1 != 0:
		v.add(field, "%s is a multicast address: the first byte of an interface's is even", text)
	case mac.String() == "00:00:00:00:00:00":
		v.add(field, "%s is no interface's address", text)
	case taken:
		v.add(field, "%s is the address of %s too", text, contract.FieldName(fmt.Sprintf("networks[%d]", earlier)))
	default:
		macs[key] = index
	}
}

func (v *validator) userNetwork(field string, u *specv1.UserNetwork) {
	v.ports(field, u.GetPorts())
	v.cidr(field+".cidr", u.GetCidr())
	v.guestNames(field, u.GetHostname(), u.GetSearchDomains())
	v.bootServer(field, u.GetBootFile(), u.GetTftpServer())
}

// guestNames are the names that a guest sees.
func (v *validator) guestNames(field, hostname string, domains []string) {
	if hostname != "" && (len(hostname) > 253 || !subdomain().MatchString(hostname)) {
		v.add(field+".hostname", "%.80q is not a host's name: want lower-case letters, digits, '-' and '.'", hostname)
	}
	bytes := 0
	for i, d := range domains {
		if len(d) > 253 || !subdomain().MatchString(d) {
			v.add(fmt.Sprintf("%s.searchDomains[%d]", field, i), "%.80q is not a domain such as default.svc.cluster.local", d)
		}
		bytes += len(d) + 1
	}
	if len(domains) > MaxSearchDomains || bytes > MaxSearchText {
		v.add(field+".searchDomains", "%d domains of %d bytes together: at most %d, and %d bytes", len(domains), bytes, MaxSearchDomains, MaxSearchText)
	}
}

func (v *validator) bootServer(field, file, server string) {
	for _, line := range []struct {
		name, text string
		most       int
	}{{".bootFile", file, MaxBootFile}, {".tftpServer", server, MaxTFTPServer}} {
		v.line(field+line.name, line.text)
		if len(line.text) > line.most {
			v.add(field+line.name, "%d bytes: at most %d", len(line.text), line.most)
		}
	}
}

// cidr wants the network's own address, as it is the network that is meant.
func (v *validator) cidr(field, text string) {
	if text == "" {
		return
	}
	network, err := netip.ParsePrefix(text)
	switch {
	case err != nil || !network.Addr().Is4():
		v.add(field, "%.80q is not an IPv4 network in CIDR notation such as 10.0.2.0/24", text)
	case network.Bits() < MinUserPrefix || network.Bits() > MaxUserPrefix:
		v.add(field, "%s: want a prefix of %d to %d bits: there are a gateway, a guest and a name server", text, MinUserPrefix, MaxUserPrefix)
	case network.Masked() != network:
		v.add(field, "%s is an address in a network: want the network, %s", text, network.Masked())
	}
}

func (v *validator) ports(field string, ports []*specv1.PortForward) {
	if len(ports) > MaxPorts {
		v.add(field+".ports", "%d forwarded ports: at most %d", len(ports), MaxPorts)
		return
	}
	for i, p := range ports {
		at := fmt.Sprintf("%s.ports[%d]", field, i)
		v.oneOf(at+".protocol", p.GetProtocol(), protocols())
		if address := p.GetHostAddress(); address != "" {
			if ip, err := netip.ParseAddr(address); err != nil || ip.Zone() != "" {
				v.add(at+".hostAddress", "%.80q is not an IP address: want one such as 127.0.0.1", address)
			}
		}
		v.port(at+".hostPort", p.GetHostPort())
		v.port(at+".guestPort", p.GetGuestPort())
	}
}

func (v *validator) port(field string, port uint32) {
	if port < 1 || port > 65535 {
		v.add(field, "%d is not a port: want 1 to 65535", port)
	}
}

// device checks the name of a network device as the kernel does
// (dev_valid_name in net/core/dev.c).
func (v *validator) device(field, name string) {
	if name == "" {
		return
	}
	wrong := func(r rune) bool {
		return r <= ' ' || r == '/' || r == ':' || r == 0x7f || r == unicode.ReplacementChar || unicode.IsSpace(r)
	}
	switch {
	case len(name) > MaxDeviceName:
		v.add(field, "%.80q has %d bytes: a network device's name has at most %d", name, len(name), MaxDeviceName)
	case name == "." || name == ".." || strings.ContainsFunc(name, wrong) || strings.Contains(name, "%"):
		v.add(field, "%q is not a network device's name: it has none of white space, control characters, '/', ':' and '%%'", name)
	}
}

func (v *validator) devices(d *specv1.Devices, m *specv1.Memory) {
	if d != nil && d.Balloon != nil && !d.GetBalloon() && m.GetTarget() != "" {
		v.add("memory.target", "it is the balloon that takes the rest, and %s is false: leave one of the two out", contract.FieldName("devices.balloon"))
	}
	if w := d.GetWatchdog(); w != nil {
		v.oneOf("devices.watchdog.model", w.GetModel(), watchdogs())
		v.oneOf("devices.watchdog.action", w.GetAction(), watchdogActions())
	}
	if s := d.GetVsock(); s != nil && (s.GetCid() < MinVsockCID || s.GetCid() > MaxVsockCID) {
		v.add("devices.vsock.cid", "%d is not between %d and %d: 0 to 2 are the host's and the hypervisor's", s.GetCid(), MinVsockCID, uint32(MaxVsockCID))
	}
	v.tpm(d.GetTpm())
	v.graphics(d)
}

func (v *validator) graphics(d *specv1.Devices) {
	v.oneOf("devices.video.type", d.GetVideo().GetType(), videoTypes())
	if n := len(d.GetInputs()); n > MaxInputs {
		v.add("devices.inputs", "%d inputs: at most %d", n, MaxInputs)
		return
	}
	names := make(map[string]int)
	for i, input := range d.GetInputs() {
		field := fmt.Sprintf("devices.inputs[%d]", i)
		v.uniqueName(field+".name", input.GetName(), i, names, "devices.inputs")
		v.oneOf(field+".type", input.GetType(), inputTypes())
		v.oneOf(field+".bus", input.GetBus(), inputBuses())
	}
}
