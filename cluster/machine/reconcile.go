package machine

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/action"
)

// Reconcile takes a VM one step further. It may be called for a VM that is not there.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	// Caches say whether there may be something to do, the API server what it is: a cache
	// lags behind this controller's own writes, and after a change of leaders behind those
	// of another one.
	o, err := r.Observer.observe(ctx, r.Observer.Client, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if d := decide(o); len(d.actions) == 0 {
		return r.wait(d), nil
	}
	if o, err = r.Observer.observe(ctx, r.Observer.Live, request.NamespacedName); err != nil {
		return reconcile.Result{}, err
	}
	d := decide(o)
	if why, err := r.Observer.spoiled(ctx, d.actions); err != nil {
		return reconcile.Result{}, err
	} else if why != nil {
		o.Spoiled = why
		d = decide(o)
	}
	a, err := r.carryOut(ctx, o.vm, d.actions)
	if _, claim := a.(action.CreateClaim); claim && apierrors.IsForbidden(err) && d.starts != nil {
		r.Writer.event(o.vm, action.Warning(reasonFailedCreate, "The VM starts without a claim for its memory: %v", err))
		o.Claimless = true
		d = decide(o)
		a, err = r.carryOut(ctx, o.vm, d.actions)
	}
	switch {
	case errors.Is(err, errChanged):
		return reconcile.Result{RequeueAfter: soon}, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return reconcile.Result{}, nil // the VM's own deletion follows
	case err != nil:
		return reconcile.Result{}, r.report(ctx, o, a, err)
	}
	return r.wait(d), nil
}

// carryOut returns the first action that fails, and its error.
func (r *Reconciler) carryOut(ctx context.Context, vm *kubevirtv1.VirtualMachine, all []action.Action) (first action.Action, failed error) {
	for _, a := range all {
		if failed != nil && !action.Independent(a) {
			break
		}
		err := r.Writer.act(ctx, vm, a)
		if err == nil || failed != nil {
			continue
		}
		if first, failed = a, err; !action.Independent(a) {
			break
		}
	}
	return first, failed
}

// wait returns when the VM is looked at again.
func (r *Reconciler) wait(d decision) reconcile.Result {
	if d.again.IsZero() {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: max(d.again.Sub(r.Observer.Now()), time.Millisecond)}
}

// report has the VM's status say what has failed. It returns the error of that.
func (r *Reconciler) report(ctx context.Context, o state, a action.Action, failed error) error {
	if o.failed = explain(a, failed); o.failed == nil {
		return failed
	}
	for _, a := range decide(o).actions {
		if w, is := a.(action.WriteStatus); is {
			return errors.Join(failed, r.Writer.act(ctx, o.vm, w))
		}
	}
	return failed
}
