package controller

import (
	"context"
	"errors"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/calls"
	"github.com/vmlet/vmlet/cluster/claimuse"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/defaults"
	"github.com/vmlet/vmlet/cluster/importers"
	"github.com/vmlet/vmlet/cluster/launcher"
	"github.com/vmlet/vmlet/cluster/settings"
)

// setUpImports adds the controller that fills claims. It runs beside CDI, too: what was begun before
// CDI came is brought to its end.
func setUpImports(ctx context.Context, m manager.Manager, o Options, now settings.Settings, live client.Reader, making *claimuse.Locks) error {
	asked := calls.New[float64](calls.Options{Now: time.Now})
	return errors.Join(m.Add(manager.RunnableFunc(asked.Run)), (&importers.Reconciler{
		Client: m.GetClient(), Live: live, Events: distinct{m.GetEventRecorder(name)}, Progress: importers.NewProgress(), Calls: asked, Now: time.Now, Making: making,
		Pod: func(f launcher.Filling) (*corev1.Pod, error) {
			c, err := now.Configuration(ctx)
			if err != nil {
				return nil, err
			}
			f.Input = convert.Input{Instance: instanceOf(f.VM), Configuration: c, Launcher: o.Launcher, ClusterDomain: o.ClusterDomain}
			return importer(ctx, m.GetClient(), f)
		},
	}).Setup(m, asked.Changed()))
}

// importer is the pod that fills a claim, by what nodes offer now.
func importer(ctx context.Context, cached client.Reader, f launcher.Filling) (*corev1.Pod, error) {
	defaults.Instance(f.Input.Instance, f.Input.Configuration)
	if err := offered(ctx, cached, &f.Input); err != nil {
		return nil, err
	}
	return launcher.Importer(f), nil
}

// instanceOf is what a VM would be started with, as far as it says where that may run.
func instanceOf(vm *kubevirtv1.VirtualMachine) *kubevirtv1.VirtualMachineInstance {
	vmi := new(kubevirtv1.VirtualMachineInstance)
	vmi.Namespace, vmi.Name = vm.Namespace, vm.Name
	if t := vm.Spec.Template; t != nil {
		t.Spec.DeepCopyInto(&vmi.Spec)
		vmi.Labels, vmi.Annotations = maps.Clone(t.ObjectMeta.Labels), maps.Clone(t.ObjectMeta.Annotations)
	}
	return vmi
}
