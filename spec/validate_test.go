package spec

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
)

func TestValidateAccepts(t *testing.T) {
	for _, text := range []string{"name: a", full, `
name: a-1
labels: {example.com/app: web, empty: ""}
cpu: {model: Skylake-Server-v4, sockets: 2, cores: 8, threads: 2, features: [{name: sse4.2, policy: disable}]}
memory: {size: 2Gi, hugePages: {pageSize: 1Gi}}
networks: [{tap: {device: tap0, bridge: br-lan.1}, mac: "02:00:00:00:00:01"}, {user: {ports: [{protocol: udp, hostAddress: "::1", hostPort: 1, guestPort: 65535}]}}]
disks: [{path: "/images/with space, comma=x.img", name: root_1.x, serial: "S 1.2+3"}]
stopGracePeriod: 0s
`, hardware} {
		if faults := Validate(parse(t, text)); faults.Err() != nil {
			t.Errorf("%s\nhas faults: %v", text, faults)
		}
	}
}

// hardware is what a guest can be told of its machine.
const hardware = `
name: a
system: {uuid: 5d307ca9-b3ef-428c-8861-06e72d69f223, serial: "e4686d2c,1", manufacturer: KubeVirt, product: None, version: "1", sku: s, family: f, assetTag: a}
features:
  acpi: true
  apic: true
  smm: true
  kvmHidden: true
  pvSpinlock: false
  hyperv: {spinlocks: 8191, vendorId: "Vendor 1", synicTimer: true, ipi: true, evmcs: true}
clock: {timezone: America/Argentina/Buenos_Aires, hpet: {present: false}, pit: {tickPolicy: delay}, rtc: {tickPolicy: catchup, track: guest}, kvm: {present: true}, hyperv: {present: true}}
onReboot: end
cpu: {features: [{name: a, policy: force}, {name: b, policy: optional}, {name: c, policy: forbid}]}
disks: [{path: /a, io: native, errorPolicy: enospace, bootOrder: 2}]
networks: [{bootOrder: 80, model: ne2k_pci, user: {cidr: 10.0.2.0/24, hostname: a.b, searchDomains: [svc.cluster.local], bootFile: pxe/grub.efi, tftpServer: 192.0.2.7}}, {pod: {}, model: e1000}, {pod: {binding: bridge, interface: net1, queues: 4}}]
devices: {inputs: [{name: t, type: tablet, bus: virtio}, {type: keyboard}], video: {type: ramfb}, watchdog: {action: shutdown}}
`

