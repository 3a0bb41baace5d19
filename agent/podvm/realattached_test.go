package podvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/pods"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/filesocket"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/test/guest"
	corev1 "k8s.io/api/core/v1"
)

// attachingNode is a node with a second pod, which attaches a volume by the real program.
type attachingNode struct {
	*shimmedNode
	kubelet, volume string
	attacher        *exec.Cmd
}

func newAttachingNode(t *testing.T, w *world) *attachingNode {
	n := &attachingNode{shimmedNode: newShimmedNode(t, w), kubelet: folder(t, ""), volume: folder(t, "")}
	n.others = []*corev1.Pod{attachment()}
	n.must(os.WriteFile(n.words(), nil, 0o600))
	n.must(os.Chown(n.words(), podUser, podUser))
	shared := folder(t, "")
	for _, dir := range []string{n.volume, shared} {
		n.must(os.Chown(dir, podUser, podUser))
	}
	socket := filepath.Join(shared, contract.AttachmentSocket)
	n.attacher = exec.Command(n.shim, "attach", "--socket", socket, "--path", n.volume)
	n.attacher.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: podUser, Gid: podUser}}
	n.must(n.attacher.Start())
	t.Cleanup(func() {
		n.must(n.attacher.Process.Signal(syscall.SIGTERM))
		if err := n.attacher.Wait(); err != nil {
			t.Errorf("vmlet-shim attach ended with %v", err)
		}
	})
	vmtest.Eventually(t, "the volume is handed out", func() bool { _, err := os.Stat(socket); return err == nil })
	// The pod has a shorter path of it, as a socket's address needs.
	there := filepath.Join(n.kubelet, "pods", attachUID, "volumes", "kubernetes.io~empty-dir", contract.VolumeAttachment)
	n.must(os.MkdirAll(there, 0o755))
	n.must(os.Rename(socket, filepath.Join(there, contract.AttachmentSocket)))
	return n
}

// Attached is that of the system, but for the cgroup, which no container has been put into.
func (n *attachingNode) Attached(ctx context.Context, pod *corev1.Pod) (*os.File, error) {
	return pods.Attached(ctx, new(filesocket.Taker), n.kubelet, pod, func(p pods.Peer) error {
		if p.PID != n.attacher.Process.Pid || p.UID != podUser {
			return errors.New("another process listens")
		}
		return nil
	})
}

// serve has an agent run the VMs of the node's pod.
func (n *attachingNode) serve(a *testAgent) {
	p := n.runner(a)
	p.pods = n
	a.Go(func() { p.serve(a.ctx, pods.Volume{UID: podUID, Dir: n.dir}) })
}

// words is the file of the container's last words.
func (n *attachingNode) words() string { return filepath.Join(n.root, "log") }

func (n *attachingNode) saidLast(t *testing.T, want string) {
	t.Helper()
	said, err := os.ReadFile(n.words())
	if err != nil {
		t.Fatal(err)
	}
	if e := contract.ReadEnding(string(said)); strings.TrimSpace(e.Reason+" "+e.Image+" "+e.Directory) != want {
		t.Errorf("the container's last words are %q, want %q", said, want)
	}
}

func (n *attachingNode) empty(t *testing.T) {
	t.Helper()
	if left, err := os.ReadDir(n.volume); len(left) > 0 || err != nil {
		t.Errorf("left in the volume: %v, %v", left, err)
	}
}

