package machine

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/claimwatch"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/machine/action"
)

// Reconciler makes VirtualMachines what their specs say. Its parts are set before its first use
// and not changed; it may then be used concurrently.
type Reconciler struct {
	// Observer reads what is decided on, and Writer carries out what was decided.
	Observer *Observer
	Writer   *Writer
}

// Observer reads what is known of a VM.
type Observer struct {
	// Client reads from caches.
	Client client.Client
	// Live reads from the API server itself.
	Live client.Reader
	// Defaults fills what an instance leaves unset, by the cluster's present configuration,
	// as admission does.
	Defaults func(*kubevirtv1.VirtualMachineInstance)
	// Configuration is the cluster's as it is now; nil: that of a cluster without one.
	Configuration func() configuration.Configuration
	// Uses knows which pods used VMs' disks since they were saved.
	Uses ClaimUses
	// DataVolumes says whether the cluster has the kinds of CDI.
	DataVolumes bool
	// Now is [time.Now].
	Now func() time.Time
}

// Writer carries out actions.
type Writer struct {
	// Client writes, and reads from caches.
	Client client.Client
	// Live reads from the API server itself.
	Live client.Reader
	// Events takes the VMs' events.
	Events events.EventRecorder
}

func (r *Observer) configuration() configuration.Configuration {
	if r.Configuration == nil {
		return configuration.Default()
	}
	return r.Configuration()
}

// ClaimUses knows which pods used the claims of disks since a save, which is named by the directory of its
// image: of those disks that don't show it themselves.
type ClaimUses interface {
	// Look returns all of it, up to now.
	Look(ctx context.Context, namespace, directory string) ([]claimwatch.Use, error)
	// Known returns what is known already.
	Known(namespace, directory string) []claimwatch.Use
}

// event tells Kubernetes of something that happened to the VM.
func (w *Writer) event(vm *kubevirtv1.VirtualMachine, e action.Event) {
	const most = 1000 // of the 1024 bytes that a note may have
	w.Events.Eventf(vm, nil, e.Kind, e.Reason, e.Reason, "%s", action.Clip(e.Note, most))
}

// get reads an object, which need not be there.
func get(ctx context.Context, from client.Reader, key types.NamespacedName, object client.Object) (there bool, err error) {
	err = from.Get(ctx, key, object)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %T %s: %w", object, key, err)
	}
	return true, nil
}
