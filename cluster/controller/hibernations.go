package controller

import (
	"context"
	"errors"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/metrics"
)

// countHibernations registers the metrics of hibernations, which follow changes of VirtualMachines.
func countHibernations(ctx context.Context, m manager.Manager, leads func() bool) error {
	counted := metrics.NewHibernations(leads, time.Now)
	vms, err := m.GetCache().GetInformer(ctx, &kubevirtv1.VirtualMachine{})
	if err != nil {
		return err
	}
	_, err = vms.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			counted.Changed(before.(*kubevirtv1.VirtualMachine), after.(*kubevirtv1.VirtualMachine))
		},
		DeleteFunc: func(gone any) {
			if last, is := gone.(toolscache.DeletedFinalStateUnknown); is {
				gone = last.Obj
			}
			if vm, is := gone.(*kubevirtv1.VirtualMachine); is {
				counted.Changed(vm, nil)
			}
		},
	})
	return errors.Join(err, ctrlmetrics.Registry.Register(counted))
}
