package instancetype

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	instancetypev1 "github.com/vmlet/vmlet/api/instancetype/v1"
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

func parse[T any](t *testing.T, text string) *T {
	t.Helper()
	if text == "" {
		return nil
	}
	to := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), to); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return to
}

// vmOf has a template's spec, and names an instancetype and a preference.
func vmOf(t *testing.T, spec string) *kubevirtv1.VirtualMachine {
	t.Helper()
	vm := &kubevirtv1.VirtualMachine{}
	vm.Name, vm.Namespace = "web", "ns"
	vm.Spec.Instancetype = &kubevirtv1.InstancetypeMatcher{Name: "u1"}
	vm.Spec.Preference = &kubevirtv1.PreferenceMatcher{Name: "linux"}
	vm.Spec.Template = parse[kubevirtv1.VirtualMachineInstanceTemplateSpec](t, "{spec: "+spec+"}")
	return vm
}

func typesOf(t *testing.T, size, preference string) Types {
	t.Helper()
	return Types{
		Instancetype: parse[instancetypev1.VirtualMachineInstancetypeSpec](t, size),
		Preference:   parse[instancetypev1.VirtualMachinePreferenceSpec](t, preference),
	}
}

const (
	bare  = "{domain: {devices: {}}}"
	small = "{cpu: {guest: 1}, memory: {guest: 1Gi}}"
)

func fieldsOf(faults field.ErrorList) (all []string) {
	for _, f := range faults {
		all = append(all, f.Field)
	}
	return all
}

// TestConflicts: all fields that the VM and its instancetype set are reported at once, by the paths
// that KubeVirt reports them by.
func TestConflicts(t *testing.T) {
	const domain = "spec.template.spec.domain."
	full := `{nodeSelector: {a: b}, schedulerName: s, annotations: {a: b, c: d}, ioThreadsPolicy: auto, ioThreads: {supplementalPoolThreadCount: 1},
		launchSecurity: {sev: {}}, gpus: [{name: g}], hostDevices: [{name: h}],
		cpu: {guest: 2, model: m, dedicatedCPUPlacement: false, isolateEmulatorThread: true, numa: {}, realtime: {}, maxSockets: 4},
		memory: {guest: 1Gi, maxGuest: 2Gi, hugepages: {pageSize: 2Mi}}}`
	own := `{nodeSelector: {}, schedulerName: t, domain: {ioThreadsPolicy: shared, ioThreads: {supplementalPoolThreadCount: 2}, launchSecurity: {tdx: {}},
		devices: {gpus: [{name: x}], hostDevices: [{name: y}]},
		cpu: {sockets: 1, cores: 1, threads: 1, model: n, dedicatedCpuPlacement: true, isolateEmulatorThread: true, numa: {}, realtime: {}, maxSockets: 9},
		memory: {guest: 3Gi, maxGuest: 3Gi, hugepages: {}},
		resources: {requests: {cpu: 1, memory: 1Gi, example.com/x: 1}, limits: {cpu: 1, memory: 1Gi}}}}`
	for _, c := range []struct {
		name, size, spec string
		want             []string
	}{
		{"nothing is set", full, bare, nil},
		{"what the instancetype leaves open", small, `{nodeSelector: {a: b}, schedulerName: t, domain: {ioThreadsPolicy: shared, launchSecurity: {tdx: {}},
			devices: {gpus: [{name: x}]}, cpu: {model: n, dedicatedCpuPlacement: true, numa: {}}, memory: {maxGuest: 3Gi}, resources: {requests: {example.com/x: 1}}}}`, nil},
		{"all is set", full, own, []string{
			"spec.template.spec.nodeSelector", "spec.template.spec.schedulerName",
			domain + "resources.requests.cpu", domain + "resources.limits.cpu", domain + "cpu.sockets", domain + "cpu.cores", domain + "cpu.threads",
			domain + "cpu.model", domain + "cpu.dedicatedCPUPlacement", domain + "cpu.isolateEmulatorThread", domain + "cpu.numa", domain + "cpu.realtime",
			domain + "resources.requests.memory", domain + "resources.limits.memory", domain + "memory.guest", domain + "memory.hugepages", domain + "memory.maxGuest",
			domain + "ioThreadsPolicy", domain + "ioThreads.supplementalPoolThreadCount", domain + "launchSecurity", domain + "devices.gpus", domain + "devices.hostDevices",
			"spec.template.metadata.annotations[c]",
		}},
	} {
		vm := vmOf(t, c.spec)
		vm.Spec.Template.Annotations = map[string]string{"a": "b", "c": "other"}
		if c.want == nil {
			vm.Spec.Template.Annotations = nil
		}
		_, faults := Expand(vm, typesOf(t, c.size, ""))
		if got := fieldsOf(faults); !slices.Equal(got, c.want) {
			t.Errorf("%s: conflicts are of\n%q\nwant\n%q", c.name, got, c.want)
		}
		for _, f := range faults {
			if !strings.Contains(f.Detail, "conflicts with selected instance type u1") {
				t.Errorf("%s: %v does not name the instancetype", c.name, f)
			}
		}
	}
}