// TestValidate gives each faulty text and the fields that must be named, no more
// and no less.
func TestValidate(t *testing.T) {
	long := strings.Repeat("x", 64)
	for _, c := range []struct{ text, fields string }{
		{"{}", "name"},
		{"name: Web", "name"},
		{"name: " + long, "name"},
		{"name: a-", "name"},
		{"name: \"a\\n\"", "name"},
		{"name: a\nlabels: {'a b': c, d: 'e f', 'UP/x': y, '/x': y, 'a/': y, ok: ok}", "labels[/x] labels[UP/x] labels[a b] labels[a/] labels[d]"},
		{"name: a\nhypervisor: xen\nvmm: bochs", "hypervisor vmm"},
		{"name: a\nmachineType: 'q35,usb=on'", "machineType"},
		{"name: a\ncpu: {model: 'host,+x', features: [{name: a}, {name: a}, {}, {name: '+b'}, {name: c, policy: sometimes}]}",
			"cpu.model cpu.features[1].name cpu.features[2].name cpu.features[3].name cpu.features[4].policy"},
		{"name: a\ncpu: {sockets: 4294967295, cores: 4294967295, threads: 4294967295}", "cpu"},
		{"name: a\ncpu: {sockets: 1025}", "cpu"},
		{"name: a\nmemory: {size: lots}", "memory.size"},
		{"name: a\nmemory: {size: 1Ki}", "memory.size"},
		{"name: a\nmemory: {size: 1G}", "memory.size"},
		{"name: a\nmemory: {size: 1025Pi}", "memory.size"},
		{"name: a\nmemory: {size: 0}", "memory.size"},
		{"name: a\nmemory: {size: 3Mi, hugePages: {pageSize: 2Mi}}", "memory.size"},
		{"name: a\nmemory: {hugePages: {}}", "memory.hugePages.pageSize"},
		{"name: a\nmemory: {hugePages: {pageSize: 4Ki}}", "memory.hugePages.pageSize"},
		{"name: a\nboot: {firmware: coreboot, kernel: {initrd: i, cmdline: \"a\\nb\"}}", "boot.firmware boot.kernel.path boot.kernel.initrd boot.kernel.cmdline"},
		{"name: a\nboot: {kernel: {path: /k, cmdline: " + strings.Repeat("x", 2048) + "}}", "boot.kernel.cmdline"},
		{"name: a\ndisks: [{}, {path: a}, {path: /a/../b}, {path: /a//b}, {path: /a/}, {path: /}, {path: \"/a\\0b\"}, {path: \"/a\\nb\"}]",
			"disks[0].path disks[1].path disks[2].path disks[3].path disks[4].path disks[5].path disks[6].path disks[7].path"},
		{"name: a\ndisks: [{path: /a, name: x}, {path: /b, name: x}, {path: /c, name: 'a b'}, {path: /d, name: '-x'}]", "disks[1].name disks[2].name disks[3].name"},
		{"name: a\ndisks: [{path: /a, format: vmdk, type: floppy, bus: ide, cache: maybe, serial: '012345678901234567890'}]",
			"disks[0].format disks[0].type disks[0].bus disks[0].cache disks[0].serial"},
		{"name: a\ndisks: [{path: /a, serial: 'a,b'}, {path: /b, type: cdrom, bus: virtio}]", "disks[0].serial disks[1].bus"},
		{"name: a\ndisks: [{path: /a}, {path: /a, readOnly: true}, {path: /r, readOnly: true}, {path: /r, type: cdrom}]", "disks[1].path"},
		{"name: a\ndisks: [{path: /a, bootOrder: 1}, {path: /b, bootOrder: 1}, {path: /c, bootOrder: 81}]\nnetworks: [{bootOrder: 1}, {bootOrder: 2}]", "disks[1].bootOrder disks[2].bootOrder networks[0].bootOrder"},
		{"name: a\ndisks: [{path: /a, io: io_uring, errorPolicy: panic}, {path: /b, io: native, cache: writeback}, {path: /c, io: threads, cache: unsafe}]",
			"disks[0].io disks[0].errorPolicy disks[1].io"},
		{"name: a\ndisks: [{path: /a, shareable: true}, {path: /b, shareable: true, format: raw, cache: none, readOnly: true}]", ""},
		{"name: a\ndisks: [{path: /a, shareable: true, format: qcow2, cache: writeback}, {path: /b, shareable: true, type: cdrom}, {path: /c, shareable: true}, {path: /c, shareable: true}]",
			"disks[0].format disks[0].cache disks[1].shareable disks[3].path"},
		{"name: a\ndisks: [{path: /a, backingFiles: [{path: b}]}, {path: /c, format: qcow2, backingFiles: [{path: /b}, {path: /c}]}]",
			"disks[0].backingFiles disks[0].backingFiles[0].path disks[1].backingFiles[0].format"},
		{"name: a\ndisks: [" + strings.Repeat("{path: /a},", 65) + "]", "disks"},
		{"name: a\ncloudInit: {userData: " + strings.Repeat("x", MaxCloudInit+1) + "}", "cloudInit.userData"},
		{"name: a\nnetworks: [{mac: x}, {mac: '01:00:00:00:00:01'}, {mac: '00:00:00:00:00:00'}, {mac: '52:54:00:00:00:01:02:03'}, {mac: 5254.0000.0001}]",
			"networks[0].mac networks[1].mac networks[2].mac networks[3].mac networks[4].mac"},
		{"name: a\nnetworks: [{mac: '52:54:00:00:00:0a', name: n}, {mac: '52:54:00:00:00:0A', name: n, model: ne2k}]", "networks[1].name networks[1].model networks[1].mac"},
		{"name: a\nnetworks: [{tap: {device: 0123456789012345, bridge: 'a/b'}}, {tap: {device: 'a b', bridge: '..'}}, {tap: {device: 'tap%d'}}]",
			"networks[0].tap.device networks[0].tap.bridge networks[1].tap.device networks[1].tap.bridge networks[2].tap.device"},
		{"name: a\nnetworks: [{user: {ports: [{protocol: sctp, hostAddress: localhost, guestPort: 65536}]}}]",
			"networks[0].user.ports[0].protocol networks[0].user.ports[0].hostAddress networks[0].user.ports[0].hostPort networks[0].user.ports[0].guestPort"},
		{"name: a\nnetworks: [{pod: {binding: slirp, interface: 'a/b', cidr: 'fd00::/64', ipv6Cidr: 10.0.0.0/8, queues: 17, linkDown: true}}, {pod: {cidr: 10.0.2.1/24, ipv6Cidr: '::1/128'}}]",
			"networks[0].pod.binding networks[0].pod.interface networks[0].pod.queues networks[0].pod.cidr networks[0].pod.ipv6Cidr networks[1].pod.cidr networks[1].pod.ipv6Cidr networks[1].pod.binding"},
		{"name: a\nnetworks: [{pod: {queues: 16}}, " + manyQueues(4) + "]", ""},
		{"name: a\nnetworks: [{pod: {queues: 16}}, " + manyQueues(5) + "]", "networks[5].pod.queues"},
		{"name: a\nnetworks: [{pod: {ports: [{}, {protocol: icmp, first: 1}, {first: 2, last: 1}, {first: 80, last: 65535}]}}, {pod: {binding: bridge, cidr: 10.0.2.0/24, ports: [{first: 1}], fallback: {}}}]",
			"networks[0].pod.ports[0].first networks[0].pod.ports[1].protocol networks[0].pod.ports[2].last networks[1].pod.cidr networks[1].pod.ports networks[1].pod.fallback networks[1].pod.interface"},
		{"name: a\nnetworks: [{pod: {interface: net1, fallback: {ports: [{}]}, dhcp: {hostname: '-', searchDomains: ['a b'], ntpServers: [time], bootFile: \"a\\nb\", private: [{option: 1, value: a}, {option: 224}, {option: 254, value: a}, {option: 254, value: a}]}}}]",
			"networks[0].pod.dhcp.hostname networks[0].pod.dhcp.searchDomains[0] networks[0].pod.dhcp.bootFile networks[0].pod.dhcp.ntpServers[0] networks[0].pod.dhcp.private[0].option networks[0].pod.dhcp.private[1].value networks[0].pod.dhcp.private[3].option networks[0].pod.fallback.ports[0].hostPort networks[0].pod.fallback.ports[0].guestPort networks[0].pod.fallback"},
		{"name: a\ndevices: {watchdog: {model: x, action: y}, vsock: {cid: 2}}", "devices.watchdog.model devices.watchdog.action devices.vsock.cid"},
		{"name: a\ndevices: {vsock: {cid: 4294967295}}", "devices.vsock.cid"},
		{"name: a\nsystem: {uuid: 5D307CA9B3EF428C886106E72D69F223, serial: " + strings.Repeat("x", 256) + ", product: \"a\\nb\"}", "system.uuid system.serial system.product"},
		{"name: a\nsystem: {uuid: 00000000-0000-0000-0000-000000000000}", "system.uuid"},
		{"name: a\nfeatures: {hyperv: {spinlocks: 4094, vendorId: 'a,b', synicTimerDirect: true, vpindex: false, evmcs: true}}\ncpu: {features: [{name: vmx, policy: forbid}]}\nclock: {hyperv: {present: false}}",
			"features.hyperv.spinlocks features.hyperv.vendorId features.hyperv.synic features.hyperv.synicTimer features.hyperv.evmcs"},
		{"name: a\nclock: {offsetSeconds: 86401, hpet: {tickPolicy: x, track: wall}, kvm: {tickPolicy: delay}, pit: {tickPolicy: merge}, rtc: {tickPolicy: discard, track: boot}}",
			"clock.offsetSeconds clock.hpet.tickPolicy clock.hpet.track clock.kvm.tickPolicy clock.pit.tickPolicy clock.rtc.tickPolicy clock.rtc.track"},
		{"name: a\nclock: {timezone: ../../etc/passwd}", "clock.timezone"},
		{"name: a\nclock: {timezone: ''}", "clock.timezone"},
		{"name: a\nonReboot: crash", "onReboot"},
		{"name: a\ndevices: {inputs: [{name: x, type: mouse}, {name: x, bus: ps2}], video: {type: qxl}}", "devices.video.type devices.inputs[0].type devices.inputs[1].name devices.inputs[1].bus"},
		{"name: a\ndevices: {inputs: [" + strings.Repeat("{},", 9) + "]}", "devices.inputs"},
		{"name: a\nnetworks: [{user: {cidr: 'fd00::/64', hostname: A, searchDomains: [a, 'b,c']}}, {user: {cidr: 10.0.2.1/24}}, {user: {cidr: 10.0.2.0/30}}, {user: {searchDomains: [" + strings.Repeat(long+",", 33) + "]}}]",
			"networks[0].user.cidr networks[0].user.hostname networks[0].user.searchDomains[1] networks[1].user.cidr networks[2].user.cidr networks[3].user.searchDomains"},
		{"name: a\nnetworks: [{user: {bootFile: \"a\\n\", tftpServer: " + strings.Repeat("a", 254) + "}}, {user: {bootFile: " + strings.Repeat("a", 128) + "}}]", "networks[0].user.bootFile networks[0].user.tftpServer networks[1].user.bootFile"},
		{"name: a\nstopGracePeriod: -1s", "stopGracePeriod"},
		{"name: a\nstopGracePeriod: 86401s", "stopGracePeriod"},
	} {
		faults := ValidateNames(parse(t, c.text), Names{Hypervisors: []string{"kvm", "emulation"}, VMMs: []string{"qemu"}})
		var fields []string
		for _, f := range faults {
			fields = append(fields, f.Field)
			if f.Message == "" {
				t.Errorf("%.100s: a fault of %s without a message", c.text, f.Field)
			}
		}
		if got := strings.Join(fields, " "); got != c.fields {
			t.Errorf("%.100s\nhas faults of %q, want %q:\n%v", c.text, got, c.fields, faults)
		}
	}
}

