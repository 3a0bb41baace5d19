package podvm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/filesocket"
	"github.com/vmlet/vmlet/memory"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/shim"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const attachUID = "0a1b2c3d-4e5f-4a6b-8c7d-8e9f0a1b2c3d"

// attachment is a pod that attaches a volume to the VM's.
func attachment(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		UID: attachUID, Namespace: "default", Name: "hp-web",
		Labels: map[string]string{contract.LabelApp: contract.LabelAppAttachment, contract.LabelAttachedTo: podUID},
	}}
	for _, f := range change {
		f(p)
	}
	return p
}

// TestSaveToAttachedVolume: the image is in the volume of the other pod, and where it is stays
// known until the VM's pod is gone.
func TestSaveToAttachedVolume(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	n.others, n.attached = []*corev1.Pod{attachment()}, t.TempDir()
	unmount := n.servePod(t, a)
	n.container()
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	vm, result, err := a.Saver.Save(t.Context(), podVM, place.SaveOptions{Directory: "restore-web", Attachment: attachUID}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if result.ImageBytes != result.MemoryBytes+result.StateBytes+7 || result.Paused {
		t.Errorf("result %v", result)
	}
	image, err := memory.Open(filepath.Join(n.attached, "restore-web"))
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	said := vm.GetStatus()
	if said.GetImage().GetImageId() != image.Manifest().ID || said.GetImage().GetPath() != "restore-web" || said.GetEndReason() != nodev1.EndReason_END_REASON_SAVED {
		t.Errorf("status %v, want the image %s", said, image.Manifest().ID)
	}
	vmtest.Eventually(t, "it is saved", a.is(lifecycle.Saved))
	close(n.gone)
	unmount()
	vmtest.Eventually(t, "it is forgotten with its pod", func() bool { return len(a.All()) == 0 })
}

// TestPodRestoresAttached: a guest waits for the pod that attaches its image's volume, whichever agent sees that
// pod come, and is refused with what the shim says of the volume.
func TestPodRestoresAttached(t *testing.T) {
	for name, test := range map[string]struct {
		image string // in the volume
		again bool   // the agent is another one when the pod comes
		poses error  // of another pod that comes with it
		runs  bool
	}{
		"attached":             {"restore-web", false, nil, true},
		"agent lost meanwhile": {"restore-web", true, nil, true},
		"another volume":       {"restore-other", false, nil, false},
		"one hands out a file": {"restore-web", false, new(filesocket.Unfit), true},
		"one has a stranger":   {"restore-web", false, fault.Errorf(codes.PermissionDenied, "a process of pod x listens in its volume"), true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a, n := w.start(), newFakeNode(w)
			unmount := n.servePod(t, a)
			manifest := savedPod(t, a, n)
			n.attached = t.TempDir()
			if err := os.Mkdir(filepath.Join(n.attached, test.image), 0o700); err != nil {
				t.Fatal(err)
			}
			restored := n.container(func(p *vmtest.Pod) {
				p.Described.Specification, p.Attached = nil, manifest
				p.Described.Restore = &shim.PodRestore{Directory: "/claim/restore-web", Once: true, Attached: true}
			})
			vmtest.Eventually(t, "it waits for the volume", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.awaited > 0 })
			if launched := restored.Pod.Launched.Plan; launched != nil {
				t.Fatal("it is launched before its image is there")
			}
			if test.again {
				unmount()
				a.end()
				a = w.start()
				n.servePod(t, a)
			}
			poser := attachment(func(p *corev1.Pod) { p.UID = "poser" })
			n.set(func() {
				n.others = []*corev1.Pod{attachment()}
				if test.poses != nil {
					n.others, n.poses = []*corev1.Pod{poser, attachment()}, map[types.UID]error{poser.UID: test.poses}
				}
			})
			vmtest.Eventually(t, "it runs, or never", func() bool { return a.is(lifecycle.Running)() || !restored.Alive() })
			if restored.Alive() != test.runs {
				t.Fatalf("it runs: %v, refused with %q", restored.Alive(), restored.Pod.Refusal)
			}
			if !test.runs && !strings.Contains(restored.Pod.Refusal, "restore-web") {
				t.Errorf("refused with %q", restored.Pod.Refusal)
			}
			if r := restored.Pod.Launched.Plan; test.runs && r.Restore.Directory != "/claim/restore-web" {
				t.Errorf("restored from %+v", r.Restore)
			}
		})
	}
}

