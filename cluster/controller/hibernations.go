package controller

import (
	"context"
	"errors"
	"path"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
	"github.com/vmlet/vmlet/cluster/claimwatch"
	"github.com/vmlet/vmlet/cluster/metrics"
	"github.com/vmlet/vmlet/cluster/saves"
)

// watchClaims has the claims of a VM's disks watched before the VM is saved.
func watchClaims(uses *claimwatch.Watch) func(context.Context, types.NamespacedName, saves.Request) error {
	return func(ctx context.Context, vm types.NamespacedName, r saves.Request) error {
		return uses.Begin(ctx, claimwatch.Use{Namespace: vm.Namespace, VM: vm.Name, Instance: r.Instance, Directory: path.Base(r.Directory)}, r.Watched)
	}
}

// needed says of the use of a claim whether the save that it is about may still be gone on from: the
// VM's status has that image, or none yet.
func needed(ctx context.Context, from client.Reader) func(claimwatch.Use) bool {
	return func(u claimwatch.Use) bool {
		var vm kubevirtv1.VirtualMachine
		err := from.Get(ctx, types.NamespacedName{Namespace: u.Namespace, Name: u.VM}, &vm)
		if err != nil {
			return !apierrors.IsNotFound(err)
		}
		s := vm.Status.HibernationStatus
		return s != nil && (s.Image == nil || s.Image.Directory == u.Directory)
	}
}

// count registers the metrics of hibernations, pools and phases, which follow changes of VirtualMachines and instances.
func count(ctx context.Context, m manager.Manager, leads func() bool) error {
	counted, pools, phases := metrics.NewHibernations(leads, time.Now), metrics.NewPools(leads), metrics.NewPhases(leads)
	changed := func(before, after *kubevirtv1.VirtualMachine) {
		counted.Changed(before, after)
		pools.Changed(before, after)
	}
	vms, err := m.GetCache().GetInformer(ctx, &kubevirtv1.VirtualMachine{})
	if err != nil {
		return err
	}
	_, err = vms.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			changed(before.(*kubevirtv1.VirtualMachine), after.(*kubevirtv1.VirtualMachine))
		},
		DeleteFunc: func(gone any) {
			if vm, is := last(gone).(*kubevirtv1.VirtualMachine); is {
				changed(vm, nil)
			}
		},
	})
	if err != nil {
		return err
	}
	instances, err := m.GetCache().GetInformer(ctx, &kubevirtv1.VirtualMachineInstance{})
	if err != nil {
		return err
	}
	_, err = instances.AddEventHandler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		phases.Changed(before.(*kubevirtv1.VirtualMachineInstance), after.(*kubevirtv1.VirtualMachineInstance))
	}})
	if err != nil {
		return err
	}
	all, err := m.GetCache().GetInformer(ctx, &poolv1.VirtualMachinePool{})
	if err != nil {
		return err
	}
	_, err = all.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(gone any) {
		if pool, is := last(gone).(*poolv1.VirtualMachinePool); is {
			pools.Gone(pool.Namespace, pool.Name)
			phases.Gone(pool.Namespace, pool.Name)
		}
	}})
	return errors.Join(err, ctrlmetrics.Registry.Register(counted), ctrlmetrics.Registry.Register(pools), ctrlmetrics.Registry.Register(phases))
}

// last is an object that is gone, as it is known to have been last.
func last(gone any) any {
	if unseen, is := gone.(toolscache.DeletedFinalStateUnknown); is {
		return unseen.Obj
	}
	return gone
}