// TestExpandLeavesTheVM: neither the VM nor its types change, and without types nothing is copied.
func TestExpandLeavesTheVM(t *testing.T) {
	vm := vmOf(t, "{domain: {devices: {disks: [{name: a}]}}, volumes: [{name: a, emptyDisk: {capacity: 1Gi}}]}")
	types := typesOf(t, `{cpu: {guest: 1}, memory: {guest: 1Gi, overcommitPercent: 50}, annotations: {a: b}}`, `{devices: {preferredDiskBus: virtio}, cpu: {preferredCPUFeatures: [{name: vmx}]}}`)
	was, wasTypes := vm.DeepCopy(), Types{types.Instancetype.DeepCopy(), types.Preference.DeepCopy()}
	full, faults := Expand(vm, types)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	full.Spec.Template.Spec.Domain.CPU.Features[0].Name = "changed"
	full.Spec.Template.Spec.Domain.Memory.Guest.Set(1)
	if !equality.Semantic.DeepEqual(vm, was) {
		t.Errorf("the VM has become %v, want %v", vm, was)
	}
	if !equality.Semantic.DeepEqual(types, wasTypes) {
		t.Errorf("the types have become %v, want %v", types, wasTypes)
	}
	if same, _ := Expand(vm, Types{}); same != vm {
		t.Errorf("without types the VM is copied")
	}
}

func TestTopology(t *testing.T) {
	for _, c := range []struct {
		cpus             int32
		preference, want string
	}{
		{4, "", "4 1 1"},
		{4, "{}", "4 1 1"},
		{4, "{cpu: {}}", "4 1 1"},
		{4, "{cpu: {preferredCPUTopology: sockets}}", "4 1 1"},
		{4, "{cpu: {preferredCPUTopology: preferSockets}}", "4 1 1"},
		{4, "{cpu: {preferredCPUTopology: cores}}", "1 4 1"},
		{4, "{cpu: {preferredCPUTopology: preferCores}}", "1 4 1"},
		{4, "{cpu: {preferredCPUTopology: threads}}", "1 1 4"},
		{4, "{cpu: {preferredCPUTopology: preferThreads}}", "1 1 4"},
		{4, "{cpu: {preferredCPUTopology: any}}", "4 1 1"},
		{4, "{cpu: {preferredCPUTopology: preferAny}}", "4 1 1"},
		{4, "{cpu: {preferredCPUTopology: spread}}", "2 2 1"},
		{8, "{cpu: {preferredCPUTopology: preferSpread}, preferSpreadSocketToCoreRatio: 4}", "2 4 1"},
		{8, "{cpu: {preferredCPUTopology: spread, spreadOptions: {ratio: 8}}, preferSpreadSocketToCoreRatio: 4}", "1 8 1"},
		{8, "{cpu: {preferredCPUTopology: spread, spreadOptions: {across: CoresThreads}}}", "1 4 2"},
		{16, "{cpu: {preferredCPUTopology: spread, spreadOptions: {across: SocketsCoresThreads, ratio: 4}}}", "2 4 2"},
		{1, "{cpu: {preferredCPUTopology: cores}}", "1 1 1"},
		{3, "{cpu: {preferredCPUTopology: spread}}", "can't be spread across SocketsCores with the preference's ratio of 2"},
		{1, "{cpu: {preferredCPUTopology: spread}}", "can't be spread"},
		{4, "{cpu: {preferredCPUTopology: spread, spreadOptions: {across: SocketsCoresThreads, ratio: 4}}}", "can't be spread across SocketsCoresThreads"},
		{3, "{cpu: {preferredCPUTopology: spread, spreadOptions: {across: CoresThreads}}}", "can't be spread across CoresThreads"},
		{4, "{cpu: {preferredCPUTopology: spread, spreadOptions: {across: CoresThreads, ratio: 4}}}", "it has to be 2"},
		{4, "{cpu: {preferredCPUTopology: spread, spreadOptions: {ratio: -1}}}", "has to be 1 at least"},
		{4, "{cpu: {preferredCPUTopology: dies}}", `"dies" is unknown`},
		{0, "{cpu: {preferredCPUTopology: spread}}", "1 1 1"},
		{-1, "", "needs a processor"},
	} {
		full, faults := Expand(vmOf(t, bare), typesOf(t, fmt.Sprintf("{cpu: {guest: %d}, memory: {guest: 1Gi}}", c.cpus), c.preference))
		got := fmt.Sprint(faults)
		if len(faults) == 0 {
			cpu := full.Spec.Template.Spec.Domain.CPU
			got = fmt.Sprint(cpu.Sockets, cpu.Cores, cpu.Threads)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%d processors with %q are %s, want %s", c.cpus, c.preference, got, c.want)
		}
	}
}