// TestSaveOfPausedIsTold: such a VM is to be paused once it is restored.
func TestSaveOfPausedIsTold(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	n.servePod(t, a)
	n.container()
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	if _, err := a.Power.Pause(t.Context(), podVM); err != nil {
		t.Fatal(err)
	}
	_, result, err := a.Saver.Save(t.Context(), podVM, place.SaveOptions{Directory: filepath.Join(t.TempDir(), "image")}, nil)
	if err != nil || !result.Paused {
		t.Errorf("result %v, %v", result, err)
	}
}

// TestAttachedRefused: what is not for this VM, and folders that would not be in the volume. The
// guest goes on.
func TestAttachedRefused(t *testing.T) {
	for name, test := range map[string]struct {
		pod       *corev1.Pod
		directory string
		nothing   bool // is handed out
		code      codes.Code
		want      string
	}{
		"no such pod":         {nil, "d", false, codes.FailedPrecondition, "no pod " + attachUID},
		"another namespace":   {attachment(func(p *corev1.Pod) { p.Namespace = "other" }), "d", false, codes.PermissionDenied, "pod other/hp-web is in another namespace"},
		"another VM's":        {attachment(func(p *corev1.Pod) { p.Labels[contract.LabelAttachedTo] = attachUID }), "d", false, codes.PermissionDenied, contract.LabelAttachedTo},
		"nobody's":            {attachment(func(p *corev1.Pod) { p.Labels = nil }), "d", false, codes.PermissionDenied, "attaches nothing to the VM's pod"},
		"no attachment":       {attachment(func(p *corev1.Pod) { delete(p.Labels, contract.LabelApp) }), "d", false, codes.PermissionDenied, contract.LabelApp + " and"},
		"being deleted":       {attachment(func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }), "d", false, codes.FailedPrecondition, "is being deleted"},
		"nothing handed out":  {attachment(), "d", true, codes.FailedPrecondition, "pod default/hp-web has not handed out the volume"},
		"a path":              {attachment(), "/image", false, codes.InvalidArgument, "directory"},
		"a folder in another": {attachment(), "a/b", false, codes.InvalidArgument, "directory"},
		"the folder above":    {attachment(), "..", false, codes.InvalidArgument, "directory"},
		"the volume itself":   {attachment(), ".", false, codes.InvalidArgument, "directory"},
		"no name":             {attachment(), "", false, codes.InvalidArgument, "directory"},
		"a long name":         {attachment(), strings.Repeat("a", 256), false, codes.InvalidArgument, "directory"},
		"a NUL":               {attachment(), "a\x00", false, codes.InvalidArgument, "directory"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a, n := w.start(), newFakeNode(w)
			if n.attached = t.TempDir(); test.nothing {
				n.attached = ""
			}
			if test.pod != nil {
				n.others = []*corev1.Pod{test.pod}
			}
			n.servePod(t, a)
			n.container()
			vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
			_, _, err := a.Saver.Save(t.Context(), podVM, place.SaveOptions{Directory: test.directory, Attachment: attachUID}, nil)
			if fault.Code(err) != test.code || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %v with %q", err, test.code, test.want)
			}
			if !a.is(lifecycle.Running)() {
				t.Error("the guest doesn't go on")
			}
			if n.attached == "" {
				return
			}
			if left, err := os.ReadDir(n.attached); len(left) > 0 || err != nil {
				t.Errorf("left in the volume: %v, %v", left, err)
			}
		})
	}
}

// TestAttachedByAStranger: who listens in a pod's volume, and is no process of that pod's, is
// asked for nothing.
func TestAttachedByAStranger(t *testing.T) {
	kubelet, short := t.TempDir(), filepath.Join(t.TempDir(), "s")
	volume := filepath.Join(kubelet, "pods", attachUID, "volumes", "kubernetes.io~empty-dir", contract.VolumeAttachment)
	if err := os.MkdirAll(volume, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := filesocket.Listen(short)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Rename(short, filepath.Join(volume, contract.AttachmentSocket)); err != nil {
		t.Fatal(err)
	}
	s := systemPods{kubeletDir: kubelet, taker: new(filesocket.Taker)}
	if f, err := s.Attached(t.Context(), attachment()); err == nil || !strings.Contains(err.Error(), "who hands it out") {
		f.Close()
		t.Errorf("error %v, want that this process is in no pod", err)
	}
}
