package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
)

type fixed configuration.Configuration

func (f fixed) Configuration(context.Context) (configuration.Configuration, error) {
	return configuration.Configuration(f), nil
}

// TestMachinesAreJudgedWithDefaults: what a VM leaves open is no fault of its plan, and what
// the plan refuses has the path in the VM.
func TestMachinesAreJudgedWithDefaults(t *testing.T) {
	rules := machineRules{Rules{
		Settings: fixed(configuration.Default()), Hypervisors: []string{"kvm"},
		HasCDI: func(context.Context) (bool, error) { return false, nil },
	}}
	ctx := admission.NewContextWithRequest(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{}})
	for _, c := range []struct {
		template string
		want     []string
	}{
		{"{spec: {domain: {devices: {}, resources: {requests: {memory: 64M}}}, volumes: [{name: root, containerDisk: {image: i}}]}}", nil},
		{"{spec: {domain: {devices: {disks: [{name: root, serial: a2345678901234567890b}]}, memory: {guest: 1Gi}}, volumes: [{name: root, containerDisk: {image: i}}]}}", nil},
		{"{metadata: {annotations: {vmlet.io/vmm: cloud-hypervisor}}, spec: {domain: {devices: {disks: [{name: root, disk: {bus: usb}}], autoattachPodInterface: false}, memory: {guest: 1Gi}}, volumes: [{name: root, containerDisk: {image: i}}]}}",
			[]string{"spec.template.spec.domain.devices.disks[0].disk.bus"}},
		{"{metadata: {annotations: {vmlet.io/vmm: cloud-hypervisor}}, spec: {domain: {devices: {autoattachPodInterface: false}, memory: {guest: 1Gi}}, volumes: [{name: seed, cloudInitNoCloud: {userData: x}}, {name: root, containerDisk: {image: i}}]}}",
			[]string{"spec.template.spec.volumes[1]"}},
		{"{metadata: {annotations: {vmlet.io/vmm: cloud-hypervisor}}, spec: {domain: {devices: {disks: [{name: root, disk: {readonly: true}}], autoattachPodInterface: false}, memory: {guest: 1Gi}}, volumes: [{name: root, persistentVolumeClaim: {claimName: c}}, {name: seed, cloudInitNoCloud: {userData: x}}]}}", nil},
		{"{spec: {domain: {chassis: {asset: A-1}, devices: {}, memory: {guest: 1Gi}}}}", nil},
		{"{spec: {domain: {devices: {disks: [{name: v0}, {name: v1, disk: {bus: virtio}}]}, memory: {guest: 1Gi}}, volumes: [" + emptyDisks(49) + "]}}", nil},
		{"{spec: {domain: {devices: {disks: [{name: v0}, {name: v1, disk: {bus: virtio}}]}, memory: {guest: 1Gi}}, volumes: [" + emptyDisks(50) + "]}}",
			[]string{"spec.template.spec.volumes[49]"}},
	} {
		vm := &kubevirtv1.VirtualMachine{}
		vm.Name, vm.Namespace = "web", "default"
		if err := yaml.UnmarshalStrict([]byte("{runStrategy: Always, template: "+c.template+"}"), &vm.Spec); err != nil {
			t.Fatal(err)
		}
		before := vm.DeepCopy()
		_, err := rules.ValidateCreate(ctx, vm)
		got := fields(err)
		for _, w := range c.want {
			if !slices.Contains(got, w) {
				t.Errorf("%s: causes are of the fields %q (%v), want %s", c.template, got, err, w)
			}
		}
		if len(c.want) == 0 && err != nil {
			t.Errorf("%s is refused: %v", c.template, err)
		}
		if got, want := yamlOf(t, vm), yamlOf(t, before); got != want {
			t.Errorf("%s: admission changed the VM to\n%s\nwant\n%s", c.template, got, want)
		}
	}
}

// TestDefaultsOfInstances: the defaults of today are not those that a guest runs with.
func TestDefaultsOfInstances(t *testing.T) {
	hook := instanceDefaults{fixed(configuration.Default())}
	for uid, want := range map[types.UID]string{"": "q35", "u": ""} {
		vmi := &kubevirtv1.VirtualMachineInstance{}
		vmi.UID = uid
		vmi.Spec.Domain.Machine = new(kubevirtv1.Machine)
		if err := hook.Default(t.Context(), vmi); err != nil {
			t.Fatal(err)
		}
		if got := vmi.Spec.Domain.Machine.Type; got != want {
			t.Errorf("with the UID %q the machine type is %q, want %q", uid, got, want)
		}
	}
}

// emptyDisks are volumes v0, v1 and so on.
func emptyDisks(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("{name: v%d, emptyDisk: {capacity: 1Gi}}", i))
	}
	return strings.Join(all, ", ")
}

// fields are those of the causes of a refusal.
func fields(err error) (all []string) {
	status, is := err.(apierrors.APIStatus)
	if !is || status.Status().Details == nil {
		return nil
	}
	for _, cause := range status.Status().Details.Causes {
		all = append(all, cause.Field)
	}
	return all
}

func yamlOf(t *testing.T, object any) string {
	t.Helper()
	text, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// TestOnlyUndecodableIsLetThrough: what can't be decoded is left to the object's definition.
func TestOnlyUndecodableIsLetThrough(t *testing.T) {
	for name, c := range map[string]struct {
		answer admission.Response
		want   bool
	}{
		"allowed":                  {admission.Allowed("").WithWarnings("careful"), true},
		"can't be decoded":         {admission.Errored(http.StatusBadRequest, errors.New("no JSON")), true},
		"refused":                  {admission.Denied("no"), false},
		"failed":                   {admission.Errored(http.StatusInternalServerError, errors.New("no API server")), false},
		"refused without a reason": {admission.Response{}, false},
	} {
		u := undecodable{admission.HandlerFunc(func(context.Context, admission.Request) admission.Response { return c.answer })}
		got := u.Handle(t.Context(), admission.Request{})
		if got.Allowed != c.want {
			t.Errorf("%s: allowed: %v, want %v", name, got.Allowed, c.want)
		}
		if c.answer.Allowed && len(got.Warnings) != len(c.answer.Warnings) {
			t.Errorf("%s: the warnings are %q, want %q", name, got.Warnings, c.answer.Warnings)
		}
	}
}

// TestProtectionNeedsARequest: nobody is taken for one who may, if it is not known who asks.
func TestProtectionNeedsARequest(t *testing.T) {
	p := protectedInstance{Rules{Settings: fixed(configuration.Default())}}
	if _, err := p.ValidateUpdate(t.Context(), &kubevirtv1.VirtualMachineInstance{}, &kubevirtv1.VirtualMachineInstance{}); err == nil {
		t.Error("an instance is changed by a request that nobody knows")
	}
}
