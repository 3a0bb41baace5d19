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
	switch to := pod.Labels[contract.LabelAttachedTo]; {
	case pod.Namespace != h.pod.Namespace:
		return nil, fault.Errorf(codes.PermissionDenied, "%s is in another namespace than the VM's pod: no volume is attached from there", name)
	case to != string(h.pod.UID):
		return nil, fault.Errorf(codes.PermissionDenied, "%s attaches nothing to the VM's pod: its label %s is %.64q, want the UID of that pod, %s", name, contract.LabelAttachedTo, to, h.pod.UID)
	case pod.DeletionTimestamp != nil:
		return nil, fault.Errorf(codes.FailedPrecondition, "%s, which attaches the volume, is being deleted", name)
	}
	folder, err := h.pods.Attached(ctx, pod.UID)
	if err == nil {
		return folder, nil
	}
	err = fmt.Errorf("%s has not handed out the volume that it attaches: %w", name, err)
	if errors.Is(err, context.Canceled) {
		return nil, err
	}
	// Not Unavailable: by that callers know that the agent itself was lost.
	return nil, &fault.Error{Code: codes.FailedPrecondition, Err: err}
}

// Attached takes the folder only from a process of that very pod.
func (s systemPods) Attached(ctx context.Context, uid types.UID) (*os.File, error) {
	return pods.Attached(ctx, s.taker, s.kubeletDir, uid, func(peer pods.Peer) error {
		process, err := s.Identify(peer.PID)
		if err != nil {
			return err
		}
		place, err := s.Place(process)
		if err != nil {
			return fmt.Errorf("who hands it out: %w", err)
		}
		if place.Pod != uid {
			return fault.Errorf(codes.PermissionDenied, "a process of pod %s listens in its volume", place.Pod)
		}
		return nil
	})
}

// Pod waits until the API server has it.
func (s systemPods) Pod(ctx context.Context, uid types.UID) (*corev1.Pod, error) {
	return s.pods.Pod(ctx, uid)
}
