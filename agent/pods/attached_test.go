package pods

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/filesocket"
	"k8s.io/apimachinery/pkg/types"
)

// attaching has a pod of a kubelet's hand a folder out, from this process.
func attaching(t *testing.T, folder string) (kubeletDir string) {
	t.Helper()
	kubeletDir = t.TempDir()
	volume := filepath.Join(kubeletDir, "pods", testUID, "volumes", "kubernetes.io~empty-dir", contract.VolumeAttachment)
	if err := os.MkdirAll(volume, 0o755); err != nil {
		t.Fatal(err)
	}
	// The pod has a shorter path of it, as a socket's address needs.
	path := filepath.Join(t.TempDir(), "s")
	l, err := filesocket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, filepath.Join(volume, contract.AttachmentSocket)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- filesocket.ServeToRoot(ctx, l, func() (*os.File, error) { return filesocket.OpenFolder(folder) })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return kubeletDir
}

func TestAttached(t *testing.T) {
	folder := t.TempDir()
	kubeletDir := attaching(t, folder)
	f, err := Attached(t.Context(), new(filesocket.Taker), kubeletDir, podOf(testUID), func(p Peer) error {
		if p.PID != os.Getpid() || int(p.UID) != os.Getuid() {
			t.Errorf("process %+v hands it out, not this one", p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, _ := f.Stat()
	if want, err := os.Stat(folder); err != nil || !os.SameFile(got, want) {
		t.Errorf("another folder, %v", err)
	}
}

// TestAttachedBelongsToAnother: nothing is taken of a process that is not the pod's.
func TestAttachedBelongsToAnother(t *testing.T) {
	kubeletDir := attaching(t, t.TempDir())
	why := errors.New("another's")
	if f, err := Attached(t.Context(), new(filesocket.Taker), kubeletDir, podOf(testUID), func(Peer) error { return why }); !errors.Is(err, why) {
		f.Close()
		t.Errorf("error %v, want %v", err, why)
	}
	never := func(Peer) error { t.Error("somebody listens"); return nil }
	for uid, want := range map[types.UID]string{
		"../" + testUID:                    "no pod's UID",
		"":                                 "no pod's UID",
		"a/b":                              "no pod's UID",
		types.UID(strings.Repeat("a", 64)): "no pod's UID",
		otherID:                            "no such file",
	} {
		if _, err := Attached(t.Context(), new(filesocket.Taker), kubeletDir, podOf(uid), never); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", uid, err, want)
		}
	}
}

// TestPodIsWaitedFor: the caller may know of a pod before this node's agent does.
func TestPodIsWaitedFor(t *testing.T) {
	p := New()
	found := make(chan error)
	go func() {
		pod, err := p.Pod(t.Context(), testUID)
		if err == nil && pod.Labels[contract.LabelAttachedTo] != otherID {
			err = errors.New("its label is not known")
		}
		found <- err
	}()
	pod := podOf(testUID)
	pod.Labels = map[string]string{contract.LabelAttachedTo: otherID, "large": strings.Repeat("x", 63)}
	kept, err := slim(pod)
	if err != nil {
		t.Fatal(err)
	}
	p.put(kept)
	if err := <-found; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := p.Pod(ctx, otherID); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("error %v", err)
	}
}
