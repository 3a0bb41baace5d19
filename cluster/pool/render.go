package pool

import (
	"encoding/json"
	"maps"
	"strconv"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
	"github.com/vmlet/vmlet/contract"
)

// rendered is what a template makes of one index: what a VM is created with, and what is compared when the
// template changes.
type rendered struct {
	Labels      map[string]string             `json:"labels,omitempty"`
	Annotations map[string]string             `json:"annotations,omitempty"`
	Spec        kubevirtv1.VirtualMachineSpec `json:"spec"`
}

// render returns the member of an index, as a revision has it.
func (o state) render(r revision, index int32) rendered {
	template := r.data.Template.DeepCopy()
	spec, postfix := &template.Spec, "-"+strconv.Itoa(int(index))
	made := make(map[string]bool)
	for i := range spec.DataVolumeTemplates {
		t := &spec.DataVolumeTemplates[i]
		made[t.Name] = true
		t.Name += postfix
	}
	if spec.Template == nil {
		spec.Template = new(kubevirtv1.VirtualMachineInstanceTemplateSpec)
	}
	n := names{claims: made, postfix: postfix}
	n.secrets, n.configMaps = r.data.appends()
	for i := range spec.Template.Spec.Volumes {
		n.volume(&spec.Template.Spec.Volumes[i])
	}
	for i := range spec.Template.Spec.AccessCredentials {
		n.credential(&spec.Template.Spec.AccessCredentials[i])
	}
	own := map[string]string{contract.LabelPool: string(o.pool.UID), contract.LabelPoolIndex: strconv.Itoa(int(index))}
	// Autoscalers and disruption budgets count pods by the pool's UID.
	spec.Template.Labels = with(spec.Template.Labels, own)
	own[contract.LabelPoolRevision] = r.name
	delete(template.Labels, contract.LabelPoolPreserved) // the pool's alone
	delete(template.Labels, contract.LabelPoolStandby)
	delete(spec.Template.Labels, contract.LabelPoolStandby)
	delete(template.Annotations, contract.AnnotationPoolPaused)
	delete(spec.Template.Annotations, contract.AnnotationPoolPaused)
	return rendered{Labels: with(template.Labels, own), Annotations: template.Annotations, Spec: *spec}
}

// names appends the index to those that are each member's own.
type names struct {
	claims              map[string]bool
	secrets, configMaps bool
	postfix             string
}

func (n names) claim(name *string) {
	if n.claims[*name] {
		*name += n.postfix
	}
}

func (n names) secret(name *string) {
	if n.secrets && *name != "" {
		*name += n.postfix
	}
}

func (n names) volume(v *kubevirtv1.Volume) {
	object := func(append bool, r *corev1.LocalObjectReference) {
		if append && r != nil && r.Name != "" {
			r.Name += n.postfix
		}
	}
	if v.DataVolume != nil {
		n.claim(&v.DataVolume.Name)
	}
	if v.PersistentVolumeClaim != nil {
		n.claim(&v.PersistentVolumeClaim.ClaimName)
	}
	if v.Ephemeral != nil && v.Ephemeral.PersistentVolumeClaim != nil {
		n.claim(&v.Ephemeral.PersistentVolumeClaim.ClaimName)
	}
	if v.Secret != nil {
		n.secret(&v.Secret.SecretName)
	}
	if v.ConfigMap != nil {
		object(n.configMaps, &v.ConfigMap.LocalObjectReference)
	}
	if s := v.Sysprep; s != nil {
		object(n.secrets, s.Secret)
		object(n.configMaps, s.ConfigMap)
	}
	if c := v.CloudInitNoCloud; c != nil {
		object(n.secrets, c.UserDataSecretRef)
		object(n.secrets, c.NetworkDataSecretRef)
	}
	if c := v.CloudInitConfigDrive; c != nil {
		object(n.secrets, c.UserDataSecretRef)
		object(n.secrets, c.NetworkDataSecretRef)
	}
}

func (n names) credential(c *kubevirtv1.AccessCredential) {
	if c.SSHPublicKey != nil && c.SSHPublicKey.Source.Secret != nil {
		n.secret(&c.SSHPublicKey.Source.Secret.SecretName)
	}
	if c.UserPassword != nil && c.UserPassword.Source.Secret != nil {
		n.secret(&c.UserPassword.Source.Secret.SecretName)
	}
}

// create returns the VM of an index.
func (o state) create(r revision, index int32) *kubevirtv1.VirtualMachine {
	as := o.render(r, index)
	vm := &kubevirtv1.VirtualMachine{Spec: as.Spec}
	vm.Namespace, vm.Name = o.pool.Namespace, memberName(o.pool.Name, index)
	vm.Labels, vm.Annotations = as.Labels, as.Annotations
	vm.OwnerReferences = []metav1.OwnerReference{ownedBy(o.pool)}
	return vm
}

func ownedBy(pool *poolv1.VirtualMachinePool) metav1.OwnerReference {
	return *metav1.NewControllerRef(pool, schema.GroupVersionKind{Group: poolv1.Group, Version: poolv1.Version, Kind: poolv1.Kind})
}

// change returns the VM with what the template changed between its revision and the newest. All else stays as
// it is: labels that users added, identities that were filled in, a run strategy that virtctl stop has set. A
// member of an unknown revision gets all that the newest one says.
func (o state) change(m member, newest revision) (*kubevirtv1.VirtualMachine, error) {
	before := rendered{}
	if r := o.revision(m.revision()); r != nil {
		before = o.render(*r, m.index)
	}
	old, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	now, err := json.Marshal(o.render(newest, m.index))
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.CreateMergePatch(old, now)
	if err != nil {
		return nil, err
	}
	has, err := json.Marshal(rendered{Labels: m.vm.Labels, Annotations: m.vm.Annotations, Spec: m.vm.Spec})
	if err != nil {
		return nil, err
	}
	if has, err = jsonpatch.MergePatch(has, patch); err != nil {
		return nil, err
	}
	var to rendered
	if err := json.Unmarshal(has, &to); err != nil {
		return nil, err
	}
	vm := m.vm.DeepCopy()
	vm.Labels, vm.Annotations, vm.Spec = to.Labels, to.Annotations, to.Spec
	//lint:ignore SA1019 manifests still have the old field
	running, had := &vm.Spec.Running, m.vm.Spec.Running
	if *running != nil && vm.Spec.RunStrategy != nil { // the template has one, the VM the other
		*running, vm.Spec.RunStrategy = had, m.vm.Spec.RunStrategy
	}
	keepAddresses(&vm.Spec, &m.vm.Spec)
	return vm, nil
}

// keepAddresses keeps the MAC addresses that interfaces were given: a merge replaces lists as a whole.
func keepAddresses(to, from *kubevirtv1.VirtualMachineSpec) {
	if to.Template == nil || from.Template == nil {
		return
	}
	has := make(map[string]string)
	for _, i := range from.Template.Spec.Domain.Devices.Interfaces {
		has[i.Name] = i.MACAddress
	}
	all := to.Template.Spec.Domain.Devices.Interfaces
	for i := range all {
		if all[i].MACAddress == "" {
			all[i].MACAddress = has[all[i].Name]
		}
	}
}

// with returns a copy of a map with further entries.
func with(m, more map[string]string) map[string]string {
	c := make(map[string]string, len(m)+len(more))
	maps.Copy(c, m)
	maps.Copy(c, more)
	return c
}
