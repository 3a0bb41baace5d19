package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmlet/vmlet/cluster/convert"
)

// reached says in the input which nodes can mount the claim that is attached for a guest to go on from. A
// claim that is not there is somebody else's to refuse.
func reached(ctx context.Context, live client.Reader, in *convert.Input) error {
	image := convert.AttachedImage(in.Instance)
	if image == nil || in.Claims[image.ClaimName] == nil {
		return nil
	}
	name := in.Claims[image.ClaimName].Spec.VolumeName
	if name == "" {
		return fmt.Errorf("claim %s, which has the guest's memory, is bound to no volume", image.ClaimName)
	}
	var volume corev1.PersistentVolume
	if err := live.Get(ctx, types.NamespacedName{Name: name}, &volume); err != nil {
		return fmt.Errorf("reading the volume of claim %s, which has the guest's memory: %w", image.ClaimName, err)
	}
	if a := volume.Spec.NodeAffinity; a != nil {
		in.ImageNodes = a.Required
	}
	return nil
}
