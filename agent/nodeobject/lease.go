package nodeobject

import (
	"context"
	"log/slog"
	"time"

	"github.com/vmlet/vmlet/agent/kube"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The agent's Lease is renewed four times before it is over.
const (
	leaseDuration = 120 * time.Second
	leaseRenewal  = 30 * time.Second
	leaseTimeout  = 20 * time.Second
)

// lease says that the agent of this node lives. It has the node's name and is in
// the agent's namespace; it goes with the Node, whose it is.
type lease struct {
	client   *kube.Client
	watch    *Watch
	counters *counters
	said     *kube.Complaint

	known *coordinationv1.Lease // as the API server last had it
}

func newLease(client *kube.Client, watch *Watch, c *counters, log *slog.Logger) *lease {
	return &lease{client: client, watch: watch, counters: c, said: &kube.Complaint{Log: log, What: "renewing the agent's Lease"}}
}

// run renews it until ctx ends, and lets it run out then.
func (l *lease) run(ctx context.Context) {
	tick := time.NewTicker(leaseRenewal)
	defer tick.Stop()
	for {
		err := l.keep(ctx, time.Now())
		l.said.About(ctx, err)
		l.counters.update(func(o *Outcomes) {
			if err == nil {
				o.LeaseRenewals++
			} else if ctx.Err() == nil {
				o.LeaseErrors++
			}
		})
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// keep renews the Lease, also if it isn't as it was last seen.
func (l *lease) keep(ctx context.Context, now time.Time) error {
	err := l.renew(ctx, now)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		l.known = nil // somebody else has written it, or taken it away
		err = l.renew(ctx, now)
	}
	return err
}

// renew writes the Lease once.
func (l *lease) renew(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	if l.known == nil {
		var found coordinationv1.Lease
		err := l.client.Coordination().Get().Namespace(l.client.Namespace()).Resource("leases").Name(l.client.Node()).MaxRetries(1).Do(ctx).Into(&found)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		l.known = &found // without a name if there is none
	}
	body := l.known.DeepCopy()
	l.fill(body, now)
	request := l.client.Coordination().Put().Name(l.client.Node())
	if body.ResourceVersion == "" {
		request = l.client.Coordination().Post()
	}
	var after coordinationv1.Lease
	err := request.Namespace(l.client.Namespace()).Resource("leases").MaxRetries(1).Body(body).Do(ctx).Into(&after)
	if err != nil {
		return err
	}
	if after.Name != body.Name || after.ResourceVersion == "" {
		return errOther
	}
	l.known = &after
	return nil
}

// fill makes a Lease ours, at a time.
func (l *lease) fill(body *coordinationv1.Lease, now time.Time) {
	holder, seconds, at := l.client.Node(), int32(leaseDuration/time.Second), metav1.NewMicroTime(now)
	body.Name, body.Namespace = l.client.Node(), l.client.Namespace()
	if node, _ := l.watch.node(); node != nil {
		body.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: corev1.SchemeGroupVersion.Version, Kind: "Node", Name: node.Name, UID: node.UID,
		}}
	}
	if body.Spec.HolderIdentity == nil || *body.Spec.HolderIdentity != holder || body.Spec.AcquireTime == nil {
		body.Spec.AcquireTime = &at
	}
	body.Spec.HolderIdentity, body.Spec.LeaseDurationSeconds, body.Spec.RenewTime = &holder, &seconds, &at
}
