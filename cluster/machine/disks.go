package machine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/claimwatch"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/hibernation"
	"github.com/vmlet/vmlet/cluster/machine/run"
	"github.com/vmlet/vmlet/contract"
)

// spoiled says why an instance that is about to be made must not go on from its image; nil: it may, or
// it boots.
func (r *Observer) spoiled(ctx context.Context, all []action.Action) (*action.Failure, error) {
	i := slices.IndexFunc(all, action.Is[action.CreateInstance])
	if i < 0 {
		return nil, nil
	}
	instance := all[i].(action.CreateInstance).Instance
	image := convert.RestoreFrom(instance)
	if image == nil {
		return nil, nil
	}
	uses, err := r.Uses.Look(ctx, instance.Namespace, image.Directory)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return &action.Failure{Reason: hibernation.ReasonRestoreFailed, Message: "it is not known yet which pods used the VM's disks since the save: " + err.Error()}, nil
	}
	disks := convert.DiskClaims(instance)
	for _, disk := range slices.Sorted(maps.Keys(disks)) {
		why, err := r.spoiledDisk(ctx, types.NamespacedName{Namespace: instance.Namespace, Name: disks[disk]}, uses)
		if err != nil {
			return nil, err
		}
		if why != "" {
			return diskChanged(disk, why), nil
		}
	}
	return nil, nil
}

func (r *Observer) spoiledDisk(ctx context.Context, name types.NamespacedName, uses []claimwatch.Use) (string, error) {
	claim := &corev1.PersistentVolumeClaim{}
	there, err := get(ctx, r.Live, name, claim)
	if err != nil {
		return "", err
	}
	if !there {
		claim = nil
	}
	var use *claimwatch.Use
	if i := slices.IndexFunc(uses, func(u claimwatch.Use) bool { return u.Claim == name.Name }); i >= 0 {
		use = &uses[i]
	}
	return claimwatch.Spoiled(name.Name, claim, use), nil
}

func diskChanged(disk, why string) *action.Failure {
	return &action.Failure{Reason: contract.RestoreDiskChanged, Message: fmt.Sprintf(
		"disk %s has volumeMode Block, and does not show whether anybody has written to it: %s; the guest's memory would destroy the file system on it", disk, why)}
}

// spoiledMeanwhile is spoiled of an instance that is about to go on. Once its pod has a node, its guest may go on
// already, by an image that is used then: it is ended because another pod has used its disk, and not because
// nobody watched for a time. Its memory would be lost whenever the API server restarts meanwhile.
func (r *Observer) spoiledMeanwhile(own *kubevirtv1.VirtualMachineInstance) *action.Failure {
	if !run.NotResumed(own) || run.StageOf(own) != run.Alive {
		return nil
	}
	disks := convert.DiskClaims(own)
	for _, u := range r.Uses.Known(own.Namespace, own.Spec.RestoreFrom.Directory) {
		for _, disk := range slices.Sorted(maps.Keys(disks)) {
			if u.By == "" && own.Status.NodeName != "" {
				continue
			}
			if why := u.Spoiled(); why != "" && disks[disk] == u.Claim {
				return diskChanged(disk, why)
			}
		}
	}
	return nil
}
