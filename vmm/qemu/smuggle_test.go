package qemu_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu"
	"github.com/vmlet/vmlet/vmm/qemu/qemutest"
)

// everything has every string field that there is.
const everything = `
labels: {app: web}
hypervisor: emulation
vmm: qemu
machineType: q35
cpu: {model: max, features: [{name: avx2, policy: require}]}
memory: {size: 512Mi, hugePages: {pageSize: 2Mi}}
numa: {nodes: [{cpus: "0", memory: 512Mi, hostNodes: "0", policy: strict}]}
hostDevices: [{name: a, pciAddress: "0000:01:00.0"}, {name: b, mdev: 0b2a1c1e-5f0d-4c33-9a35-1f3f8f9d7f10}]
boot: {firmware: bios, kernel: {path: /boot/vmlinuz, initrd: /boot/initrd, cmdline: quiet}}
disks:
- name: root
  path: /images/root.qcow2
  format: qcow2
  type: disk
  bus: virtio
  serial: S1
  bootOrder: 1
  cache: none
  io: native
  errorPolicy: stop
  backingFiles: [{path: /images/base.img, format: raw}]
cloudInit: {userData: "#", metaData: "a: b", networkConfig: "version: 2"}
networks:
- {name: a, mac: "52:54:00:00:00:01", model: virtio, user: {cidr: 10.0.2.0/24, hostname: a, searchDomains: [b.c], bootFile: d, tftpServer: e, ports: [{protocol: tcp, hostAddress: 127.0.0.1, hostPort: 8080, guestPort: 80}]}}
- {name: b, mac: "52:54:00:00:00:02", model: virtio, tap: {device: tap0, bridge: br0}}
devices:
  watchdog: {model: i6300esb, action: reset}
  tpm: {socket: /run/tpm.sock, model: tpm-crb}
  inputs: [{name: t, type: tablet, bus: usb}]
  video: {type: vga}
system: {uuid: 5d307ca9-b3ef-428c-8861-06e72d69f223, serial: a, manufacturer: b, product: c, version: d, sku: e, family: f, assetTag: g}
features: {hyperv: {vendorId: Vendor}}
clock: {timezone: Europe/Berlin, hpet: {tickPolicy: delay}, pit: {tickPolicy: delay}, rtc: {tickPolicy: delay, track: wall}}
onReboot: restart
`

// TestNothingIsSmuggled puts hostile text into every string of a specification,
// past validation, and wants a refusal or a command line with the same options.
func TestNothingIsSmuggled(t *testing.T) {
	info := qemutest.Fixture(t, "testdata", "10.0")
	request := qemutest.Case{YAML: everything, Change: func(r *vmm.PlanRequest) { r.Taps = []int{-1, 0} }}.Request(info)
	want := shape(t, mustPlan(t, request))
	fields := 0
	eachString(request.Spec.ProtoReflect(), "", func(path string, set func(s *vmSpec, value string)) {
		fields++
		for _, hostile := range []string{
			"x,readonly=off", ",,x", "x=y,z", "a b -S", "a\n-S\n", "-S", `x","driver":"pc-testdev","y":"`, "{}", "", "%n\\", "é\u2028", "x,id=ram0,",
		} {
			r := request
			r.Spec = proto.Clone(request.Spec).(*vmSpec)
			set(r.Spec, hostile)
			p, err := qemu.PlanUnvalidated(r)
			if err != nil {
				continue
			}
			got := shape(t, p.Args)
			if hostile == "" {
				continue // an option may be absent then
			}
			if !reflect.DeepEqual(got, want) {
				at := 0
				for at < min(len(got), len(want)) && got[at] == want[at] {
					at++
				}
				t.Errorf("%s = %q changes the options: %q, want %q", path, hostile, rest(got, at), rest(want, at))
			}
		}
	})
	if fields < 70 {
		t.Errorf("only %d string fields were tried: the specification isn't what it was", fields)
	}
}

func rest(s []string, at int) []string { return s[at:min(at+4, len(s))] }

func mustPlan(t *testing.T, r vmm.PlanRequest) []string {
	t.Helper()
	p, err := qemu.QEMU{}.Plan(r)
	if err != nil {
		t.Fatal(err)
	}
	return p.Args
}

