package validation

import (
	"slices"
	"strings"
	"testing"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
)

// TestHibernationIsComplete: a VM that hibernates has mode and timeout, of its own or the cluster's,
// and each that is missing is named.
func TestHibernationIsComplete(t *testing.T) {
	const mode, timeout = "spec.hibernateStrategy.mode needs it", "spec.hibernateStrategy.warningTimeoutSeconds needs it"
	for _, c := range []struct {
		spec    string
		cluster configuration.Hibernation
		want    []string
	}{
		{"{runStrategy: Hibernate}", configuration.Default().Hibernation, nil},
		{"{runStrategy: Hibernate}", configuration.Hibernation{}, []string{mode, timeout}},
		{"{runStrategy: Hibernate}", configuration.Hibernation{Mode: "Save"}, []string{timeout}},
		{"{runStrategy: Hibernate, hibernateStrategy: {warningTimeoutSeconds: 1}}", configuration.Hibernation{}, []string{mode}},
		{"{runStrategy: Hibernate, hibernateStrategy: {mode: save, warningTimeoutSeconds: 1}}", configuration.Hibernation{}, nil},
		{"{runStrategy: Always, hibernateStrategy: {mode: Save}}", configuration.Hibernation{}, nil},
		{"{runStrategy: Always, template: {spec: {domain: {devices: {}}, evictionStrategy: Hibernate}}}", configuration.Hibernation{}, []string{mode, timeout}},
	} {
		r := request()
		r.Configuration.Hibernation = c.cluster
		faults, _ := Machine(machine(t, c.spec), nil, r)
		compare(t, c.spec, faults, c.want)
	}
}

// TestUnsaveable: what can't be saved is refused where the VM is to be, by its field, and nowhere
// else.
func TestUnsaveable(t *testing.T) {
	const at = "spec.template.spec.domain."
	network := func(n string) string { return "{spec: {" + n + "}}" }
	bridge := network("domain: {devices: {interfaces: [{name: a, bridge: {}}]}}, networks: [{name: a, pod: {}}]")
	unbound := network("domain: {devices: {interfaces: [{name: a}]}}, networks: [{name: a, pod: {}}]")
	second := network("domain: {devices: {interfaces: [{name: a, bridge: {}}]}}, networks: [{name: a, multus: {networkName: a}}]")
	passthrough := network("domain: {devices: {}, features: {hypervPassthrough: {}}}")
	cloud := "{metadata: {annotations: {vmlet.io/vmm: cloud-hypervisor}}, spec: {domain: {devices: {}}, volumes: []}}"
	ofMultus := network("domain: {devices: {interfaces: [{name: a, bridge: {}}]}}, networks: [{name: a, multus: {networkName: a, default: true}}]")
	shared := network("domain: {devices: {disks: [{name: a, shareable: true, disk: {bus: virtio}}]}}, volumes: [{name: a, dataVolume: {name: a}}]")
	alone := network("domain: {devices: {autoattachPodInterface: false}}")
	for _, c := range []struct {
		how, template, binding string
		want                   []string
	}{
		{"runStrategy: Hibernate", bridge, "", []string{at + "devices.interfaces[0].bridge use masquerade"}},
		{"runStrategy: Always, hibernateStrategy: {mode: Save}", bridge, "", []string{at + "devices.interfaces[0].bridge use masquerade"}},
		{"runStrategy: Hibernate, hibernateStrategy: {mode: SuspendToDisk}", bridge, "", nil},
		{"runStrategy: Always", bridge, "", nil},
		{"runStrategy: Hibernate", second, "", nil},
		{"runStrategy: Hibernate", unbound, "", nil},
		{"runStrategy: Hibernate", unbound, "bridge", []string{at + "devices.interfaces[0].bridge use masquerade"}},
		{"runStrategy: Hibernate", network("domain: {devices: {}}"), "bridge", []string{at + "devices.interfaces the cluster's default is bridge"}},
		{"runStrategy: Hibernate", alone, "bridge", nil},
		{"runStrategy: Hibernate", passthrough, "", []string{at + "features.hypervPassthrough hyperv"}},
		{"runStrategy: Always", passthrough, "", nil},
		{"runStrategy: Hibernate", shared, "", []string{at + "devices.disks[0].shareable stop the VM"}},
		{"runStrategy: Hibernate, hibernateStrategy: {mode: SuspendToDisk}", shared, "", []string{at + "devices.disks[0].shareable stop the VM"}},
		{"runStrategy: Always, hibernateStrategy: {mode: SuspendToDisk}", shared, "", []string{at + "devices.disks[0].shareable stop the VM"}},
		{"runStrategy: Always", shared, "", nil},
		{"runStrategy: Hibernate", ofMultus, "", []string{at + "devices.interfaces[0].bridge take multus.default from the network, or set hibernateStrategy.mode: SuspendToDisk"}},
		{"runStrategy: Hibernate", network("domain: {devices: {}}"), "masquerade", nil},
		{"runStrategy: Hibernate", cloud, "", nil},
		{"runStrategy: Hibernate, hibernateStrategy: {mode: SuspendToDisk}", cloud, "", []string{"spec.template.metadata.annotations[vmlet.io/vmm] or set hibernateStrategy.mode: Save"}},
	} {
		r := request()
		if c.binding != "" {
			r.Configuration.DefaultInterface = c.binding
		}
		text := "{" + c.how + ", template: " + c.template + "}"
		faults, _ := Machine(machine(t, text), nil, r)
		compare(t, text, faults, c.want)
	}
}