func TestFieldErrors(t *testing.T) {
	var none FieldErrors
	if none.Err() != nil {
		t.Error("no faults are an error")
	}
	faults := FieldErrors{{Field: "a", Message: "b"}, {Field: "c", Message: "d"}}
	var got FieldErrors
	if err := faults.Err(); !errors.As(err, &got) || err.Error() != "a: b\nc: d" {
		t.Errorf("error %v", err)
	}
	for _, err := range []error{nil, none.Err(), fmt.Errorf("x: %w", faults), errors.New("y")} {
		got.Take(err)
	}
	if want := "a: b\nc: d\na: b\nc: d\ny"; got.Error() != want {
		t.Errorf("taken together: %v, want %s", got, want)
	}
}

// TestEnumerationsAreListed: a message about a wrong word says the right ones.
func TestEnumerationsAreListed(t *testing.T) {
	faults := ValidateNames(parse(t, "name: a\nhypervisor: xen"), Names{Hypervisors: []string{"kvm", "mshv", "emulation"}})
	if len(faults) != 1 || !strings.Contains(faults[0].Message, "auto, kvm, mshv or emulation") {
		t.Errorf("faults %v", faults)
	}
}

// TestHypervisorNames: whoever doesn't know the names takes any that could be one.
func TestHypervisorNames(t *testing.T) {
	for text, want := range map[string]int{"xen": 0, "auto": 0, "''": 0, "'a,b'": 1} {
		if faults := Validate(parse(t, "name: a\nhypervisor: "+text)); len(faults) != want {
			t.Errorf("%s: faults %v, want %d", text, faults, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{full, hardware, "name: a", "{}", "a: &b [*b]", "name: !!binary aGk=", "? {a: b} : c", "stopGracePeriod: 1e9s"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse(data, "fuzz")
		if err != nil {
			return
		}
		text, err := Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Parse(text, "again"); err != nil || !proto.Equal(back, s) {
			t.Fatalf("read back %v, %v, want %v", back, err, s)
		}
		valid := Validate(s).Err() == nil
		for _, where := range []Target{target(), {ID: "x", Hypervisor: HypervisorEmulation, VMM: VMMCloudHypervisor, Arch: ArchARM64}, {ID: "y", VMM: VMMCloudHypervisor, Arch: ArchARM64, Defaults: VMMDefaults{Watchdog: WatchdogVirtio}}} {
			d := Default(s, where, BaseLayers())
			if faults := Validate(d); valid && faults != nil {
				t.Fatalf("%v is valid and completed has faults: %v", s, faults)
			}
			if again := Default(d, where, BaseLayers()); !proto.Equal(again, d) {
				t.Fatalf("completed twice %v, once %v", again, d)
			}
		}
	})
}

// TestMessagesAreBounded: a fault quotes little of what is wrong.
func TestMessagesAreBounded(t *testing.T) {
	s := parse(t, "name: "+strings.Repeat("x", 100000)+"\nmachineType: "+strings.Repeat("y", 100000))
	for _, f := range Validate(s) {
		if len(f.Message) > 500 {
			t.Errorf("%s: a message of %d bytes", f.Field, len(f.Message))
		}
	}
}

// manyQueues are so many interfaces with as many queues as there may be.
func manyQueues(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("{pod: {binding: bridge, interface: net%d, queues: 16}}", i))
	}
	return strings.Join(all, ", ")
}
