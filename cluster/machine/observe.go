package machine

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/hibernation"
	"github.com/vmlet/vmlet/cluster/machine/run"
	"github.com/vmlet/vmlet/contract"
)

// observe reads what decide goes by. vm is nil in it if there is no such VM.
func (r *Observer) observe(ctx context.Context, from client.Reader, key types.NamespacedName) (state, error) {
	o := state{imports: r.DataVolumes, defaults: r.Defaults, cluster: r.configuration(), now: r.Now()}
	var vm kubevirtv1.VirtualMachine
	var instance kubevirtv1.VirtualMachineInstance
	// The VM first: an instance of a VM that has been read after it is the VM's or older.
	if there, err := get(ctx, from, key, &vm); err != nil {
		return o, err
	} else if there {
		o.vm = &vm
	}
	if there, err := get(ctx, from, key, &instance); err != nil {
		return o, err
	} else if there {
		o.instance = &instance
	}
	if o.vm == nil || !vm.DeletionTimestamp.IsZero() {
		return o, nil
	}
	if o.vm.Spec.Template == nil {
		return o, nil
	}
	if err := o.expand(ctx, from); err != nil {
		return o, err
	}
	err := r.readMemory(ctx, from, &o)
	if err != nil {
		return o, err
	}
	if o.volumes, err = r.readVolumes(ctx, from, o.vm); err != nil {
		return o, err
	}
	o.started, err = r.readStarted(ctx, o)
	return o, err
}

// readVolumes reads the claims and DataVolumes of a VM.
func (r *Observer) readVolumes(ctx context.Context, from client.Reader, vm *kubevirtv1.VirtualMachine) (all []volume, err error) {
	for _, name := range volumeNames(vm) {
		v := volume{name: name}
		if i := slices.IndexFunc(vm.Spec.DataVolumeTemplates, func(t kubevirtv1.DataVolumeTemplateSpec) bool { return t.Name == name }); i >= 0 {
			v.template = &vm.Spec.DataVolumeTemplates[i]
		}
		key := types.NamespacedName{Namespace: vm.Namespace, Name: name}
		if r.DataVolumes {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(cdi("DataVolume"))
			there, err := get(ctx, from, key, u)
			if err != nil {
				return nil, err
			}
			if there {
				v.dataVolume = readDataVolume(u)
			}
		}
		var c corev1.PersistentVolumeClaim
		there, err := get(ctx, from, key, &c)
		switch {
		case err != nil:
			return nil, err
		case there && c.Status.Phase == corev1.ClaimPending:
			v.claim = unbound
		case there:
			v.claim = bound
		}
		if v.dataVolume == nil && v.claim != missing && metav1.IsControlledBy(&c, vm) {
			v.dataVolume = ownImport(&c)
			v.bindNow = c.Annotations[contract.AnnotationBindImmediately] == "true"
		}
		all = append(all, v)
	}
	return all, nil
}

// readStarted reads the spec that a VM's instance was started with, where that is of another
// generation. A revision that is gone, as somebody deleted it, leaves it unknown.
func (r *Observer) readStarted(ctx context.Context, o state) (*kubevirtv1.VirtualMachineSpec, error) {
	own := o.own()
	if run.StageOf(own) != run.Alive || run.Generation(own) == o.vm.Generation || o.types.fault != nil {
		return nil, nil
	}
	return r.readRevision(ctx, o.vm, run.RevisionName(o.vm.UID, run.Generation(own)))
}

// readRevision reads the spec that a ControllerRevision of a VM has; nil: it is not there.
func (r *Observer) readRevision(ctx context.Context, vm *kubevirtv1.VirtualMachine, name string) (*kubevirtv1.VirtualMachineSpec, error) {
	var revision appsv1.ControllerRevision
	// Not from a cache: it would hold all ControllerRevisions of the cluster.
	if there, err := get(ctx, r.Live, types.NamespacedName{Namespace: vm.Namespace, Name: name}, &revision); err != nil || !there {
		return nil, err
	}
	return run.ReadRevision(&revision, vm), nil
}

// readMemory reads what is known of a VM's memory on claims.
func (r *Observer) readMemory(ctx context.Context, from client.Reader, o *state) (err error) {
	o.Claims, o.Users = make(map[string]*corev1.PersistentVolumeClaim), make(map[string]string)
	for _, name := range hibernation.MemoryClaims(o.view()) {
		claim := &corev1.PersistentVolumeClaim{}
		there, err := get(ctx, from, types.NamespacedName{Namespace: o.vm.Namespace, Name: name}, claim)
		if err != nil {
			return err
		}
		if !there {
			continue
		}
		o.Claims[name] = claim
		if o.Users[name], err = r.otherUser(ctx, o.vm, name); err != nil {
			return err
		}
	}
	o.Spoiled = r.spoiledMeanwhile(o.own())
	if s := o.vm.Status.HibernationStatus; s != nil && s.Image != nil && o.own() == nil {
		o.Saved, err = r.readRevision(ctx, o.vm, s.Image.VirtualMachineRevisionName)
	}
	return err
}

// otherUser says which other VM has a claim for its memory or among its disks; empty: none has. It
// is read from the cache: another one that takes the claim at the same moment is found by its image.
func (r *Observer) otherUser(ctx context.Context, vm *kubevirtv1.VirtualMachine, name string) (string, error) {
	var all kubevirtv1.VirtualMachineList
	err := r.Client.List(ctx, &all, client.InNamespace(vm.Namespace), client.MatchingFields{byVolume: name})
	if err != nil {
		return "", fmt.Errorf("list the VMs that use claim %s: %w", name, err)
	}
	for _, other := range all.Items {
		if other.UID != vm.UID {
			return "VirtualMachine " + other.Name, nil
		}
	}
	return "", nil
}
