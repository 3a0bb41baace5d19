package nodeobject

import (
	"errors"
	"strings"
	"time"

	"github.com/vmlet/vmlet/agent/kube"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// After an error it is tried again after a second, and then ever more seldom:
// most seldom what somebody has to do something about.
const (
	retryFirst   = time.Second
	retryLast    = time.Minute
	retryRefused = 5 * time.Minute
)

// retry says when to try again. It is for one goroutine.
type retry struct {
	backoff wait.Backoff
	until   time.Time
}

func newRetry() *retry {
	r := &retry{}
	r.reset()
	return r
}

// reset: it went well.
func (r *retry) reset() {
	r.until = time.Time{}
	r.backoff = wait.Backoff{Duration: retryFirst, Factor: 2, Jitter: 0.2, Steps: 64, Cap: retryRefused}
}

// failed returns how long to wait: what the API server asks for, if that is more.
func (r *retry) failed(now time.Time, err error) time.Duration {
	delay := r.backoff.Step()
	if kube.Remedy(err) == "" || apierrors.IsUnauthorized(err) { // client-go reads a token's file each minute
		delay = min(delay, retryLast)
	}
	if seconds, asked := apierrors.SuggestsClientDelay(err); asked {
		delay = max(delay, min(time.Duration(seconds)*time.Second, retryRefused))
	}
	r.until = now.Add(delay)
	return delay
}

// wait is how long there is still to be waited.
func (r *retry) wait(now time.Time) time.Duration { return max(r.until.Sub(now), 0) }

// conflictsOf are the fields that the API server refused because they are another
// manager's.
func conflictsOf(err error) []field {
	var status apierrors.APIStatus
	if !apierrors.IsConflict(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var fields []field
	for _, c := range status.Status().Details.Causes {
		for _, kind := range []string{labelField, annotationField} {
			if key, is := strings.CutPrefix(c.Field, ".metadata."+kind+"."); is && c.Type == metav1.CauseTypeFieldManagerConflict {
				fields = append(fields, field{kind, key})
			}
		}
	}
	return fields
}