// eachString calls f with each string field that is set, and with how to set it
// in a copy.
func eachString(m protoreflect.Message, path string, f func(path string, set func(*vmSpec, string))) {
	visit(m, path, func(s *vmSpec) protoreflect.Message { return s.ProtoReflect() }, f)
}

func visit(m protoreflect.Message, path string, find func(*vmSpec) protoreflect.Message, f func(string, func(*vmSpec, string))) {
	m.Range(func(d protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		at := path + "." + d.JSONName()
		switch {
		case d.IsMap():
		case d.IsList() && d.Kind() == protoreflect.MessageKind:
			for i := range value.List().Len() {
				visit(value.List().Get(i).Message(), at, func(s *vmSpec) protoreflect.Message {
					return find(s).Mutable(d).List().Get(i).Message()
				}, f)
			}
		case d.IsList() && d.Kind() == protoreflect.StringKind:
			for i := range value.List().Len() {
				f(at, func(s *vmSpec, v string) { find(s).Mutable(d).List().Set(i, protoreflect.ValueOfString(v)) })
			}
		case d.Kind() == protoreflect.MessageKind:
			visit(value.Message(), at, func(s *vmSpec) protoreflect.Message { return find(s).Mutable(d).Message() }, f)
		case d.Kind() == protoreflect.StringKind:
			f(at, func(s *vmSpec, v string) { find(s).Set(d, protoreflect.ValueOfString(v)) })
		}
		return true
	})
}

// shape is what a command line says without the values: the options, and the keys
// of each as QEMU will read them.
func shape(t *testing.T, args []string) []string {
	t.Helper()
	var out []string
	for i := 0; i < len(args); i++ {
		option := args[i]
		out = append(out, option)
		switch option {
		case "-no-user-config", "-nodefaults", "-S":
			continue
		}
		i++
		switch value := args[i]; option {
		case "-append", "-uuid", "-kernel", "-initrd", "-display", "-vga", "-vnc":
			// One value, in which nothing has a meaning to QEMU.
		case "-device", "-object", "-blockdev", "-netdev":
			var o map[string]any
			if err := json.Unmarshal([]byte(value), &o); err != nil {
				t.Fatalf("%s %s: %v", option, value, err)
			}
			out = append(out, slices.Sorted(maps.Keys(o))...)
		default:
			out = append(out, keys(value)...)
		}
	}
	return out
}

// keys reads key=value,… as QEMU does: a doubled comma is a comma.
func keys(value string) []string {
	var out []string
	for _, part := range strings.Split(strings.ReplaceAll(value, ",,", "\x00"), ",") {
		key, _, _ := strings.Cut(part, "=")
		if len(out) == 0 && key == part {
			key = "(the first)"
		}
		out = append(out, key)
	}
	return out
}

