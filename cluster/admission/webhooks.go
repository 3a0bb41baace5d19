// Package admission answers the API server's questions about objects before they are stored: it
// fills in defaults, refuses what vmlet can't do, and denies evictions of VMs' pods where their
// strategy says so. Packages defaults and validation decide what is filled in and refused.
// Start reading at Handlers.
package admission

import (
	"context"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/defaults"
	"github.com/vmlet/vmlet/cluster/validation"
)

// Configurations returns the cluster's configuration as it is now. It is called by many
// goroutines at a time.
type Configurations interface {
	Configuration(ctx context.Context) (configuration.Configuration, error)
}

// Paths at which webhooks are served.
const (
	PathMutateMachine    = "/virtualmachines-mutate"
	PathMutateInstance   = "/virtualmachineinstances-mutate"
	PathValidateMachine  = "/virtualmachines-validate"
	PathValidateInstance = "/virtualmachineinstances-validate"
	PathValidatePool     = "/virtualmachinepools-validate"
	PathValidateReplicas = "/virtualmachineinstancereplicasets-validate"
	PathEviction         = "/pod-eviction-validate"
)

// Paths of the webhooks that are called in any case, whatever a virtualisation stack's own have taken the
// place of.
const (
	PathProtectMachineIdentity = "/virtualmachines-mutate" // all of it is
	PathProtectInstanceOrigin  = "/virtualmachineinstances-protect-origin"
	PathProtectMachine         = "/virtualmachines-protect"
	PathProtectInstance        = "/virtualmachineinstances-protect"
)

// Rules are what admission decides by, beside the objects.
type Rules struct {
	Settings Configurations
	// Own are the users (system:serviceaccount:...) of vmlet's own programs.
	Own []string
	// HasCDI says whether CDI's DataVolumes are defined in the cluster.
	HasCDI func(ctx context.Context) (bool, error)
	// Hypervisors are the names that annotations may choose from.
	Hypervisors []string

	// objects are read from the API server.
	objects client.Reader
}

// Handlers returns the webhooks by their paths. The client's scheme has the kinds of
// kubevirt.io/v1, instancetype.kubevirt.io/v1 and pool.kubevirt.io/v1beta1; it asks the API server, not a cache.
func Handlers(c client.Client, r Rules) map[string]http.Handler {
	scheme := c.Scheme()
	r.objects = c
	all := make(map[string]http.Handler)
	for path, hook := range map[string]*admission.Webhook{
		PathMutateMachine:    {Handler: undecodable{machineDefaults{config: r.Settings, objects: c, decoder: admission.NewDecoder(scheme)}}},
		PathMutateInstance:   {Handler: undecodable{admission.WithDefaulter(scheme, instanceDefaults{r.Settings}).Handler}},
		PathValidateMachine:  admission.WithValidator(scheme, machineRules{r}),
		PathValidateInstance: admission.WithValidator(scheme, instanceRules{r}),
		PathValidatePool:     admission.WithValidator(scheme, poolRules{r}),
		PathValidateReplicas: admission.WithValidator(scheme, replicaSetRules{r}),

		PathProtectInstanceOrigin: {Handler: undecodable{admission.WithDefaulter(scheme, instanceOrigin{r.Settings}).Handler}},
		PathProtectMachine:        admission.WithValidator(scheme, protectedMachine{r}),
		PathProtectInstance:       admission.WithValidator(scheme, protectedInstance{r}),

		PathEviction: {Handler: &evictions{client: c, config: r.Settings, now: time.Now}},
	} {
		hook.Handler = bounded{hook.Handler}
		// It fails never: the metrics are registered already.
		all[path], _ = admission.StandaloneWebhook(hook, admission.StandaloneOptions{MetricsPath: path})
	}
	return all
}

type instanceDefaults struct{ config Configurations }

// Default fills in an instance that is being created, which has no UID yet. The spec of one
// that runs stays as it is, whatever has become the default since.
func (d instanceDefaults) Default(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) error {
	if vmi.UID != "" {
		return nil
	}
	c, err := d.config.Configuration(ctx)
	if err == nil {
		defaults.Instance(vmi, c)
	}
	return err
}

type machineRules struct{ Rules }

func (r machineRules) ValidateCreate(ctx context.Context, vm *kubevirtv1.VirtualMachine) (admission.Warnings, error) {
	return r.ValidateUpdate(ctx, nil, vm)
}

func (r machineRules) ValidateUpdate(ctx context.Context, old, vm *kubevirtv1.VirtualMachine) (admission.Warnings, error) {
	request, err := r.request(ctx, len(vm.Spec.DataVolumeTemplates) > 0)
	if err != nil {
		return nil, err
	}
	if vm.DeletionTimestamp != nil || old != nil && equality.Semantic.DeepEqual(vm.Spec, old.Spec) {
		return nil, nil // before anything is looked up
	}
	faults, warnings, err := r.judge(ctx, vm, old, request)
	if err != nil {
		return nil, err
	}
	return warnings, refused(kubevirtv1.Group, "VirtualMachine", vm.Name, faults)
}

func (machineRules) ValidateDelete(context.Context, *kubevirtv1.VirtualMachine) (admission.Warnings, error) {
	return nil, nil
}

type instanceRules struct{ Rules }

func (r instanceRules) ValidateCreate(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) (admission.Warnings, error) {
	return r.ValidateUpdate(ctx, nil, vmi)
}

func (r instanceRules) ValidateUpdate(ctx context.Context, old, vmi *kubevirtv1.VirtualMachineInstance) (admission.Warnings, error) {
	request, err := r.request(ctx, false)
	if err != nil {
		return nil, err
	}
	faults, warnings := validation.Instance(vmi, old, request)
	return warnings, refused(kubevirtv1.Group, "VirtualMachineInstance", vmi.Name, faults)
}

func (instanceRules) ValidateDelete(context.Context, *kubevirtv1.VirtualMachineInstance) (admission.Warnings, error) {
	return nil, nil
}

// request returns what validation decides by. Whether there is CDI is looked up only where that
// makes a difference.
func (r Rules) request(ctx context.Context, imports bool) (validation.Request, error) {
	out := validation.Request{Hypervisors: r.Hypervisors}
	asked, err := admission.RequestFromContext(ctx)
	if err != nil {
		return out, err
	}
	if out.Configuration, err = r.Settings.Configuration(ctx); err != nil {
		return out, err
	}
	out.VMMs = out.Configuration.Stack.Registry().Names()
	out.Own = slices.Contains(r.Own, asked.UserInfo.Username)
	if imports {
		out.HasCDI, err = r.HasCDI(ctx)
	}
	return out, err
}

// refused returns faults as one error, with their fields as causes; nil if there are none.
func refused(group, kind, name string, faults field.ErrorList) error {
	if len(faults) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: group, Kind: kind}, name, faults)
}
