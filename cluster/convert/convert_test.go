package convert_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/launch"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// input is an instance whose spec is the YAML, with 1Gi unless that says otherwise.
func input(t testing.TB, text string) convert.Input {
	t.Helper()
	in := convert.Input{Instance: new(kubevirtv1.VirtualMachineInstance), Configuration: configuration.Default()}
	in.Instance.Name, in.Instance.Namespace, in.Instance.UID = "web-1", "default", "5d307ca9-b3ef-428c-8861-06e72d69f223"
	if err := yaml.UnmarshalStrict([]byte(text), &in.Instance.Spec); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if in.Instance.Spec.Domain.Memory == nil {
		if err := yaml.Unmarshal([]byte("memory: {guest: 1Gi}"), &in.Instance.Spec.Domain); err != nil {
			t.Fatal(err)
		}
	}
	return in
}

func converted(t testing.TB, in convert.Input) (*specv1.VirtualMachineSpec, *launch.Preparation) {
	t.Helper()
	s, preparation, err := convert.Specification(in)
	if err != nil {
		t.Fatal(err)
	}
	return s, preparation
}

// TestFields holds what the golden files of package launcher have no manifest for: each
// instance makes a specification that has these lines.
func TestFields(t *testing.T) {
	for _, c := range []struct{ name, instance, want string }{
		{"memory in odd bytes", "domain: {memory: {guest: 1024M}}", "memory: {size: 977Mi}"},
		{"memory below a MiB", "domain: {memory: {guest: 1}}", "memory: {size: 1Mi}"},
		{"host-passthrough", "domain: {cpu: {model: host-passthrough, cores: 2}}", "cpu: {cores: 2}"},
		{"room for sockets", "domain: {cpu: {sockets: 2, cores: 2, maxSockets: 4}}", "cpu: {sockets: 2, cores: 2, maxVcpus: 8}"},
		{"named model", "domain: {cpu: {model: Haswell, threads: 2}}", "cpu: {model: Haswell, threads: 2}"},
		{"pc-q35", "domain: {machine: {type: pc-q35-7.2}}", "machineType: pc-q35-7.2"},
		{"machine type of Red Hat's QEMU", "domain: {machine: {type: pc-q35-rhel9.4.0}}", "machineType:"},
		{"machine type of Red Hat's QEMU on arm64", "architecture: arm64\ndomain: {machine: {type: virt-rhel9.4.0}}", "machineType:"},
		{"grace of 0", "terminationGracePeriodSeconds: 0\ndomain: {}", "stopGracePeriod: 0s"},
		{"grace unset", "domain: {}", "stopGracePeriod: 30s"},
		{"no console", "domain: {devices: {autoattachSerialConsole: false, rng: {}, autoattachGraphicsDevice: false}}", "devices: {console: false}"},
		{"initrd", "domain: {firmware: {kernelBoot: {container: {image: a, kernelPath: /k, initrdPath: /i}}}}",
			"boot: {kernel: {path: /var/run/vmlet/sockets/boot.kernel.sock, initrd: /var/run/vmlet/sockets/boot.initrd.sock}}"},
		{"initrd alone", "domain: {firmware: {kernelBoot: {container: {image: a, initrdPath: /i}}}}", ""},
		{"arguments in a block", "domain: {firmware: {kernelBoot: {kernelArgs: \"console=ttyS0\\n\", container: {image: a, kernelPath: /k}}}}",
			"boot: {kernel: {path: /var/run/vmlet/sockets/boot.kernel.sock, cmdline: console=ttyS0}}"},
		{"hyperv off and on", "domain: {features: {hyperv: {vapic: {enabled: false}, relaxed: {}, tlbflush: {direct: {}, extended: {enabled: false}}}}}",
			"features: {hyperv: {relaxed: true, tlbflush: true, tlbflushDirect: true}}"},
		{"hyperv passthrough", "domain: {features: {hypervPassthrough: {}}}", "features: {hyperv: {passthrough: true}}"},
		{"spinlocks by default", "domain: {features: {hyperv: {spinlocks: {}}}}", "features: {hyperv: {spinlocks: 4096}}"},
		{"everything on as it is anyway", "domain: {features: {acpi: {enabled: true}, apic: {}}}", ""},
		{"UTC with an offset", "domain: {clock: {utc: {offsetSeconds: -3600}}}", "clock: {offsetSeconds: '-3600'}"},
		{"UTC with no offset", "domain: {clock: {utc: {offsetSeconds: 0}}}", "clock: {offsetSeconds: '0'}"},
		{"time zone with a space", "domain: {clock: {timezone: America/New York}}", "clock: {timezone: America/New_York}"},
		{"network of Multus", "domain: {cpu: {cores: 40}, devices: {networkInterfaceMultiqueue: true, interfaces: [{name: blue, bridge: {}, macAddress: '52-54-00-00-00-0A', dhcpOptions: {ntpServers: [192.0.2.1], privateOptions: [{option: 240, value: x}]}}, {name: green, bridge: {}, macAddress: '52:54:00:00:00:02', model: e1000, state: down}]}}\nnetworks: [{name: blue, multus: {networkName: a}}, {name: green, multus: {networkName: b, default: true}}]",
			"networks: [{name: blue, mac: '52:54:00:00:00:0a', pod: {binding: bridge, interface: pod16477688c0e, queues: 16, dhcp: {hostname: web-1, ntpServers: [192.0.2.1], private: [{option: 240, value: x}]}}}, " +
				"{name: green, mac: '52:54:00:00:00:02', model: e1000, pod: {binding: bridge, interface: eth0, linkDown: true, dhcp: {hostname: web-1}}}]"},
		{"DHCP options", "domain: {devices: {interfaces: [{name: lan, macAddress: '52:54:00:00:00:01', dhcpOptions: {bootFileName: pxelinux.0, tftpServerName: tftp.example.com, ntpServers: [192.0.2.1], privateOptions: [{option: 224, value: a}]}}]}}\nnetworks: [{name: lan, pod: {vmIPv6NetworkCIDR: 'fd00:1::/64'}}]\ndnsPolicy: None",
			"networks: [{name: lan, mac: '52:54:00:00:00:01', pod: {binding: masquerade, ipv6Cidr: 'fd00:1::/64', dhcp: {hostname: web-1, ntpServers: [192.0.2.1], bootFile: pxelinux.0, tftpServer: tftp.example.com, private: [{option: 224, value: a}]}, " +
				"fallback: {bootFile: pxelinux.0, cidr: 10.0.2.0/24, hostname: web-1, tftpServer: tftp.example.com}}}]"},
		{"bridge", "subdomain: db\ndomain: {devices: {interfaces: [{name: lan, bridge: {}, ports: [{port: 80}]}]}}\nnetworks: [{name: lan, pod: {vmNetworkCIDR: 10.1.0.0/16}}]",
			"networks: [{name: lan, pod: {binding: bridge, dhcp: {hostname: web-1, searchDomains: [db.default.svc.cluster.local]}}}]"},
		{"ports", "dnsPolicy: None\ndomain: {devices: {interfaces: [{name: lan, macAddress: '52:54:00:00:00:01', ports: [{port: 80}, {port: 80}, {port: 53, protocol: UDP}], portRanges: [{protocol: TCP, start: 1024, end: 65535}]}]}}\nnetworks: [{name: lan, pod: {}}]",
			"networks: [{name: lan, mac: '52:54:00:00:00:01', pod: {binding: masquerade, ports: [{protocol: tcp, first: 80, last: 80}, {protocol: udp, first: 53, last: 53}, {protocol: tcp, first: 1024, last: 65535}], dhcp: {hostname: web-1}}}]"},
		{"asset tag", "domain: {chassis: {asset: A-1}, firmware: {serial: S-1}}",
			"system: {uuid: 5d307ca9-b3ef-428c-8861-06e72d69f223, serial: S-1, assetTag: A-1, manufacturer: KubeVirt, product: None, family: KubeVirt}"},
		{"UTC", "domain: {clock: {utc: {}}}", ""},
		{"kvmclock off", "domain: {clock: {timer: {kvm: {present: false}}}}", "clock: {kvm: {present: false}}"},
		{"empty disk", "domain: {devices: {disks: [{name: a, disk: {bus: scsi}}]}}\nvolumes: [{name: a, emptyDisk: {capacity: 1Gi}}]",
			"disks: [{name: a, bus: scsi, path: /var/run/vmlet/made/a.img}]"},
		{"long serials", "domain: {devices: {disks: [{name: a, disk: {bus: sata}, serial: a2345678-2345-2345-2345-2345678901234}, {name: b, disk: {bus: scsi}, serial: b2345678-2345-2345-2345-2345678901234}]}}\nvolumes: [{name: a, emptyDisk: {capacity: 1Gi}}, {name: b, emptyDisk: {capacity: 1Gi}}]",
			"disks: [{name: a, bus: sata, serial: a2345678-2345-2345-2, path: /var/run/vmlet/made/a.img}, {name: b, bus: scsi, serial: b2345678-2345-2345-2345-234567890123, path: /var/run/vmlet/made/b.img}]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := converted(t, input(t, c.instance))
			want := map[string]any{}
			if err := yaml.Unmarshal([]byte(c.want), &want); err != nil {
				t.Fatal(err)
			}
			got := asMap(t, s)
			for field := range want {
				if g, w := text(t, got[field]), text(t, want[field]); g != w {
					t.Errorf("%s is\n%s, want\n%s", field, g, w)
				}
			}
			for _, field := range []string{"features", "clock", "boot"} {
				if want[field] == nil && got[field] != nil {
					t.Errorf("%s is %s, want none", field, text(t, got[field]))
				}
			}
		})
	}
}