func TestOvercommit(t *testing.T) {
	for percent, want := range map[int]string{0: "<none>", 50: "512Mi", 100: "0", 1: "1063004405"} {
		full, faults := Expand(vmOf(t, bare), typesOf(t, fmt.Sprintf("{cpu: {guest: 1}, memory: {guest: 1Gi, overcommitPercent: %d}}", percent), ""))
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		got := "<none>"
		if q, set := full.Spec.Template.Spec.Domain.Resources.Requests["memory"]; set {
			got = q.String()
		}
		if got != want {
			t.Errorf("%d %%: the pod requests %s, want %s", percent, got, want)
		}
	}
	if got := less(1<<62, 1); got < 1<<61 {
		t.Errorf("a large amount has become %d", got)
	}
}

// TestNothingSet: what Go programs write for what they did not set is not taken for a size.
func TestNothingSet(t *testing.T) {
	full, faults := Expand(vmOf(t, "{domain: {devices: {}, memory: {guest: 2Gi}}}"), typesOf(t, "{cpu: {guest: 0}, memory: {guest: 0, overcommitPercent: 10}}", ""))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	d := full.Spec.Template.Spec.Domain
	if got := d.Memory.Guest.String(); got != "2Gi" || d.CPU.Sockets != 1 || len(d.Resources.Requests) > 0 {
		t.Errorf("the guest has %s and %d sockets, its pod requests %v, want 2Gi, 1 and nothing", got, d.CPU.Sockets, d.Resources.Requests)
	}
}

