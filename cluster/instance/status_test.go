package instance

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/observe"
	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/cluster/instance/status"
	"github.com/vmlet/vmlet/cluster/instance/view"
)

// TestStatusSettles: a status follows from itself: nothing is written twice.
func TestStatusSettles(t *testing.T) {
	if next, _ := decide(written(scene.Full()).View); action.Is[action.WriteStatus](next) {
		t.Error("the same is written again")
	}
}

// TestPullIsNoNews: a pull that fails again does not change the condition back.
func TestPullIsNoNews(t *testing.T) {
	of := func(reason, message string) func(*view.Pod) {
		return scene.InState(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
	}
	for _, waits := range []string{`Back-off pulling image "a": ErrImagePull: denied`, `Back-off pulling image "a"`} {
		s := written(written(scene.New().WithPod()).WithPod(of("ErrImagePull", "denied"))).WithPod(of("ImagePullBackOff", waits))
		for range 2 {
			s = written(s).WithPod(of("ErrImagePull", "denied"))
			if next, _ := decide(s.View); next != nil {
				t.Errorf("%s: next of a pull %v", waits, next)
			}
			s = written(s).WithPod(of("ImagePullBackOff", waits))
			if next, _ := decide(s.View); next != nil {
				t.Errorf("%s: next of a wait %v", waits, next)
			}
		}
	}
}

// TestGuestIsPaced: a guest whose interfaces change all the time costs a write now and then.
func TestGuestIsPaced(t *testing.T) {
	s := written(scene.Full())
	s.Instance.Labels = map[string]string{"kubevirt.io/nodeName": "node-a"}
	s.View.Now = scene.Time.Add(time.Second)
	s.Pod.Report.VM.Status.Guest.Interfaces[2].Addresses[0] = "172.18.0.1"
	next, again := decide(s.View)
	if action.Is[action.WriteStatus](next) {
		t.Fatal("written a second after the last")
	}
	if due := status.GuestInterval - time.Second; again != due {
		t.Errorf("looked at after %v, want %v", again, due)
	}
	s.View.Now = scene.Time.Add(status.GuestInterval)
	next, _ = decide(s.View)
	if got, is := next.(action.WriteStatus); !is || got.Status.Interfaces[1].IPAddress != "172.18.0.1" {
		t.Errorf("%v when it is due", next)
	}
}

// TestNewPodOldInstance: a cache that has an instance's pod and not yet the instance does not
// make an orphan of it.
func TestNewPodOldInstance(t *testing.T) {
	for name, change := range map[string]func(*kubevirtv1.VirtualMachineInstance){
		"none":       nil,
		"an earlier": func(v *kubevirtv1.VirtualMachineInstance) { v.UID = types.UID("uid-0000") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.until("it runs", w.in(kubevirtv1.PhaseRunning))
			w.during(2)
			w.cached = w.snapshot()
			old := w.instance()
			w.must(w.cached.Delete(t.Context(), old.DeepCopy()))
			stale := w.instance()
			stale.Finalizers = nil
			if left, err := observe.Get(t.Context(), w.cached, vmKey, new(kubevirtv1.VirtualMachineInstance)); err == nil && left != nil {
				left.Finalizers = nil
				w.must(w.cached.Update(t.Context(), left))
			}
			if change != nil {
				change(stale)
				stale.ResourceVersion = ""
				w.must(w.cached.Create(t.Context(), stale))
			}
			before := len(w.writes)
			w.reconcile(w.controller())
			if len(w.writes) > before {
				t.Errorf("writes %v", w.writes[before:])
			}
		})
	}
}