// TestControllersFields: what the controller writes is refused from others, in instances and in
// templates, and let pass from it.
func TestControllersFields(t *testing.T) {
	const spec = "{startStrategy: Restore, restoreFrom: {id: a, claimName: c, directory: d}, stopStrategy: Save, utilityVolumes: [{name: a, claimName: c, type: Hibernation}]}"
	refused := []string{"spec.startStrategy controller", "spec.restoreFrom controller", "spec.stopStrategy controller", "spec.utilityVolumes controller"}
	for own, want := range map[bool][]string{false: refused, true: nil} {
		r := request()
		r.Own = own
		faults, _ := Instance(instance(t, spec), nil, r)
		compare(t, spec, faults, want)
		faults, _ = Instance(instance(t, spec), instance(t, "{}"), r)
		compare(t, "an update to "+spec, faults, map[bool][]string{true: nil, false: {
			"spec.startStrategy delete it", "spec.restoreFrom delete it", "spec.stopStrategy delete it", "spec.utilityVolumes delete it"}}[own])
	}
	faults, _ := Instance(instance(t, "{evictionStrategy: Hibernate}"), nil, request())
	compare(t, "an instance of its own", faults, []string{"spec.evictionStrategy VirtualMachine"})
}

// TestAsleep: while a guest is being saved, or is saved, where and how stays as it was.
func TestAsleep(t *testing.T) {
	image := &kubevirtv1.SavedImage{ID: "a"}
	mode, claim := "spec.hibernateStrategy.mode can't be changed", "spec.hibernateStrategy.claimName can't be changed"
	for name, c := range map[string]struct {
		status   *kubevirtv1.HibernationStatus
		before   string
		after    string
		want     []string
		warnings int
	}{
		"awake":            {nil, "{}", "{hibernateStrategy: {mode: SuspendToDisk, claimName: b}}", nil, 0},
		"being saved":      {&kubevirtv1.HibernationStatus{Phase: "InProgress"}, "{}", "{hibernateStrategy: {mode: SuspendToDisk, claimName: b}}", []string{mode, claim}, 0},
		"failed":           {&kubevirtv1.HibernationStatus{Phase: "Failed"}, "{}", "{hibernateStrategy: {claimName: b}}", nil, 0},
		"saved":            {&kubevirtv1.HibernationStatus{Phase: "Completed", Image: image}, "{hibernateStrategy: {mode: save, claimName: a}}", "{hibernateStrategy: {mode: Save, claimName: b}}", []string{claim}, 0},
		"another spelling": {&kubevirtv1.HibernationStatus{Phase: "Completed", Image: image}, "{hibernateStrategy: {mode: save}}", "{hibernateStrategy: {mode: Save, warningTimeoutSeconds: 3}}", nil, 0},
		"another template": {&kubevirtv1.HibernationStatus{Phase: "Completed", Image: image}, "{}", "{template: {spec: {domain: {devices: {}}, hostname: b}}}", nil, 1},
		"suspended":        {&kubevirtv1.HibernationStatus{Phase: "Completed", Mode: "SuspendToDisk"}, "{}", "{hibernateStrategy: {claimName: b}}", nil, 0},
	} {
		old := machine(t, c.before)
		old.Status.HibernationStatus = c.status
		faults, warnings := Machine(machine(t, c.after), old, request())
		compare(t, name, faults, c.want)
		if len(warnings) != c.warnings {
			t.Errorf("%s: warnings are %q, want %d", name, warnings, c.warnings)
		}
	}
}