func TestUnmet(t *testing.T) {
	const all = "requirements: {cpu: {guest: 2}, memory: {guest: 2Gi}, architecture: amd64}"
	const cpu = "spec.template.spec.domain.cpu"
	for _, c := range []struct {
		size, preference, spec string
		want                   []string
	}{
		{"", "{}", bare, nil},
		{"{cpu: {guest: 2}, memory: {guest: 2Gi}}", "{" + all + "}", bare, nil},
		{small, "{" + all + "}", "{architecture: arm64, domain: {devices: {}}}", []string{"spec.instancetype", "spec.instancetype", "spec.template.spec.architecture"}},
		{"", "{" + all + "}", bare, []string{cpu, "spec.template.spec.domain.memory"}},
		{"", "{" + all + "}", "{domain: {devices: {}, cpu: {cores: 4}, memory: {guest: 1Gi}}}", []string{cpu + ".sockets", "spec.template.spec.domain.memory"}},
		{"", "{" + all + "}", "{domain: {devices: {}, cpu: {sockets: 2}, resources: {requests: {memory: 2Gi}}}}", nil},
		{"", "{cpu: {preferredCPUTopology: cores}, " + all + "}", "{domain: {devices: {}, cpu: {cores: 2}, memory: {guest: 2Gi}}}", nil},
		{"", "{cpu: {preferredCPUTopology: threads}, " + all + "}", "{domain: {devices: {}, cpu: {cores: 2}, memory: {guest: 2Gi}}}", []string{cpu + ".threads"}},
		{"", "{cpu: {preferredCPUTopology: any}, " + all + "}", "{domain: {devices: {}, cpu: {threads: 2}, memory: {guest: 2Gi}}}", nil},
		{"", "{cpu: {preferredCPUTopology: any}, " + all + "}", "{domain: {devices: {}, cpu: {threads: 1}, memory: {guest: 2Gi}}}", []string{cpu + ".sockets", cpu + ".cores", cpu + ".threads"}},
		{"", "{cpu: {preferredCPUTopology: spread}, " + all + "}", "{domain: {devices: {}, cpu: {threads: 2}, memory: {guest: 2Gi}}}", []string{cpu + ".sockets", cpu + ".cores"}},
		{"", "{cpu: {preferredCPUTopology: spread, spreadOptions: {across: CoresThreads}}, " + all + "}", "{domain: {devices: {}, cpu: {sockets: 2}, memory: {guest: 2Gi}}}", []string{cpu + ".cores", cpu + ".threads"}},
		{"", "{requirements: {architecture: arm64}}", bare, []string{"spec.template.spec.architecture"}},
	} {
		types := typesOf(t, c.size, c.preference)
		full, faults := Expand(vmOf(t, c.spec), types)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		if got := fieldsOf(Unmet(full, types, "amd64")); !slices.Equal(got, c.want) {
			t.Errorf("%s of %q with %s: unmet are %q, want %q", c.preference, c.size, c.spec, got, c.want)
		}
	}
}

// preferable is a VM that has each device of which a preference fills something.
const preferable = `{domain: {devices: {disks: [{name: d}, {name: c, cdrom: {}}, {name: l, lun: {}}], gpus: [{name: g}], sound: {name: s}, inputs: [{name: i}],
	interfaces: [{name: n}]}}, networks: [{name: n, pod: {}}]}`

