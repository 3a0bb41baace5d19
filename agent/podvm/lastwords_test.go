package podvm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/vm"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/shim"
	"google.golang.org/grpc/codes"
)

// TestLastWords: an image that the agent refuses has its reason.
func TestLastWords(t *testing.T) {
	refused := func(code shim.Code, message string) error {
		return fmt.Errorf("vm default/web: %w", &shim.Error{Code: code, Message: message})
	}
	for name, test := range map[string]struct {
		why  error
		want string
	}{
		"no image's fault":   {errors.New("no KVM"), "no KVM"},
		"unfit":              {fault.Errorf(codes.FailedPrecondition, "x: %w", &vm.UnfitError{Err: errors.New("QEMU 9")}), "ImageUnfit: x: QEMU 9"},
		"newer":              {&memory.FormatError{Path: "/i", What: "formatVersion 2", Err: memory.ErrNewerFormat}, "ImageUnfit: /i: formatVersion 2"},
		"none":               {fmt.Errorf("/i: %w", memory.ErrNotImage), "ImageMissing: /i: not a memory image"},
		"not finished":       {fmt.Errorf("/i: %w: %w", memory.ErrNotImage, memory.ErrUnfinished), "ImageMissing: /i: not a memory image: save unfinished"},
		"damaged":            {&memory.FormatError{Path: "/i", What: "no id"}, "ImageDamaged: /i: no id"},
		"its specification":  {fault.Errorf(codes.DataLoss, "/i: specification: x"), "ImageDamaged: /i: specification: x"},
		"damaged, by a shim": {refused(shim.CodeDamaged, "chunk 1"), "vm default/web: chunk 1"},
		"a disk, by a shim":  {refused(shim.CodeChangedDisk, "root"), "vm default/web: root"},
	} {
		if got := lastWords(test.why).Sentence(); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// saved boots the pod's VM, saves it, and returns the image's manifest.
func (n *fakeNode) saved(t *testing.T, a *testAgent) []byte {
	t.Helper()
	n.container()
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	dir := filepath.Join(t.TempDir(), "one")
	if _, _, err := a.Saver.Save(t.Context(), podVM, place.SaveOptions{Directory: dir}, nil); err != nil {
		t.Fatal(err)
	}
	vmtest.Eventually(t, "it is saved", a.is(lifecycle.Saved))
	manifest, err := os.ReadFile(filepath.Join(dir, memory.ManifestName))
	if err != nil {
		t.Fatal(err)
	}
	return manifest
}

// TestRestoreRefusedInPod: the pod's owner learns that the image does not fit, by the reason
// that the controller looks for.
func TestRestoreRefusedInPod(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*world)
		want    []string
	}{
		"another QEMU": {func(w *world) { w.VMM.CheckErr = errors.New("saved by QEMU 99") }, []string{contract.RestoreImageUnfit + ": ", "/saved/one", "QEMU 99"}},
		"no such VMM":  {func(w *world) { w.VMM.CheckErr = fault.Invalid("vmm", "none") }, []string{contract.RestoreImageUnfit + ": ", "vmm: none"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a, n := w.start(), newFakeNode(w)
			n.servePod(t, a)
			manifest := n.saved(t, a)
			test.prepare(w)
			proc := n.container(func(p *vmtest.Pod) {
				p.Described.Specification = nil
				p.Described.Restore = &shim.PodRestore{Directory: "/saved/one", Manifest: manifest, Once: true}
			})
			said := n.refusal(t, proc)
			wantText(t, said, test.want...)
			if got := proc.Pod.Ending.Reason; got != contract.RestoreImageUnfit {
				t.Errorf("the reason is %q, want %q", got, contract.RestoreImageUnfit)
			}
			if a.is(lifecycle.Running)() {
				t.Error("it runs")
			}
		})
	}
}