// TestPlanRefuses wants each thing that QEMU can't do refused with its field.
func TestPlanRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		c      qemutest.Case
		fields []string
	}{
		"validation":         {qemutest.Case{YAML: "disks: [{path: relative}]"}, []string{"disks[0].path"}},
		"machine type":       {qemutest.Case{YAML: qemutest.Small + "machineType: pc-q35-99.0"}, []string{"machineType"}},
		"other machine":      {qemutest.Case{YAML: qemutest.Small + "machineType: isapc"}, []string{"machineType"}},
		"no hypervisor":      {qemutest.Case{YAML: qemutest.Small, Hypervisor: "mshv"}, []string{"hypervisor"}},
		"cpu model":          {qemutest.Case{YAML: qemutest.Small + "cpu: {model: Pentium9}"}, []string{"cpu.model"}},
		"cpu feature":        {qemutest.Case{YAML: qemutest.Small + "cpu: {features: [{name: frob}, {name: kvm-pv-eoi}]}"}, []string{"cpu.features[0].name", "cpu.features[1].name"}},
		"vCPUs":              {qemutest.Case{YAML: qemutest.Small + "cpu: {cores: 300}"}, []string{"cpu"}},
		"microvm's buses":    {qemutest.Case{YAML: qemutest.Small + "machineType: microvm\ndisks: [{path: /a, bus: sata}, {path: /b, bus: usb}]"}, []string{"disks[0].bus", "disks[1].bus"}},
		"microvm's boot":     {qemutest.Case{YAML: "machineType: microvm"}, []string{"boot.kernel"}},
		"microvm's network":  {qemutest.Case{YAML: qemutest.Small + "machineType: microvm\nnetworks: [{model: e1000e}]"}, []string{"networks[0].model"}},
		"microvm's room":     {qemutest.Case{YAML: qemutest.Small + "machineType: microvm\ndisks: [" + strings.Repeat("{path: /a, readOnly: true}, ", 25) + "]"}, []string{"disks[24].bus"}},
		"IPv6 forward":       {qemutest.Case{YAML: qemutest.Small + "networks: [{user: {ports: [{hostAddress: '::1', hostPort: 1, guestPort: 1}]}}]"}, []string{"networks[0].user.ports[0].hostAddress"}},
		"no tap":             {qemutest.Case{YAML: qemutest.Small + "networks: [{tap: {}}]"}, []string{"networks[0].tap"}},
		"no pod":             {qemutest.Case{YAML: qemutest.Small + "networks: [{pod: {}}]"}, []string{"networks[0].pod"}},
		"queues of an e1000": {qemutest.Case{YAML: qemutest.Small + "networks: [{model: e1000, pod: {queues: 2}}]", Change: func(r *vmm.PlanRequest) { r.Taps = []int{0} }}, []string{"networks[0].pod.queues"}},
		"read-only SATA":     {qemutest.Case{YAML: "disks: [{path: /a, bus: sata, readOnly: true}]"}, []string{"disks[0].readOnly"}},
		"SATA disks":         {qemutest.Case{YAML: sataDisks(49)}, []string{"disks[48].bus"}},
		"lazy huge pages": {qemutest.Case{Info: "10.0", YAML: qemutest.Small + "memory: {hugePages: {pageSize: 2Mi}}",
			Change: func(r *vmm.PlanRequest) { r.Image = qemutest.Image(true) }}, []string{"memory.hugePages"}},
		"lazy on 7.2":            {qemutest.Case{YAML: qemutest.Small, Change: func(r *vmm.PlanRequest) { r.Image = qemutest.Image(true) }}, []string{"vmm"}},
		"no UEFI":                {qemutest.Case{YAML: "boot: {firmware: uefi}", Change: func(r *vmm.PlanRequest) { r.Info.Details.(*qemu.Details).Firmware = nil }}, []string{"boot.firmware"}},
		"arm64 BIOS":             {qemutest.Case{Info: "arm64", Arch: "arm64", YAML: "boot: {firmware: bios}"}, []string{"boot.firmware"}},
		"no such device":         {qemutest.Case{YAML: qemutest.Small, Change: func(r *vmm.PlanRequest) { r.Info.Details.(*qemu.Details).Devices = nil }}, []string{"machineType", "machineType"}},
		"watchdog on pc":         {qemutest.Case{YAML: qemutest.KernelBoot + "machineType: pc\ndevices: {watchdog: {model: itco}}"}, []string{"devices.watchdog.model"}},
		"watchdog virtio":        {qemutest.Case{YAML: qemutest.KernelBoot + "devices: {watchdog: {model: virtio}}"}, []string{"devices.watchdog.model"}},
		"vCPUs to be plugged in": {qemutest.Case{YAML: qemutest.Small + "cpu: {maxVcpus: 300}"}, []string{"cpu.maxVcpus"}},
		"no plugging":            {qemutest.Case{YAML: qemutest.Small + "machineType: microvm\ncpu: {maxVcpus: 2}"}, []string{"cpu.maxVcpus"}},
		"NUMA on 7.2":            {qemutest.Case{YAML: qemutest.Small + qemutest.NUMA}, []string{"numa.nodes"}},
		"microvm's rest": {qemutest.Case{YAML: qemutest.KernelBoot + "machineType: microvm\nmemory: {size: 1Gi}\nnuma: {nodes: [{cpus: '0', memory: 1Gi}]}\nhostDevices: [{pciAddress: '0000:01:00.0'}]\ndevices: {tpm: {socket: /a}}"},
			[]string{"numa", "devices.tpm", "hostDevices"}},
		"no libnuma": {qemutest.Case{Info: "10.0", YAML: qemutest.Small + "memory: {size: 1Gi}\nnuma: {nodes: [{cpus: '0', memory: 1Gi, hostNodes: '0'}]}",
			Change: func(r *vmm.PlanRequest) {
				r.Info.Details.(*qemu.Details).HostNodes, r.Image = false, qemutest.Image(true)
			}}, []string{"numa.nodes[0].hostNodes"}},
		"restored host device": {qemutest.Case{YAML: qemutest.Small + "hostDevices: [{pciAddress: '0000:01:00.0'}]",
			Change: func(r *vmm.PlanRequest) { r.Image = qemutest.Image(false) }}, []string{"hostDevices"}},
		"no CRB": {qemutest.Case{Info: "arm64", Arch: "arm64", YAML: "devices: {tpm: {socket: /a, model: tpm-crb}}"}, []string{"devices.tpm.model"}},
		"features on microvm": {qemutest.Case{YAML: "machineType: microvm\n" + qemutest.Small2("inputs: [{}], video: {}") + "system: {serial: a}\nfeatures: {smm: true}\nclock: {hpet: {present: true}, pit: {tickPolicy: delay}, rtc: {tickPolicy: catchup}}\nnetworks: [{bootOrder: 1}]\n"},
			[]string{"system", "clock.hpet.present", "clock.pit.tickPolicy", "clock.rtc.tickPolicy", "features.smm", "networks[0].bootOrder", "devices.video", "devices.inputs[0].bus"}},
		"no ACPI":      {qemutest.Case{YAML: "boot: {firmware: uefi}\nfeatures: {acpi: false}\ncpu: {maxVcpus: 2}"}, []string{"features.acpi", "features.acpi"}},
		"no APIC":      {qemutest.Case{YAML: qemutest.Small + "features: {apic: false}"}, []string{"features.apic"}},
		"timers":       {qemutest.Case{YAML: qemutest.Small + "clock: {rtc: {present: false}, hpet: {tickPolicy: merge}}"}, []string{"clock.rtc.present", "clock.hpet.tickPolicy"}},
		"forbidden":    {qemutest.Case{YAML: qemutest.Small + "cpu: {features: [{name: avx, policy: forbid}, {name: frob, policy: force}]}"}, []string{"cpu.features[0].name", "cpu.features[1].name"}},
		"inputs on pc": {qemutest.Case{YAML: "machineType: pc\n" + qemutest.Small2("inputs: [{bus: virtio}, {bus: virtio}, {bus: virtio}, {bus: virtio}]")}, []string{"devices.inputs[3].bus"}},
		"no igb":       {qemutest.Case{Info: "7.2", YAML: qemutest.Small + "networks: [{model: igb}]"}, []string{"networks[0].model"}},
		"arm64": {qemutest.Case{Info: "arm64", Arch: "arm64", YAML: "disks: [{path: /a}]\n" + "features: {kvmHidden: true, pvSpinlock: true, hyperv: {spinlocks: 8191}}\nclock: {kvm: {present: true}, hyperv: {present: true}, rtc: {tickPolicy: catchup}}"},
			[]string{"features.kvmHidden", "features.pvSpinlock", "features.hyperv", "clock.kvm.present", "clock.hyperv.present", "clock.rtc.tickPolicy"}},
		"no pv-unhalt": {qemutest.Case{Hypervisor: "kvm", YAML: qemutest.Small + "features: {pvSpinlock: true}", Change: func(r *vmm.PlanRequest) {
			a := r.Info.Details.(*qemu.Details).Accelerators["kvm"]
			a.Available = nil
			r.Info.Details.(*qemu.Details).Accelerators["kvm"] = a
		}}, []string{"features.pvSpinlock"}},
		"several at once": {qemutest.Case{YAML: qemutest.Small + "cpu: {model: frob, features: [{name: frob}]}\nnetworks: [{tap: {}}]"}, []string{"cpu.model", "cpu.features[0].name", "networks[0].tap"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := qemu.QEMU{}.Plan(c.c.Request(qemutest.Fixture(t, "testdata", cmp.Or(c.c.Info, "7.2"))))
			faults, ok := err.(spec.FieldErrors)
			if !ok {
				t.Fatalf("error %v (%T), want faults of the fields %q", err, err, c.fields)
			}
			var fields []string
			for _, f := range faults {
				fields = append(fields, f.Field)
			}
			if !slices.Equal(fields, c.fields) {
				t.Errorf("faults\n%v\nwant them of the fields %q", faults, c.fields)
			}
		})
	}
}

func sataDisks(n int) string {
	text := "disks:\n"
	for i := range n {
		text += fmt.Sprintf("- {path: /%d, bus: sata}\n", i)
	}
	return text
}