// TestNothingToRestore: a VM that is to run again, and has no image, is told that it boots, and let
// pass.
func TestNothingToRestore(t *testing.T) {
	saved := &kubevirtv1.HibernationStatus{Phase: "Completed", Image: &kubevirtv1.SavedImage{ID: "a"}}
	for name, c := range map[string]struct {
		status  *kubevirtv1.HibernationStatus
		created bool
		cluster kubevirtv1.StartStrategy
		before  string
		after   string
		want    int
	}{
		"never saved":             {nil, false, "Restore", "runStrategy: Hibernate", "runStrategy: Always", 1},
		"by its own word":         {nil, false, "Boot", "runStrategy: Hibernate", "runStrategy: Once, startStrategy: restore", 1},
		"when it is started":      {nil, false, "Restore", "runStrategy: Hibernate", "runStrategy: Manual", 1},
		"the old way":             {nil, false, "Restore", "runStrategy: Hibernate", "running: true", 1},
		"half saved":              {&kubevirtv1.HibernationStatus{Phase: "InProgress"}, false, "Restore", "runStrategy: Hibernate", "runStrategy: Always", 1},
		"saved":                   {saved, false, "Restore", "runStrategy: Hibernate", "runStrategy: Always", 0},
		"suspended":               {&kubevirtv1.HibernationStatus{Phase: "Completed"}, false, "Restore", "runStrategy: Hibernate", "runStrategy: Always", 0},
		"it runs":                 {&kubevirtv1.HibernationStatus{Phase: "Failed"}, true, "Restore", "runStrategy: Hibernate", "runStrategy: Always", 0},
		"it is to boot":           {nil, false, "Restore", "runStrategy: Hibernate", "runStrategy: Always, startStrategy: Boot", 0},
		"by the cluster":          {nil, false, "Boot", "runStrategy: Hibernate", "runStrategy: Always", 0},
		"it stays off":            {nil, false, "Restore", "runStrategy: Hibernate", "runStrategy: Halted", 0},
		"it stays off, as it was": {nil, false, "Restore", "runStrategy: Hibernate", "running: false", 0},
		"it was off":              {nil, false, "Restore", "runStrategy: Halted", "runStrategy: Always", 0},
	} {
		old := machine(t, "{"+c.before+"}")
		old.Status.HibernationStatus, old.Status.Created = c.status, c.created
		r := request()
		r.Configuration.Hibernation.StartStrategy = c.cluster
		faults, warnings := Machine(machine(t, "{"+c.after+"}"), old, r)
		compare(t, name, faults, nil)
		warnings = slices.DeleteFunc(warnings, func(w string) bool { return !strings.Contains(w, "and the VM boots") })
		if len(warnings) != c.want {
			t.Errorf("%s: warnings are %q, want %d", name, warnings, c.want)
		}
	}
}