// TestPreferences: what is unset is filled, and what is set stays.
func TestPreferences(t *testing.T) {
	for _, c := range []struct{ preference, spec, want string }{
		{"{clock: {preferredClockOffset: {timezone: UTC}, preferredTimer: {hpet: {}}}}", "{domain: {devices: {}, clock: {utc: {}}}}", "{domain: {devices: {}, clock: {utc: {}, timer: {hpet: {}}}}}"},
		{"{cpu: {preferredCPUFeatures: [{name: vmx, policy: require}, {name: avx}]}}", "{domain: {devices: {}, cpu: {features: [{name: vmx, policy: disable}]}}}",
			"{domain: {devices: {}, cpu: {features: [{name: vmx, policy: disable}, {name: avx}]}}}"},
		{"{features: {preferredAcpi: {enabled: false}, preferredHyperv: {relaxed: {}, vapic: {enabled: false}}}}", "{domain: {devices: {}, features: {acpi: {enabled: true}, hyperv: {vapic: {}}}}}",
			"{domain: {devices: {}, features: {acpi: {enabled: true}, hyperv: {relaxed: {}, vapic: {}}}}}"},
		{"{firmware: {preferredUseBios: true, preferredUseBiosSerial: true}}", bare, "{domain: {devices: {}, firmware: {bootloader: {bios: {useSerial: true}}}}}"},
		{"{firmware: {preferredUseBios: true, preferredEfi: {}}}", "{domain: {devices: {}, firmware: {uuid: u, bootloader: {efi: {persistent: true}}}}}", "{domain: {devices: {}, firmware: {uuid: u, bootloader: {efi: {persistent: true}}}}}"},
		{"{firmware: {preferredEfi: {secureBoot: false}, preferredUseEfi: true, preferredUseSecureBoot: true}}", bare, "{domain: {devices: {}, firmware: {bootloader: {efi: {secureBoot: false}}}}}"},
		{"{firmware: {preferredEfi: {}, preferredUseSecureBoot: true}}", bare, "{domain: {devices: {}, firmware: {bootloader: {efi: {}}}}}"},
		{"{firmware: {preferredUseEfi: true, preferredUseSecureBoot: false}}", bare, "{domain: {devices: {}, firmware: {bootloader: {efi: {secureBoot: false}}}}}"},
		{"{firmware: {preferredUseBios: false}}", bare, bare},
		{"{devices: {preferredDiskBus: virtio, preferredDiskCache: none, preferredDiskIO: native, preferredDiskDedicatedIoThread: true, preferredCdromBus: sata, preferredLunBus: scsi, preferredAutoattachPodInterface: false}}",
			"{domain: {devices: {disks: [{name: a, disk: {bus: sata}, cache: writeback}, {name: b, cdrom: {}}, {name: c, lun: {}}]}}, volumes: [{name: d, emptyDisk: {capacity: 1Gi}}]}",
			"{domain: {devices: {autoattachPodInterface: false, disks: [{name: a, disk: {bus: sata}, cache: writeback, io: native}, {name: b, cdrom: {bus: sata}}, {name: c, lun: {bus: scsi}}, {name: d, disk: {bus: virtio}, cache: none, io: native, dedicatedIOThread: true}]}}, volumes: [{name: d, emptyDisk: {capacity: 1Gi}}]}"},
		{"{devices: {preferredInterfaceModel: e1000e, preferredInterfaceMasquerade: {}}}", bare, "{domain: {devices: {interfaces: [{name: default, model: e1000e, masquerade: {}}]}}, networks: [{name: default, pod: {}}]}"},
		{"{devices: {preferredInterfaceModel: e1000e, preferredInterfaceMasquerade: {}}}", "{domain: {devices: {interfaces: [{name: a, bridge: {}, model: virtio}, {name: b}]}}, networks: [{name: a, pod: {}}, {name: b, multus: {networkName: x}}]}",
			"{domain: {devices: {interfaces: [{name: a, bridge: {}, model: virtio}, {name: b, model: e1000e}]}}, networks: [{name: a, pod: {}}, {name: b, multus: {networkName: x}}]}"},
		{"{devices: {preferredAutoattachInputDevice: true, preferredInputBus: virtio, preferredAutoattachPodInterface: false}}", bare,
			"{domain: {devices: {autoattachInputDevice: true, autoattachPodInterface: false, inputs: [{name: default-0, bus: virtio, type: tablet}]}}}"},
		{"{preferredSubdomain: a, preferredTerminationGracePeriodSeconds: 5, preferredArchitecture: arm64, machine: {preferredMachineType: virt}}", "{subdomain: b, terminationGracePeriodSeconds: 0, architecture: amd64, domain: {devices: {}, machine: {type: q35}}}",
			"{subdomain: b, terminationGracePeriodSeconds: 0, architecture: amd64, domain: {devices: {}, machine: {type: q35}}}"},
	} {
		full, faults := Expand(vmOf(t, c.spec), typesOf(t, "", c.preference))
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		want := vmOf(t, c.want).Spec.Template.Spec
		if !equality.Semantic.DeepEqual(full.Spec.Template.Spec, want) {
			got, _ := json.Marshal(full.Spec.Template.Spec)
			wanted, _ := json.Marshal(want)
			t.Errorf("%s on %s is\n%s\nwant\n%s", c.preference, c.spec, got, wanted)
		}
	}
}

func TestStorageClass(t *testing.T) {
	vm := vmOf(t, bare)
	vm.Spec.DataVolumeTemplates = *parse[[]kubevirtv1.DataVolumeTemplateSpec](t, "[{spec: {pvc: {}}}, {spec: {storage: {}}}, {spec: {storage: {storageClassName: own}}}]")
	full, _ := Expand(vm, typesOf(t, "", "{volumes: {preferredStorageClassName: fast}}"))
	var got []string
	for _, d := range full.Spec.DataVolumeTemplates {
		if d.Spec.PVC != nil {
			got = append(got, *d.Spec.PVC.StorageClassName)
		} else {
			got = append(got, *d.Spec.Storage.StorageClassName)
		}
	}
	if want := []string{"fast", "fast", "own"}; !slices.Equal(got, want) {
		t.Errorf("storage classes are %q, want %q", got, want)
	}
}

