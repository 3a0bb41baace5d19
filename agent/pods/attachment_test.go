package pods

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vmlet/vmlet/contract"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestAwaitAttachment: the pod is of the namespace, for that very VM's pod, stays, and has a container that was
// started. What is none is waited past.
func TestAwaitAttachment(t *testing.T) {
	const to = types.UID("5f2b9c1e-8a34-4d6f-9b7a-0c1d2e3f4a5b")
	known, refused := New(), map[types.UID]bool{"refused": true}
	pod := func(uid types.UID, change func(*corev1.Pod)) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Namespace: "shop", Name: "hp-1", Labels: map[string]string{contract.LabelApp: contract.LabelAppAttachment, contract.LabelAttachedTo: string(to)}}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "attach", ContainerID: "containerd://c0ffee"}}
		change(p)
		lean, err := slim(p)
		if err != nil {
			t.Fatal(err)
		}
		known.put(lean)
	}
	pod("another namespace's", func(p *corev1.Pod) { p.Namespace = "other" })
	pod("another VM's", func(p *corev1.Pod) { p.Labels[contract.LabelAttachedTo] = "another" })
	pod("being deleted", func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) })
	pod("refused", func(*corev1.Pod) {})
	pod("not started", func(p *corev1.Pod) { p.Status.ContainerStatuses[0].ContainerID = "" })
	pod("another app", func(p *corev1.Pod) { p.Labels[contract.LabelApp] = contract.LabelAppLauncher })
	pod("no app", func(p *corev1.Pod) { delete(p.Labels, contract.LabelApp) })
	pod("no attachment", func(p *corev1.Pod) { p.Labels = nil })
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if p, err := known.Attachment(ctx, "shop", to, refused); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("found %v, %v, and there is none", p, err)
	}
	found := make(chan types.UID)
	go func() {
		p, err := known.Attachment(t.Context(), "shop", to, refused)
		if err != nil {
			t.Error(err)
			close(found)
			return
		}
		found <- p.UID
	}()
	pod("the one", func(*corev1.Pod) {})
	if uid := <-found; uid != "the one" {
		t.Errorf("found %q", uid)
	}
}
