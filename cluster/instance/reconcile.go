// Package instance runs VirtualMachineInstances: it makes the pod of each, follows what the
// kubelet and the node's agent say of it, and writes the instance's status.
//
// The packages below it have the rules, as functions of a view.View. decide, which is pure, asks them in order for the
// next action; an observe.Observer reads, and a round carries out one action at a time, and can be killed between any
// two. The package must not know what is in a pod (cluster/launcher) nor how agents are reached. Start reading at
// decide.
package instance

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmlet/vmlet/cluster/instance/action"
)

// maxSteps bounds one round, should an action not have the effect that decide expects.
const maxSteps = 50

// Reconcile brings the instance of a name, and the pods of earlier ones, as far as it can be
// brought now.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	v, err := r.Observer.Observe(ctx, req.NamespacedName)
	if err != nil || v == nil {
		return reconcile.Result{}, err
	}
	t := &round{Reconciler: r, o: v, key: req.NamespacedName}
	for range maxSteps {
		next, again := decide(v)
		if next == nil {
			return t.result(again)
		}
		err := t.take(ctx, next)
		switch {
		case apierrors.IsConflict(err), action.Is[action.WriteStatus](next) && apierrors.IsNotFound(err): // what was read is behind
			return reconcile.Result{RequeueAfter: soon}, nil
		case err != nil:
			return reconcile.Result{}, fmt.Errorf("%v: %w", next, err)
		case v.Instance == nil && len(v.Others) == 0 && v.Call == nil:
			return reconcile.Result{}, nil
		}
	}
	return reconcile.Result{}, fmt.Errorf("instance %s: still not settled after %d steps", req.NamespacedName, maxSteps)
}

func (t *round) result(again time.Duration) (reconcile.Result, error) {
	if err := errors.Join(t.failures...); err != nil {
		return reconcile.Result{}, err
	}
	t.lookAgain(again)
	return reconcile.Result{RequeueAfter: t.again}, nil
}
