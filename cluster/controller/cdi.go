package controller

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmlet/vmlet/cluster/installation"
)

// dataVolumes is the definition of CDI's kind.
const dataVolumes = "datavolumes.cdi.kubevirt.io"

// errCDI ends the program when CDI was installed or removed: what it watches is fixed at its
// start.
var errCDI = errors.New("CDI was installed or removed: vmlet-controller restarts to see it")

// hasCDI reports whether CDI is installed, and has end called when that changes.
func hasCDI(ctx context.Context, live client.Reader, from cache.Cache, end func(error)) (bool, error) {
	err := live.Get(ctx, client.ObjectKey{Name: dataVolumes}, installation.Definition())
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	there := err == nil
	informer, err := from.GetInformer(ctx, installation.Definition())
	if err != nil {
		return false, err
	}
	_, err = informer.AddEventHandler(cdiChanges(there, end))
	return there, err
}

// cdiChanges calls end when CDI's definition comes, or goes, unlike it was.
func cdiChanges(there bool, end func(error)) toolscache.ResourceEventHandler {
	return toolscache.FilteringResourceEventHandler{
		FilterFunc: func(o any) bool {
			if last, is := o.(toolscache.DeletedFinalStateUnknown); is {
				o = last.Obj
			}
			d, is := o.(client.Object)
			return is && d.GetName() == dataVolumes
		},
		Handler: toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) {
				if !there {
					end(errCDI)
				}
			},
			DeleteFunc: func(any) {
				if there {
					end(errCDI)
				}
			},
		},
	}
}