// TestEveryFieldCounts: no field of the types is forgotten: each changes the VM, where what it
// depends on is set.
func TestEveryFieldCounts(t *testing.T) {
	needs := map[string]string{
		"preferSpreadSocketToCoreRatio":          "{cpu: {preferredCPUTopology: spread}}",
		"cpu.spreadOptions.across":               "{cpu: {preferredCPUTopology: spread}}",
		"cpu.spreadOptions.ratio":                "{cpu: {preferredCPUTopology: spread}}",
		"firmware.preferredUseBiosSerial":        "{firmware: {preferredUseBios: true}}",
		"firmware.preferredUseSecureBoot":        "{firmware: {preferredUseEfi: true}}",
		"devices.preferredDiskDedicatedIoThread": "{devices: {preferredDiskBus: virtio}}",
	}
	values := map[string]any{
		"cpu.preferredCPUTopology": new(instancetypev1.Cores), "cpu.spreadOptions.across": new(instancetypev1.SpreadAcrossCoresThreads),
		"cpu.spreadOptions.ratio": new(int32(4)), "preferSpreadSocketToCoreRatio": int32(4), "cpu.guest": int32(16),
	}
	try := func(path, spec string, set func(*Types)) {
		if strings.HasPrefix(path, "requirements.") {
			return // TestUnmet
		}
		base := typesOf(t, "{cpu: {guest: 8}, memory: {guest: 1Gi}}", "{}")
		if text := needs[path]; text != "" {
			base = typesOf(t, "{cpu: {guest: 8}, memory: {guest: 1Gi}}", text)
		}
		vm := vmOf(t, spec)
		vm.Spec.DataVolumeTemplates = []kubevirtv1.DataVolumeTemplateSpec{{Spec: kubevirtv1.DataVolumeSpec{Storage: &kubevirtv1.StorageSpec{}}}}
		before, faults := Expand(vm, base)
		if len(faults) > 0 {
			t.Fatalf("%s: %v", path, faults)
		}
		set(&base)
		after, faults := Expand(vm, base)
		if len(faults) > 0 {
			t.Errorf("%s: %v", path, faults)
		} else if equality.Semantic.DeepEqual(before, after) {
			t.Errorf("%s changes nothing", path)
		}
	}
	eachField(t, reflect.TypeFor[instancetypev1.VirtualMachineInstancetypeSpec](), nil, "", values, func(path string, set func(reflect.Value)) {
		try(path, bare, func(ts *Types) { set(reflect.ValueOf(ts.Instancetype).Elem()) })
	})
	eachField(t, reflect.TypeFor[instancetypev1.VirtualMachinePreferenceSpec](), nil, "", values, func(path string, set func(reflect.Value)) {
		try(path, preferable, func(ts *Types) { set(reflect.ValueOf(ts.Preference).Elem()) })
	})
}

// eachField calls f for each field below a type of the API, with what sets it in a value of that.
func eachField(t *testing.T, of reflect.Type, index []int, path string, values map[string]any, f func(string, func(reflect.Value))) {
	own := reflect.TypeFor[instancetypev1.CPUPreferences]().PkgPath()
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		at, below, kind := append(slices.Clone(index), i), strings.TrimPrefix(path+"."+name, "."), of.Field(i).Type
		inner := kind
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && inner.PkgPath() == own {
			eachField(t, inner, at, below, values, f)
			continue
		}
		f(below, func(v reflect.Value) {
			for _, i := range at {
				if v.Kind() == reflect.Pointer {
					if v.IsNil() {
						v.Set(reflect.New(v.Type().Elem()))
					}
					v = v.Elem()
				}
				v = v.Field(i)
			}
			if value, is := values[below]; is {
				v.Set(reflect.ValueOf(value))
				return
			}
			some(t, below, v)
		})
	}
}

// some sets a value other than zero.
func some(t *testing.T, path string, v reflect.Value) {
	if v.Type() == reflect.TypeFor[resource.Quantity]() {
		v.Set(reflect.ValueOf(resource.MustParse("7Gi")))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		some(t, path, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			some(t, path, v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		some(t, path, v.Index(0))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"key": "value"}))
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	default:
		t.Fatalf("%s: no value for a %s", path, v.Type())
	}
}
