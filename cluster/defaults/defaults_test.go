package defaults

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/contract"
)

func parse(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// TestInstance: what is wanted is there; wanted lists have no more elements.
func TestInstance(t *testing.T) {
	domain := func(d string) string { return "{domain: {" + d + "}}" }
	devices := func(d string) string { return "{domain: {devices: {" + d + "}}}" }
	for _, c := range []struct{ spec, want string }{
		{"{}", "{architecture: amd64, evictionStrategy: None, domain: {machine: {type: q35}, cpu: {sockets: 1, cores: 1, threads: 1, model: host-model}, firmware: {}, memory: null, resources: {}, " +
			"devices: {interfaces: [{name: default, masquerade: {}}]}}, networks: [{name: default, pod: {}}]}"},
		{"{architecture: arm64}", "{domain: {machine: {type: virt}, cpu: {model: host-passthrough}, firmware: {bootloader: {efi: {secureBoot: false}}}}}"},
		{"{architecture: arm64, domain: {firmware: {bootloader: {bios: {}}}}}", domain("firmware: {bootloader: {bios: {}}}")},
		{domain("firmware: {bootloader: {efi: {}}}"), domain("firmware: {bootloader: {efi: {secureBoot: null}}}")},
		{"{architecture: riscv64}", domain("machine: {type: ''}")},
		{"{evictionStrategy: External, domain: {machine: {type: pc-q35-7.2}, cpu: {model: Haswell}}}", "{evictionStrategy: External, domain: {machine: {type: pc-q35-7.2}, cpu: {model: Haswell}}}"},
		// Memory and processors.
		{domain("resources: {requests: {memory: 1Gi}, limits: {memory: 2Gi}}"), domain("memory: {guest: 1Gi}")},
		{domain("resources: {limits: {memory: 2Gi}}"), domain("memory: {guest: 2Gi}")},
		{domain("memory: {guest: 3Gi}, resources: {requests: {memory: 1Gi}}"), domain("memory: {guest: 3Gi}")},
		{domain("memory: {hugepages: {pageSize: 2Mi}}, resources: {requests: {memory: 1Gi}}"), domain("memory: {guest: 1Gi}")},
		{domain("resources: {requests: {cpu: 1500m}}"), domain("cpu: {sockets: 2, cores: 1, threads: 1}")},
		{domain("resources: {requests: {cpu: 1}, limits: {cpu: 3}}"), domain("cpu: {sockets: 3, cores: 1, threads: 1}, resources: {requests: {cpu: 1}}")},
		{domain("resources: {limits: {cpu: 2}}"), domain("cpu: {sockets: 2}, resources: {requests: {cpu: 2}}")},
		{domain("cpu: {cores: 4}, resources: {limits: {cpu: 2}}"), domain("cpu: {sockets: 1, cores: 4, threads: 1}")},
		{domain("resources: {limits: {cpu: 1e18}}"), domain("cpu: {sockets: 65536}")},
		{domain("resources: {limits: {cpu: -3}}"), domain("cpu: {sockets: 1}")},
		// Features and clocks.
		{domain("features: {acpi: {enabled: false}, apic: {}, smm: {}, hypervPassthrough: {}, pvspinlock: {enabled: false}, kvm: {hidden: true}}"),
			domain("features: {acpi: {enabled: false}, apic: {enabled: true}, smm: {enabled: true}, hypervPassthrough: {enabled: true}, pvspinlock: {enabled: false}, kvm: {hidden: true}}")},
		{domain("features: {hyperv: {relaxed: {}, spinlocks: {}, vendorid: {vendorid: a}}}"),
			domain("features: {acpi: {enabled: true}, hyperv: {relaxed: {enabled: true}, spinlocks: {enabled: true, spinlocks: 4096}, vendorid: {enabled: true}, vpindex: null}}")},
		{domain("features: {hyperv: {spinlocks: {enabled: false}}}"), domain("features: {hyperv: {spinlocks: {spinlocks: null}}}")},
		{domain("features: {hyperv: {synictimer: {direct: {}}}}"), domain("features: {hyperv: {synictimer: {enabled: true, direct: {enabled: true}}, synic: {enabled: true}, vpindex: {enabled: true}}}")},
		{domain("features: {hyperv: {synictimer: {enabled: false}}}"), domain("features: {hyperv: {synic: null, vpindex: null}}")},
		{domain("features: {hyperv: {tlbflush: {extended: {}}}}"), domain("features: {hyperv: {vpindex: {enabled: true}, tlbflush: {enabled: true, extended: {enabled: true}, direct: null}}}")},
		{domain("features: {hyperv: {ipi: {}, vpindex: {enabled: false}}}"), domain("features: {hyperv: {vpindex: {enabled: false}}}")},
		{domain("cpu: {features: [{name: x}]}, features: {hyperv: {evmcs: {}}}"), domain("cpu: {features: [{name: x}, {name: vmx, policy: require}]}, features: {hyperv: {vapic: {enabled: true}}}")},
		{domain("cpu: {features: [{name: vmx, policy: force}]}, features: {hyperv: {evmcs: {}}}"), domain("cpu: {features: [{name: vmx, policy: force}]}")},
		{domain("clock: {timer: {hpet: {present: false}, pit: {}, rtc: {}, kvm: {}, hyperv: {}}}"), domain("clock: {timer: {hpet: {present: false}, pit: {present: true}, rtc: {present: true}, kvm: {present: true}, hyperv: {present: true}}}")},
		// Images.
		{"{volumes: [{name: a, containerDisk: {image: 'localhost:5000/a'}}, {name: b, containerDisk: {image: 'a:latest'}}, {name: c, containerDisk: {image: 'a:v1'}}, {name: d, containerDisk: {image: 'a:latest@sha256:00'}}, {name: e, containerDisk: {image: a, imagePullPolicy: Never}}]}",
			"{volumes: [{containerDisk: {imagePullPolicy: Always}}, {containerDisk: {imagePullPolicy: Always}}, {containerDisk: {imagePullPolicy: IfNotPresent}}, {containerDisk: {imagePullPolicy: IfNotPresent}}, {containerDisk: {imagePullPolicy: Never}}]}"},
		{domain("firmware: {kernelBoot: {container: {image: 'a:v1'}}}"), domain("firmware: {kernelBoot: {container: {imagePullPolicy: IfNotPresent}}}")},
		// Networks.
		{devices("autoattachPodInterface: false"), "{domain: {devices: {interfaces: []}}, networks: []}"},
		{"{domain: {devices: {interfaces: [{name: a}, {name: b, bridge: {}}, {name: c}]}}, networks: [{name: a, pod: {}}, {name: b, pod: {}}, {name: c, multus: {networkName: x}}]}",
			"{domain: {devices: {interfaces: [{masquerade: {}}, {bridge: {}, masquerade: null}, {masquerade: null, bridge: null}]}}}"},
		// Disks and other devices.
		{"{domain: {devices: {disks: [{name: b, cdrom: {}}], filesystems: [{name: c, virtiofs: {}}]}}, volumes: [{name: a, emptyDisk: {capacity: 1Gi}}, {name: b, secret: {secretName: s}}, {name: c, secret: {secretName: s}}, {name: d, memoryDump: {claimName: d}}, {name: e, containerPath: {path: /}}]}",
			devices("disks: [{name: b, cdrom: {bus: sata, readonly: true, tray: closed}}, {name: a, disk: {bus: sata}}]")},
		{"{architecture: arm64, domain: {devices: {disks: [{name: a}, {name: b, cdrom: {}}, {name: c, disk: {bus: usb}}]}}}", devices("disks: [{disk: {bus: virtio}}, {cdrom: {bus: scsi}}, {disk: {bus: usb}}]")},
		{devices("disks: [{name: a, cdrom: {bus: scsi, readonly: false, tray: open}}]"), devices("disks: [{cdrom: {bus: scsi, readonly: false, tray: open}}]")},
		{devices("inputs: [{name: a, type: keyboard, bus: virtio}, {name: b}]"), devices("inputs: [{name: a, type: keyboard, bus: virtio}, {name: b, type: tablet, bus: usb}]")},
		{devices("autoattachInputDevice: true"), devices("inputs: [{name: default-0, type: tablet, bus: usb}]")},
		{devices("autoattachInputDevice: true, inputs: [{name: a}]"), devices("inputs: [{name: a}]")},
		{devices("watchdog: {name: w}"), devices("watchdog: {i6300esb: {action: reset}}")},
		{devices("watchdog: {name: w, i6300esb: {action: shutdown}}"), devices("watchdog: {i6300esb: {action: shutdown}}")},
	} {
		vmi := new(kubevirtv1.VirtualMachineInstance)
		parse(t, c.spec, &vmi.Spec)
		check(t, c.spec, vmi, configuration.Default(), c.want)
	}
}

func check(t *testing.T, name string, vmi *kubevirtv1.VirtualMachineInstance, c configuration.Configuration, want string) {
	t.Helper()
	Instance(vmi, c)
	wanted := vmi.DeepCopy()
	parse(t, want, &wanted.Spec)
	if !equality.Semantic.DeepEqual(vmi.Spec, wanted.Spec) {
		got, _ := yaml.Marshal(vmi.Spec)
		t.Errorf("%s: the instance is\n%s\nwant in it %s", name, got, want)
	}
	again := vmi.DeepCopy()
	Instance(again, c)
	if !equality.Semantic.DeepEqual(again, vmi) {
		t.Errorf("%s: defaults filled in a second time change the instance: %+v, want %+v", name, again.Spec, vmi.Spec)
	}
}

func TestInstanceByConfiguration(t *testing.T) {
	c := configuration.Default()
	request := resource.MustParse("2500m")
	c.DefaultArchitecture, c.MachineType, c.CPUModel = "amd64", map[string]string{"amd64": "pc-q35-7.2"}, "Haswell"
	c.CPURequest, c.EvictionStrategy, c.DefaultInterface = &request, kubevirtv1.EvictionExternal, "bridge"
	vmi := new(kubevirtv1.VirtualMachineInstance)
	check(t, "configured", vmi, c, "{evictionStrategy: External, domain: {machine: {type: pc-q35-7.2}, cpu: {model: Haswell, sockets: 3}, resources: {requests: {cpu: 2500m}}, devices: {interfaces: [{bridge: {}, masquerade: null}]}}}")
	vmi.Spec.Domain.Resources.Requests["cpu"] = resource.MustParse("1")
	if c.CPURequest.String() != "2500m" {
		t.Errorf("a change of an instance changed the configuration: cpuRequest is %s", c.CPURequest)
	}
	vmi = &kubevirtv1.VirtualMachineInstance{Spec: kubevirtv1.VirtualMachineInstanceSpec{Architecture: "arm64"}}
	check(t, "another architecture", vmi, c, "{domain: {machine: {type: virt}, cpu: {model: Haswell}}}")
}

// TestInstanceKeepsItsHypervisor: what the cluster chooses is noted when an instance is made, so that a
// later choice is not its; its own word stays.
func TestInstanceKeepsItsHypervisor(t *testing.T) {
	for _, c := range []struct{ cluster, own, uid, want string }{
		{"mshv", "", "", "mshv"}, {"mshv", "kvm", "", "kvm"}, {"mshv", "", "uid", ""}, {"", "", "", ""}, {"auto", "", "", "auto"},
	} {
		config := configuration.Default()
		config.Hypervisor = c.cluster
		vmi := new(kubevirtv1.VirtualMachineInstance)
		vmi.UID = types.UID(c.uid)
		if c.own != "" {
			vmi.Annotations = map[string]string{contract.AnnotationHypervisor: c.own}
		}
		Instance(vmi, config)
		if got := vmi.Annotations[contract.AnnotationHypervisor]; got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestInstanceForCloudHypervisor(t *testing.T) {
	vmi := new(kubevirtv1.VirtualMachineInstance)
	vmi.Annotations = map[string]string{contract.AnnotationVMM: "cloud-hypervisor"}
	parse(t, "{architecture: amd64, domain: {devices: {disks: [{name: a}, {name: b, disk: {bus: sata}}]}}, volumes: [{name: c}]}", &vmi.Spec)
	check(t, "without buses", vmi, configuration.Default(), "{domain: {devices: {disks: [{name: a, disk: {bus: virtio}}, {name: b, disk: {bus: sata}}, {name: c, disk: {bus: virtio}}]}}}")
}

// TestBusWhereAStackMayChooseTheVMM: no bus is filled in that the VMM might not have which a virtualisation
// stack's webhook chooses later.
func TestBusWhereAStackMayChooseTheVMM(t *testing.T) {
	one := make([]kubevirtv1.PluginWebhookSpecification, 1)
	for _, c := range []struct {
		hooks *kubevirtv1.PluginWebhooks
		want  string
	}{
		{nil, "sata scsi sata"},
		{&kubevirtv1.PluginWebhooks{ValidatingWebhooks: one}, "sata scsi sata"},
		{&kubevirtv1.PluginWebhooks{MutatingWebhooks: one}, " scsi "},
	} {
		vmi, config := new(kubevirtv1.VirtualMachineInstance), configuration.Default()
		parse(t, "{architecture: amd64, domain: {devices: {disks: [{name: a}, {name: b, disk: {bus: scsi}}, {name: c, cdrom: {}}]}}}", &vmi.Spec)
		config.Stack.Webhooks = c.hooks
		Instance(vmi, config)
		disks := vmi.Spec.Domain.Devices.Disks
		if got := fmt.Sprintf("%s %s %s", disks[0].Disk.Bus, disks[1].Disk.Bus, disks[2].CDROM.Bus); got != c.want {
			t.Errorf("with webhooks %+v the buses are %q, want %q", c.hooks, got, c.want)
		}
	}
}

func TestFinalizerOfANewInstance(t *testing.T) {
	for _, c := range []struct {
		meta metav1.ObjectMeta
		want []string
	}{
		{metav1.ObjectMeta{}, []string{contract.FinalizerInstance}},
		{metav1.ObjectMeta{Finalizers: []string{"x", contract.FinalizerInstance}}, []string{"x", contract.FinalizerInstance}},
		{metav1.ObjectMeta{UID: "u"}, nil},
		{metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}, nil},
	} {
		vmi := &kubevirtv1.VirtualMachineInstance{ObjectMeta: c.meta}
		Instance(vmi, configuration.Default())
		if got := fmt.Sprint(vmi.Finalizers); got != fmt.Sprint(c.want) {
			t.Errorf("%+v: finalizers are %s, want %s", c.meta, got, c.want)
		}
	}
}

func TestMachineGetsAnIdentityAndNothingElse(t *testing.T) {
	vm := new(kubevirtv1.VirtualMachine)
	parse(t, "{runStrategy: Always, template: {spec: {domain: {devices: {disks: [{name: a}]}}, volumes: [{name: b, containerDisk: {image: i}}]}}}", &vm.Spec)
	want := vm.DeepCopy()
	Machine(vm, configuration.Default())
	got := vm.Spec.Template.Spec.Domain.Firmware
	if got == nil || uuid.Validate(string(got.UUID)) != nil || got.Serial == "" {
		t.Fatalf("firmware is %+v, want a UUID and a serial number", got)
	}
	want.Finalizers = []string{contract.FinalizerMachine}
	want.Annotations = map[string]string{"kubevirt.io/latest-observed-api-version": "v1", "kubevirt.io/storage-observed-api-version": "v1"}
	want.Spec.Template.Spec.Domain.Firmware = &kubevirtv1.Firmware{UUID: got.UUID, Serial: got.Serial}
	if !equality.Semantic.DeepEqual(vm, want) {
		t.Errorf("a new VM is %+v, want %+v", vm, want)
	}
	Machine(vm, configuration.Default())
	if !equality.Semantic.DeepEqual(vm, want) {
		t.Errorf("filled in a second time it is %+v, want %+v", vm, want)
	}
	other := new(kubevirtv1.VirtualMachine)
	other.Spec.Template = new(kubevirtv1.VirtualMachineInstanceTemplateSpec)
	Machine(other, configuration.Default())
	if f := other.Spec.Template.Spec.Domain.Firmware; f.UUID == got.UUID || f.Serial == got.Serial {
		t.Errorf("two VMs have the identity %+v", f)
	}
}

func TestMachineLeavesOthersAlone(t *testing.T) {
	given := &kubevirtv1.Firmware{UUID: "5d307ca9-b3ef-428c-8861-06e72d69f223", Serial: "7"}
	for name, vm := range map[string]*kubevirtv1.VirtualMachine{
		"an old one":          {ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: kubevirtv1.VirtualMachineSpec{Template: new(kubevirtv1.VirtualMachineInstanceTemplateSpec)}},
		"one that is deleted": {ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}},
		"one with an identity": {ObjectMeta: metav1.ObjectMeta{Finalizers: []string{contract.FinalizerMachine}, Annotations: map[string]string{
			contract.AnnotationLatestVersion: kubevirtv1.Version, contract.AnnotationStorageVersion: kubevirtv1.Version,
		}}, Spec: kubevirtv1.VirtualMachineSpec{Template: &kubevirtv1.VirtualMachineInstanceTemplateSpec{
			Spec: kubevirtv1.VirtualMachineInstanceSpec{Domain: kubevirtv1.DomainSpec{Firmware: given}},
		}}},
	} {
		want := vm.DeepCopy()
		Machine(vm, configuration.Default())
		if !equality.Semantic.DeepEqual(vm, want) {
			t.Errorf("%s became %+v, want %+v", name, vm, want)
		}
	}
	noTemplate := new(kubevirtv1.VirtualMachine)
	Machine(noTemplate, configuration.Default()) // the definition refuses it, and not before this
}

// FuzzInstance: defaults fit any object that decodes, and once is enough.
func FuzzInstance(f *testing.F) {
	f.Add(`{"spec":{"domain":{"features":{"hyperv":{"synictimer":{},"evmcs":{}}},"clock":{"timer":{"rtc":{}}},"devices":{"watchdog":{},"disks":[{"cdrom":{}}]},"resources":{"limits":{"cpu":"1e9"}}},"volumes":[{}]}}`)
	f.Add(`{"spec":{"architecture":"arm64","domain":{"firmware":{"kernelBoot":{"container":{}}},"devices":{"interfaces":[{}]}},"networks":[{"pod":{}}]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var vmi kubevirtv1.VirtualMachineInstance
		if yaml.Unmarshal([]byte(text), &vmi) != nil {
			return
		}
		Instance(&vmi, configuration.Default())
		again := vmi.DeepCopy()
		if Instance(again, configuration.Default()); !equality.Semantic.DeepEqual(&vmi, again) {
			t.Errorf("filled in a second time the instance is %+v, want %+v", again.Spec, vmi.Spec)
		}
	})
}

// TestKeepIdentity: who replaces a VM by his manifest keeps the machine, and who gives it another identity has that.
func TestKeepIdentity(t *testing.T) {
	for name, c := range map[string]struct{ now, old, want *kubevirtv1.Firmware }{
		"none before":          {},
		"another before":       {old: &kubevirtv1.Firmware{UUID: "u", Serial: "s"}, want: &kubevirtv1.Firmware{UUID: "u", Serial: "s"}},
		"firmware of its own":  {now: &kubevirtv1.Firmware{}, old: &kubevirtv1.Firmware{UUID: "u"}, want: &kubevirtv1.Firmware{UUID: "u"}},
		"another UUID":         {now: &kubevirtv1.Firmware{UUID: "v"}, old: &kubevirtv1.Firmware{UUID: "u", Serial: "s"}, want: &kubevirtv1.Firmware{UUID: "v", Serial: "s"}},
		"another serial":       {now: &kubevirtv1.Firmware{Serial: "r"}, old: &kubevirtv1.Firmware{UUID: "u", Serial: "s"}, want: &kubevirtv1.Firmware{UUID: "u", Serial: "r"}},
		"no identity before":   {old: &kubevirtv1.Firmware{}},
		"a serial alone is it": {old: &kubevirtv1.Firmware{Serial: "s"}, want: &kubevirtv1.Firmware{Serial: "s"}},
	} {
		vm, old := &kubevirtv1.VirtualMachine{}, &kubevirtv1.VirtualMachine{}
		vm.Spec.Template, old.Spec.Template = &kubevirtv1.VirtualMachineInstanceTemplateSpec{}, &kubevirtv1.VirtualMachineInstanceTemplateSpec{}
		vm.Spec.Template.Spec.Domain.Firmware, old.Spec.Template.Spec.Domain.Firmware = c.now, c.old
		KeepIdentity(vm, old)
		if got := vm.Spec.Template.Spec.Domain.Firmware; !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: the firmware is %+v, want %+v", name, got, c.want)
		}
	}
	whole := &kubevirtv1.VirtualMachine{}
	whole.Spec.Template = &kubevirtv1.VirtualMachineInstanceTemplateSpec{}
	whole.Spec.Template.Spec.Domain.Firmware = &kubevirtv1.Firmware{UUID: "u"}
	for _, c := range [][2]*kubevirtv1.VirtualMachine{{{}, whole}, {whole.DeepCopy(), {}}, {{}, {}}} {
		before := c[0].DeepCopy()
		KeepIdentity(c[0], c[1])
		if !reflect.DeepEqual(c[0], before) {
			t.Errorf("where one has no template the VM becomes %+v", c[0].Spec.Template)
		}
	}
}
