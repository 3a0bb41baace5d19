package kube

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// complaintRest is how long nothing is said again that fails and works by turns.
const complaintRest = 10 * time.Minute

// Complaint logs what fails once, and that it goes again. Its methods may be called
// concurrently.
type Complaint struct {
	Log *slog.Logger
	// What it is that fails, as the beginning of a sentence.
	What string

	mu   sync.Mutex
	said bool // that it fails was the last that was said
	last string
	at   time.Time
}

// About takes how it went.
func (c *Complaint) About(ctx context.Context, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // the reflector lists again by itself
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		if c.said {
			c.Log.Info(c.What + " works again")
		}
		c.said = false
		return
	}
	news := apierrors.IsForbidden(err) && err.Error() != c.last // somebody is to do something else
	if !news && (c.said || time.Since(c.at) < complaintRest) {
		return
	}
	c.said, c.last, c.at = true, err.Error(), time.Now()
	c.Log.Warn(c.What+" fails", "error", err, "remedy", Remedy(err))
}

// Remedy is what an administrator does about an error of the API server's; empty:
// nothing, it passes.
func Remedy(err error) string {
	switch {
	// The API server names a policy in its sentence alone: the status is that of any invalid object.
	case err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy"):
		return "the policy allows an agent only its own Node, and there only vmlet's keys: the pod needs the token that Kubernetes mounts by itself, which names its node, and the policy of this version"
	case apierrors.IsForbidden(err):
		return "give the agent's service account this right, as deploy/base does"
	case apierrors.IsUnauthorized(err):
		return "the agent's token or certificate is not accepted: is its service account still there?"
	case apierrors.IsNotFound(err):
		return "is this node's name right (kubernetes.node), and the agent's namespace there?"
	}
	return ""
}
