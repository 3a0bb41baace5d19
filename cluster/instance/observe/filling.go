package observe

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmlet/vmlet/cluster/imports"
	"github.com/vmlet/vmlet/cluster/instance/claims"
	"github.com/vmlet/vmlet/cluster/instance/condition"
)

// filling reads why a claim can't be used yet, as its DataVolume is not done; nil: it can. CDI says
// so on the claim itself only once an importer has a pod.
func (r *Observer) filling(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*condition.Fault, error) {
	if state := imports.Read(claim); state != nil {
		if state.Done() {
			return nil, nil
		}
		return &condition.Fault{Reason: condition.ReasonClaimFilling, Message: "claim " + claim.Name + " " + state.Waiting() + "; the VM starts when that is done"}, nil
	}
	name := claims.ImportOf(claim)
	if name == "" {
		return nil, nil
	}
	if !r.DataVolumes {
		if phase := claim.Annotations[claims.ImportPhase]; phase != "" {
			return claims.Unfilled(claim, phase), nil
		}
		return nil, nil
	}
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(claims.DataVolumeVersion)
	u.SetKind(claims.DataVolumeKind)
	u, err := Get(ctx, r.Live, types.NamespacedName{Namespace: claim.Namespace, Name: name}, u)
	if err != nil || u == nil {
		return nil, err
	}
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	return claims.Unfilled(claim, phase), nil
}