// TestRealSaveToAttachedVolume: a guest is saved to a volume that its own pod doesn't have. A
// save whose caller has gone leaves nothing there, and a guest that goes on.
func TestRealSaveToAttachedVolume(t *testing.T) {
	w := newWorld(t)
	n := newAttachingNode(t, w)
	a := w.start()
	n.serve(a)
	out, ended := n.run(n.specFile)
	counts := func() int { return strings.Count(out.String(), guest.CountPrefix) }
	vmtest.Eventually(t, "the guest counts", func() bool { return counts() > 0 })
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))

	into := place.SaveOptions{Directory: "restore-web-1", Attachment: attachUID}
	ctx, cancel := context.WithCancel(t.Context())
	steps := 0
	_, _, err := a.Saver.Save(ctx, podVM, into, func(shim.Progress) { steps++; cancel() })
	if !errors.Is(err, context.Canceled) || steps == 0 {
		t.Errorf("a save that was cancelled under way: %v, after %d steps", err, steps)
	}
	if !a.is(lifecycle.Running)() {
		t.Error("the guest doesn't run once its save was cancelled")
	}
	n.empty(t)
	before := counts()
	vmtest.Eventually(t, "the guest goes on", func() bool { return counts() > before })

	_, result, err := a.Saver.Save(t.Context(), podVM, into, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-ended
	vmtest.Eventually(t, "it is saved", a.is(lifecycle.Saved))
	image, err := memory.Open(filepath.Join(n.volume, into.Directory))
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	if image.Manifest().ID != result.ImageId || result.ImageBytes == 0 {
		t.Errorf("the image is %s, and the result %v", image.Manifest().ID, result)
	}
	if err := n.attacher.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the other pod has ended: %v", err)
	}
	n.saidLast(t, contract.GuestSaved+" "+result.ImageId+" "+into.Directory)

	// Any pod that mounts the volume lets the guest go on, one of them.
	restore := []string{"--restore", filepath.Join(n.volume, into.Directory), "--once"}
	out, ended = n.run(restore...)
	vmtest.Eventually(t, "the guest goes on from the image", func() bool { return counts() > 0 })
	if strings.Contains(out.String(), guest.UpLine) {
		t.Error("the guest was booted")
	}
	vmtest.Eventually(t, "it runs again", a.is(lifecycle.Running))
	vmtest.Eventually(t, "the image is removed", func() bool { left, err := os.ReadDir(n.volume); return len(left) == 0 && err == nil })

	// And one that doesn't, if it is attached to it: nothing of the volume is left open once the guest runs.
	if _, _, err = a.Saver.Save(t.Context(), podVM, into, nil); err != nil {
		t.Fatal(err)
	}
	<-ended
	vmtest.Eventually(t, "it is saved again", a.is(lifecycle.Saved))
	restore = []string{"--restore", filepath.Join(n.root, "nowhere", into.Directory), "--once", "--attached"}
	out, ended = n.run(restore...)
	vmtest.Eventually(t, "the guest goes on from the image that is attached", func() bool { return counts() > 0 })
	vmtest.Eventually(t, "it runs from there", a.is(lifecycle.Running))
	n.nothingOpen(t)
	if image, err := memory.Open(filepath.Join(n.volume, into.Directory)); err != nil {
		t.Error(err)
	} else if err := errors.Join(image.CheckUnused(), image.Close()); !errors.As(err, new(*memory.UsedError)) {
		t.Errorf("the image is not marked: %v", err)
	}
	_, err = a.Power.Kill(t.Context(), podVM)
	if err != nil {
		t.Fatal(err)
	}
	<-ended
	_, ended = n.run(restore...)
	<-ended
	n.saidLast(t, contract.RestoreImageUsed)
	if err := memory.Remove(filepath.Join(n.volume, into.Directory)); err != nil {
		t.Fatal(err)
	}
	_, ended = n.run(restore...)
	<-ended
	n.saidLast(t, contract.RestoreImageMissing)
}

// nothingOpen: no process of the VM's has anything of the volume open.
func (n *attachingNode) nothingOpen(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		own := strings.HasPrefix(f, fmt.Sprintf("/proc/%d/", os.Getpid()))
		if to, err := os.Readlink(f); err == nil && !own && strings.HasPrefix(to, n.volume) {
			t.Errorf("%s is open: %s", to, f)
		}
	}
}