func asMap(t *testing.T, s *specv1.VirtualMachineSpec) (out map[string]any) {
	t.Helper()
	encoded, err := spec.MarshalJSON(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(encoded, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func text(t *testing.T, v any) string {
	t.Helper()
	out, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestSpecificationFaults(t *testing.T) {
	for _, c := range []struct{ name, instance, want string }{
		{"no memory", "domain: {memory: {}}", "spec.domain.memory.guest: Required"},
		{"too much memory", "domain: {memory: {guest: 2Ei}}", "spec.domain.memory.guest: Invalid value: \"2Ei\": is more than 1024Pi"},
		{"disk without volume", "domain: {devices: {disks: [{name: a}]}}", "spec.domain.devices.disks[0].name: Not found: \"a\""},
		{"volume that is a path", "domain: {devices: {disks: [{name: ../../a}]}}\nvolumes: [{name: ../../a, emptyDisk: {capacity: 1Gi}}]", "spec.volumes[0].name: Invalid"},
		{"host disk", "domain: {devices: {disks: [{name: a}]}}\nvolumes: [{name: a, hostDisk: {path: /a, type: Disk}}]", "spec.volumes[0]: Forbidden"},
		{"no capacity", "domain: {devices: {disks: [{name: a}]}}\nvolumes: [{name: a, emptyDisk: {capacity: 1000k}}]", "spec.volumes[0].emptyDisk.capacity: Invalid"},
		{"broken base64", "domain: {devices: {disks: [{name: a}]}}\nvolumes: [{name: a, cloudInitNoCloud: {userDataBase64: '%'}}]", "spec.volumes[0].cloudInitNoCloud.userDataBase64: Invalid"},
		{"Secret that is a path", "domain: {devices: {disks: [{name: a}]}}\nvolumes: [{name: a, cloudInitNoCloud: {userData: a}}]\n" +
			"accessCredentials: [{sshPublicKey: {source: {secret: {secretName: ../../../bin}}, propagationMethod: {noCloud: {}}}}]", "spec.accessCredentials: Invalid"},
		{"claim", "domain: {devices: {interfaces: [{name: a}]}}\nnetworks: [{name: a, resourceClaim: {claimName: b, requestName: c}}]", "spec.networks[0]: Forbidden"},
		{"too many ports", "domain: {devices: {interfaces: [{name: a, ports: [" + manyPorts(257) + "]}]}}\nnetworks: [{name: a, pod: {}}]",
			"spec.domain.devices.interfaces[0].ports: Too many: 257: must have at most 256"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := convert.Specification(input(t, c.instance))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	_, _, err := convert.Specification(input(t, "domain: {memory: {}, devices: {disks: [{name: a}], interfaces: [{name: a}]}}"))
	for _, want := range []string{"memory.guest", "disks[0].name", "interfaces[0].name"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %s: all faults are told at once", err, want)
		}
	}
}

// TestMachineTypeOfCloudHypervisor: the cluster's default is not the user's word.
func TestMachineTypeOfCloudHypervisor(t *testing.T) {
	in := input(t, "domain: {machine: {type: pc-q35-8.0}}")
	in.Configuration.MachineType = map[string]string{"amd64": "pc-q35-8.0"}
	if s, _ := converted(t, in); s.MachineType != "pc-q35-8.0" {
		t.Errorf("for QEMU it is %q", s.MachineType)
	}
	in.Instance.Annotations = map[string]string{contract.AnnotationVMM: spec.VMMCloudHypervisor}
	if s, _ := converted(t, in); s.MachineType != "" || s.GetDevices() != nil {
		t.Errorf("for cloud-hypervisor it is %q with %v", s.MachineType, s.GetDevices())
	}
}

// TestOpenBus: a disk that names no bus has the one of KubeVirt, or that of the VMM which was chosen after
// the instance's defaults.
func TestOpenBus(t *testing.T) {
	for _, c := range []struct{ arch, vmm, disk, want string }{
		{"amd64", "", "", spec.BusSATA},
		{"amd64", "", "disk: {}", spec.BusSATA},
		{"amd64", spec.VMMQEMU, "disk: {readonly: true}", spec.BusSATA},
		{"amd64", spec.VMMCloudHypervisor, "disk: {}", spec.BusVirtio},
		{"amd64", spec.VMMCloudHypervisor, "disk: {bus: scsi}", spec.BusSCSI},
		{"arm64", "", "disk: {}", spec.BusVirtio},
		{"amd64", "", "cdrom: {}", ""}, // QEMU's own default
	} {
		in := input(t, fmt.Sprintf("{architecture: %s, domain: {memory: {guest: 1Gi}, devices: {disks: [{name: a, %s}]}}, volumes: [{name: a, emptyDisk: {capacity: 1Mi}}]}", c.arch, c.disk))
		in.Instance.Annotations = map[string]string{contract.AnnotationVMM: c.vmm}
		if s, _ := converted(t, in); s.Disks[0].Bus != c.want {
			t.Errorf("%+v: the bus is %q", c, s.Disks[0].Bus)
		}
	}
}

// TestManyQueues: interfaces share what descriptors there may be, and a valid specification comes
// of it.
func TestManyQueues(t *testing.T) {
	for interfaces, want := range map[int]uint32{1: 16, 5: 16, 6: 13, 16: 5} {
		nics, networks := "", ""
		for i := range interfaces {
			nics += fmt.Sprintf("{name: n%d, bridge: {}},", i)
			networks += fmt.Sprintf("{name: n%d, multus: {networkName: a}},", i)
		}
		in := input(t, "domain: {cpu: {cores: 64}, devices: {networkInterfaceMultiqueue: true, interfaces: ["+nics+"]}}\nnetworks: ["+networks+"]")
		s, _, err := convert.Specification(in)
		if err != nil {
			t.Fatal(err)
		}
		s.Name = "a"
		if err := spec.Validate(s).Err(); err != nil {
			t.Errorf("%d interfaces: %v", interfaces, err)
		}
		if got := s.Networks[0].GetPod().GetQueues(); got != want {
			t.Errorf("%d interfaces have %d queues each, want %d", interfaces, got, want)
		}
	}
}

func TestMAC(t *testing.T) {
	seen := make(map[string]bool)
	for _, uuid := range []string{"5d307ca9-b3ef-428c-8861-06e72d69f223", "e4686d2c-6e8d-4335-b8fd-81bee22f4815"} {
		for _, name := range []string{"default", "second"} {
			mac, err := net.ParseMAC(convert.MAC(uuid, name))
			if err != nil {
				t.Fatal(err)
			}
			if mac[0]&1 != 0 || mac[0]&2 == 0 {
				t.Errorf("%s is not a locally administered unicast address", mac)
			}
			if seen[mac.String()] || convert.MAC(uuid, name) != mac.String() {
				t.Errorf("%s is not of %s and %s alone", mac, uuid, name)
			}
			seen[mac.String()] = true
		}
	}
}

func TestHostname(t *testing.T) {
	for _, c := range []struct{ name, hostname, want string }{
		{"web-1", "", "web-1"},
		{"web-1.example.com", "", "web-1"},
		{"web-1", "other", "other"},
		{strings.Repeat("a", 62) + "-b", "", strings.Repeat("a", 62)},
	} {
		vmi := new(kubevirtv1.VirtualMachineInstance)
		vmi.Name, vmi.Spec.Hostname = c.name, c.hostname
		if got := convert.Hostname(vmi); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestDeviceName: every name of a volume is one that the specification takes, and no two are
// the same.
func TestDeviceName(t *testing.T) {
	long := strings.Repeat("a", 63)
	seen := make(map[string]string)
	for _, name := range []string{"root", "2nd", "0", long, long[:62] + "b", long[:31], long[:32], "x-" + long[:29]} {
		got := convert.DeviceName(name)
		if other, there := seen[got]; there {
			t.Errorf("%s and %s are both %s", name, other, got)
		}
		seen[got] = name
		s := &specv1.VirtualMachineSpec{Name: "a", Disks: []*specv1.Disk{{Name: got, Path: "/a"}}}
		if err := spec.Validate(s).Err(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if convert.DeviceName("root") != "root" {
		t.Error("a name that fits is another")
	}
}

// TestClaimSize: the smaller of request and capacity, but that a file system that is about to
// grow counts as grown.
func TestClaimSize(t *testing.T) {
	const growing = "spec: {resources: {requests: {storage: 2Gi}}}\n" +
		"status: {capacity: {storage: 1Gi}, conditions: [{type: FileSystemResizePending, status: %q}]}"
	for _, c := range []struct {
		claim string
		want  int64
	}{
		{"spec: {resources: {requests: {storage: 1Gi}}}", 1 << 30},
		{"spec: {resources: {requests: {storage: 2Gi}}}\nstatus: {capacity: {storage: 1Gi}}", 1 << 30},
		{"spec: {resources: {requests: {storage: 1Gi}}}\nstatus: {capacity: {storage: 8Gi}}", 1 << 30},
		{fmt.Sprintf(growing, "True"), 2 << 30},
		{fmt.Sprintf(growing, "False"), 1 << 30},
		{"spec: {}", 0},
	} {
		in := input(t, "domain: {devices: {disks: [{name: a, disk: {}}]}}\nvolumes: [{name: a, persistentVolumeClaim: {claimName: c}}]")
		claim := new(corev1.PersistentVolumeClaim)
		if err := yaml.UnmarshalStrict([]byte(c.claim), claim); err != nil {
			t.Fatal(err)
		}
		in.Claims = map[string]*corev1.PersistentVolumeClaim{"c": claim}
		_, preparation := converted(t, in)
		if raw := preparation.Disks[0].Raw; raw.Size != c.want || raw.Reserve != 128<<10 || raw.Tolerance != 10 {
			t.Errorf("%s: %+v, want size %d", c.claim, raw, c.want)
		}
		// The guest's CD-ROM is not grown.
		in.Instance.Spec.Domain.Devices.Disks[0] = kubevirtv1.Disk{Name: "a", CDROM: new(kubevirtv1.CDROMTarget)}
		if _, preparation := converted(t, in); *preparation.Disks[0].Raw != (launch.Raw{}) {
			t.Errorf("%s: a CD-ROM is made: %+v", c.claim, preparation.Disks[0].Raw)
		}
	}
}

// TestBootOrder: devices with an order first, then the other disks as they are listed; none
// has one where nobody asks, and with a kernel only those that have one.
func TestBootOrder(t *testing.T) {
	const volumes = "\nvolumes: [{name: a, emptyDisk: {capacity: 1Gi}}, {name: b, emptyDisk: {capacity: 1Gi}}, {name: c, emptyDisk: {capacity: 1Gi}}]\nnetworks: [{name: n, pod: {}}]"
	for _, c := range []struct {
		domain string
		want   [4]uint32 // a, b, c, the interface
	}{
		{"devices: {disks: [{name: a}, {name: b}, {name: c}], interfaces: [{name: n}]}", [4]uint32{}},
		{"devices: {disks: [{name: a}, {name: b, bootOrder: 7}, {name: c}], interfaces: [{name: n}]}", [4]uint32{2, 1, 3, 0}},
		{"devices: {disks: [{name: a}, {name: b}, {name: c, bootOrder: 200}], interfaces: [{name: n, bootOrder: 100}]}", [4]uint32{3, 4, 2, 1}},
		{"firmware: {kernelBoot: {container: {image: i, kernelPath: /k}}}\n  devices: {disks: [{name: a}, {name: b, bootOrder: 2}, {name: c}], interfaces: [{name: n}]}", [4]uint32{0, 1, 0, 0}},
	} {
		s, _ := converted(t, input(t, "domain:\n  "+c.domain+volumes))
		var got [4]uint32
		for i, d := range s.Disks {
			got[i] = d.BootOrder
		}
		got[3] = s.Networks[0].BootOrder
		if got != c.want {
			t.Errorf("%s: %v, want %v", c.domain, got, c.want)
		}
	}
}

func manyPorts(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("{port: %d}", i+1))
	}
	return strings.Join(list, ", ")
}

// TestForwards: where a node can't connect a guest to its pod's network, the listed ports lead
// to it, each once; where none is listed those of the probes; where there are too many, no guest.
func TestForwards(t *testing.T) {
	const probes = "readinessProbe: {tcpSocket: {port: 22}}\nlivenessProbe: {httpGet: {port: 8080}}\nnetworks: [{name: n, pod: {}}]\n"
	for _, c := range []struct{ iface, want string }{
		{"{name: n}", "tcp 22, tcp 8080"},
		{"{name: n, ports: [{port: 53, protocol: UDP}, {port: 53}, {port: 53, protocol: TCP}]}", "udp 53, tcp 53"},
		{"{name: n, ports: [{port: 21}], portRanges: [{protocol: TCP, start: 20, end: 22}]}", "tcp 21, tcp 20, tcp 22"},
	} {
		s, _ := converted(t, input(t, probes+"domain: {devices: {interfaces: ["+c.iface+"]}}"))
		var got []string
		for _, p := range s.Networks[0].GetPod().GetFallback().GetPorts() {
			if p.HostPort != p.GuestPort || p.HostAddress != "0.0.0.0" {
				t.Errorf("%v", p)
			}
			got = append(got, p.Protocol+" "+strings.TrimSpace(text(t, p.HostPort)))
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %q, want %s", c.iface, got, c.want)
		}
	}
}

// TestGuestNetwork: names are looked up where a pod with the DNS policy looks, and first in the
// subdomain; the network is one without a host's bits.
func TestGuestNetwork(t *testing.T) {
	long := strings.TrimSuffix(strings.Repeat(strings.Repeat("a", 62)+".", 4), ".") // 251 bytes
	var longs []string
	for c := 'b'; c < 'l'; c++ {
		longs = append(longs, strings.ReplaceAll(long, "a", string(c)))
	}
	for _, c := range []struct{ name, instance, domain, want string }{
		{"default", "{}", "", "default.svc.cluster.local svc.cluster.local cluster.local"},
		{"domain", "{}", "k8s.example", "default.svc.k8s.example svc.k8s.example k8s.example"},
		{"subdomain", "{subdomain: db, dnsPolicy: ClusterFirst}", "", "db.default.svc.cluster.local default.svc.cluster.local svc.cluster.local cluster.local"},
		{"host's network", "{dnsPolicy: ClusterFirstWithHostNet, dnsConfig: {searches: [a.example., cluster.local, '.', b.example]}}", "",
			"default.svc.cluster.local svc.cluster.local cluster.local a.example b.example"},
		{"node's", "{dnsPolicy: Default}", "", ""},
		{"own", "{dnsPolicy: None, subdomain: db, dnsConfig: {searches: [a.example, a.example.]}}", "", "a.example"},
		{"too many", "{dnsPolicy: None, dnsConfig: {searches: [" + strings.Join(longs, ", ") + "]}}", "", strings.Join(longs[:8], " ")},
		{"too long", "{dnsPolicy: None, dnsConfig: {searches: [a" + long + "a, " + long + "aaa]}}", "", "a" + long + "a"},
	} {
		in := input(t, c.instance)
		in.ClusterDomain = c.domain
		in.Instance.Spec.Networks = []kubevirtv1.Network{{Name: "n", Pod: &kubevirtv1.PodNetwork{VMNetworkCIDR: "10.1.2.3/24"}}}
		in.Instance.Spec.Domain.Devices.Interfaces = []kubevirtv1.Interface{{Name: "n"}}
		s, _ := converted(t, in)
		user := s.Networks[0].GetPod().GetFallback()
		if got := strings.Join(user.SearchDomains, " "); got != c.want {
			t.Errorf("%s: search domains are %q, want %q", c.name, got, c.want)
		}
		if own := s.Networks[0].GetPod().GetCidr(); user.Cidr != "10.1.2.0/24" || own != user.Cidr {
			t.Errorf("%s: the networks are %s and %s, want 10.1.2.0/24", c.name, user.Cidr, own)
		}
		if err := convert.Faults(in); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestFaults: what a VMM can't do is a fault where it is named, and where none can.
func TestFaults(t *testing.T) {
	const disk = "\nvolumes: [{name: a, emptyDisk: {capacity: 1Gi}}]"
	for _, c := range []struct{ vmm, instance, want string }{
		{"cloud-hypervisor under emulation", "domain: {devices: {autoattachGraphicsDevice: false, rng: {}}}", "hypervisor"},
		{"", "domain: {devices: {disks: [{name: a, disk: {bus: sata}}]}}" + disk, ""},
		{"cloud-hypervisor", "domain: {devices: {disks: [{name: a, disk: {bus: sata}}]}}" + disk, "disks[0].bus"},
		{"cloud-hypervisor", "domain: {devices: {autoattachGraphicsDevice: false, rng: {}, interfaces: [{name: n}]}}\nnetworks: [{name: n, pod: {}}]", ""},
		{"cloud-hypervisor", "domain: {devices: {autoattachGraphicsDevice: false, rng: {}, interfaces: [{name: n, model: e1000}]}}\nnetworks: [{name: n, pod: {}}]", "networks[0].model"},
		{"cloud-hypervisor", "domain: {firmware: {bootloader: {bios: {}}}, devices: {disks: [{name: a, disk: {bus: virtio}}]}}" + disk, "boot.firmware"},
		{"xen", "domain: {}", "vmm"},
		{"", "domain: {devices: {disks: [{name: a, serial: 'a=b', disk: {bus: virtio}}]}}" + disk, "disks[0].serial"},
		{"", "terminationGracePeriodSeconds: 1000000\ndomain: {}", "stopGracePeriod"},
		{"cloud-hypervisor", "domain: {devices: {autoattachGraphicsDevice: false, rng: {}, disks: [{name: a, disk: {bus: virtio}}]}}\nvolumes: [{name: a, containerDisk: {image: a}}]", "disks[0].backingFiles[0].path"},
		{"cloud-hypervisor", "domain: {devices: {autoattachGraphicsDevice: false, rng: {}, disks: [{name: a, disk: {bus: virtio}}]}}\nvolumes: [{name: a, ephemeral: {persistentVolumeClaim: {claimName: a}}}]", ""},
	} {
		in := input(t, c.instance)
		name, hypervisor, _ := strings.Cut(c.vmm, " under ")
		in.Instance.Annotations = map[string]string{contract.AnnotationVMM: name, contract.AnnotationHypervisor: hypervisor}
		err := convert.Faults(in)
		var faults spec.FieldErrors
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%q %s: %v", c.vmm, c.instance, err)
		case c.want == "":
		case !errors.As(err, &faults) || faults[0].Field != c.want:
			t.Errorf("%q %s: %v, want a fault of %s", c.vmm, c.instance, err, c.want)
		}
	}
}
