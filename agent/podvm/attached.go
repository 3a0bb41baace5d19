package podvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/pods"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/filesocket"
	"github.com/vmlet/vmlet/shim"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// attachPatience is how long the API server and a pod together may take to hand out the
	// volume that is attached.
	attachPatience = 20 * time.Second
	// maxName bounds a folder's name, in bytes (NAME_MAX, limits.h).
	maxName = 255
)

var _ place.Attacher = (*placement)(nil)

// isName says whether it is the name of one file in a folder.
func isName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= maxName && !strings.ContainsAny(name, "/\x00")
}

// Attached implements place.Attacher. Whose pod it is says the API server; that the pod hands
// out what it should is the pod's own word: its folder is written to with the rights that the
// VM's shim has in its own pod.
func (h *placement) Attached(ctx context.Context, uid string) (*os.File, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, attachPatience, fmt.Errorf("it has taken more than %v", attachPatience))
	defer cancel()
	pod, err := h.pods.Pod(ctx, types.UID(uid))
	if err != nil {
		return nil, fault.Errorf(codes.FailedPrecondition, "the pod that attaches the volume: %w", err)
	}
	name := fmt.Sprintf("pod %s/%s", pod.Namespace, pod.Name)
	switch {
	case pod.Namespace != h.pod.Namespace:
		return nil, fault.Errorf(codes.PermissionDenied, "%s is in another namespace than the VM's pod: no volume is attached from there", name)
	case !pods.AttachesTo(pod, h.pod.UID):
		return nil, fault.Errorf(codes.PermissionDenied, "%s attaches nothing to the VM's pod: its labels %s and %s are %.64q and %.64q, want %q and the UID of that pod, %s",
			name, contract.LabelApp, contract.LabelAttachedTo, pod.Labels[contract.LabelApp], pod.Labels[contract.LabelAttachedTo], contract.LabelAppAttachment, h.pod.UID)
	case pod.DeletionTimestamp != nil:
		return nil, fault.Errorf(codes.FailedPrecondition, "%s, which attaches the volume, is being deleted", name)
	}
	folder, err := h.pods.Attached(ctx, pod)
	if err == nil {
		return folder, nil
	}
	err = fmt.Errorf("%s has not handed out the volume that it attaches: %w", name, err)
	if errors.Is(err, context.Canceled) {
		return nil, err
	}
	if poses(err) {
		return nil, &fault.Error{Code: codes.PermissionDenied, Err: err}
	}
	// Not Unavailable: by that callers know that the agent itself was lost.
	return nil, &fault.Error{Code: codes.FailedPrecondition, Err: err}
}

// poses says whether an error is of a pod that attaches no volume, whatever its label says: it will not get better.
func poses(err error) bool {
	var unfit *filesocket.Unfit
	return errors.As(err, &unfit) || fault.Code(err) == codes.PermissionDenied
}

// openImage gives the shim the volume with the image that its VM goes on from, as soon as a pod attaches it. A pod that only
// poses as one is asked once, and does not keep the guest from the one that is its own.
func (p *Runner) openImage(ctx context.Context, h *placement, want *wanted) error {
	ctx, end := whileConnected(ctx, h.conn)
	defer end()
	refused := make(map[types.UID]bool)
	for retry := newRetry(); ; {
		pod, err := h.pods.Attachment(ctx, h.pod.Namespace, h.pod.UID, refused)
		if err != nil {
			return err
		}
		volume, err := h.Attached(ctx, string(pod.UID))
		if err == nil {
			return p.openIn(ctx, h.conn, want, volume)
		}
		if poses(err) {
			p.log.Warn("a pod labelled as attaching a guest's memory was refused for good", "pod", h.pod.UID, "error", err)
			refused[pod.UID] = true
			continue
		}
		p.log.Info("the volume with a guest's memory is not attached yet: trying again", "pod", h.pod.UID, "error", err)
		select {
		case <-time.After(retry.Step()):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// openIn has the shim open the image in a volume, which is closed.
func (p *Runner) openIn(ctx context.Context, conn place.Shim, w *wanted, volume *os.File) error {
	defer volume.Close()
	d, err := conn.OpenImage(ctx, volume)
	if err != nil {
		return err
	}
	defer d.Done()
	if d.Restore == nil {
		return fault.Errorf(codes.FailedPrecondition, "the shim says nothing of the image in the volume that is attached")
	}
	p.reading.Lock()
	defer p.reading.Unlock()
	return w.parseImage(d.Restore.Manifest)
}

// whileConnected returns a context that ends with the connection. What the shim says unasked until end is lost.
func whileConnected(ctx context.Context, conn place.Shim) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case _, open := <-conn.Events():
				if !open {
					cancel(shim.ErrDisconnected)
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}

// Attached takes the folder only from a process of that very pod.
func (s systemPods) Attached(ctx context.Context, pod *corev1.Pod) (*os.File, error) {
	return pods.Attached(ctx, s.taker, s.kubeletDir, pod, func(peer pods.Peer) error {
		process, err := s.Identify(peer.PID)
		if err != nil {
			return err
		}
		place, err := s.Place(process)
		if err != nil {
			return fmt.Errorf("who hands it out: %w", err)
		}
		if place.Pod != pod.UID {
			return fault.Errorf(codes.PermissionDenied, "a process of pod %s listens in its volume", place.Pod)
		}
		return nil
	})
}

// Attachment waits until the API server has it.
func (s systemPods) Attachment(ctx context.Context, namespace string, to types.UID, refused map[types.UID]bool) (*corev1.Pod, error) {
	return s.pods.Attachment(ctx, namespace, to, refused)
}

// Pod waits until the API server has it.
func (s systemPods) Pod(ctx context.Context, uid types.UID) (*corev1.Pod, error) {
	return s.pods.Pod(ctx, uid)
}
