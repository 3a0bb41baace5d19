package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	vmletv1 "github.com/vmlet/vmlet/proto/vmlet/v1"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/vmm/memory"
)

// copyImage copies an image to a folder of its own.
func copyImage(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "image")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// flip changes one bit of a file.
func flip(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	_, err = f.ReadAt(b, at)
	if err == nil {
		b[0] ^= 0x10
		_, err = f.WriteAt(b, at)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// editManifest changes a manifest. Sealed it has the right sum afterwards, as
// one that another program wrote (the sum is of all bytes before its member).
func editManifest(t *testing.T, dir string, sealed bool, edit func(map[string]any)) {
	t.Helper()
	path := filepath.Join(dir, memory.ManifestName)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(content))
	d.UseNumber() // identities of disks have more digits than a float
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		t.Fatal(err)
	}
	sum := m["manifestSum"]
	delete(m, "manifestSum")
	edit(m)
	body, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	body = bytes.TrimSuffix(body, []byte("\n}"))
	if sealed {
		sum = fmt.Sprintf("%08x", crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	}
	body = fmt.Appendf(body, ",\n  \"manifestSum\": \"%s\"\n}\n", sum)
	if err := os.WriteFile(path, body, 0o600); err != nil {
		t.Fatal(err)
	}
}

// set replaces a member of a manifest, one of an object in it by two names.
func set(value any, names ...string) func(map[string]any) {
	return func(m map[string]any) {
		for _, n := range names[:len(names)-1] {
			m = m[n].(map[string]any)
		}
		m[names[len(names)-1]] = value
	}
}

// TestImagesRefused damages images and claims that they are of another make:
// each is refused before anything has started.
func TestImagesRefused(t *testing.T) {
	n := newNode(t, nodeOptions{})
	spec := pvh(t, "original", "emulation", guest.PVHOptions{Memory: guest.Pattern{Address: 16 << 20, MiB: 8, Seed: 1}})
	v := n.boot(spec)
	v.count()
	image := filepath.Join(t.TempDir(), "image")
	v.save(image, false)
	state := int64(n.verify(image).StateSize)

	sealed := func(names []string, value any) func(*testing.T, string) {
		return func(t *testing.T, dir string) { editManifest(t, dir, true, set(value, names...)) }
	}
	for name, c := range map[string]struct {
		damage func(t *testing.T, dir string)
		code   codes.Code
		words  []string
	}{
		"memory truncated": {func(t *testing.T, dir string) {
			n.must(os.Truncate(filepath.Join(dir, "memory"), 32<<20))
		}, codes.DataLoss, []string{"memory"}},
		"memory missing": {func(t *testing.T, dir string) { n.must(os.Remove(filepath.Join(dir, "memory"))) }, codes.DataLoss, []string{"memory"}},
		"bit in memory":  {func(t *testing.T, dir string) { flip(t, filepath.Join(dir, "memory"), 17<<20) }, codes.DataLoss, []string{"memory", "damaged", "chunk"}},
		"bit in state":   {func(t *testing.T, dir string) { flip(t, filepath.Join(dir, "state"), state/2) }, codes.DataLoss, []string{"state", "damaged"}},
		"state missing":  {func(t *testing.T, dir string) { n.must(os.Remove(filepath.Join(dir, "state"))) }, codes.DataLoss, []string{"state"}},
		"manifest missing": {func(t *testing.T, dir string) { n.must(os.Remove(filepath.Join(dir, "manifest.json"))) },
			codes.FailedPrecondition, []string{"manifest.json"}},
		"manifest not sealed": {func(t *testing.T, dir string) { editManifest(t, dir, false, set("pc-q35-0.1", "machineType")) },
			codes.DataLoss, []string{"manifest.json", "manifestSum"}},
		"newer format":         {sealed([]string{"formatVersion"}, 99), codes.FailedPrecondition, []string{"manifest.json", "formatVersion", "99", "newer"}},
		"foreign VMM":          {sealed([]string{"vmm", "name"}, "cloud-hypervisor"), codes.FailedPrecondition, []string{"cloud-hypervisor"}},
		"newer VMM":            {sealed([]string{"vmm", "version"}, "99.1.0"), codes.FailedPrecondition, []string{"99.1.0"}},
		"unknown machine type": {sealed([]string{"machineType"}, "pc-q35-99.1"), codes.FailedPrecondition, []string{"machine type", "pc-q35-99.1"}},
		"no such accelerator":  {sealed([]string{"accelerator"}, "mshv"), codes.FailedPrecondition, []string{"mshv"}},
		"unknown CPU model":    {sealed([]string{"cpu", "model"}, "Zilog-Z80"), codes.FailedPrecondition, []string{"CPU model", "Zilog-Z80"}},
		"unknown CPU feature":  {sealed([]string{"cpu", "features"}, []string{"warp-drive"}), codes.FailedPrecondition, []string{"warp-drive"}},
		"another memory size":  {sealed([]string{"memorySize"}, 128<<20), codes.DataLoss, []string{"memory"}},
		"no specification":     {sealed([]string{"specification"}, "none"), codes.DataLoss, []string{"manifest.json", "specification"}},
		"hostile name":         {sealed([]string{"specification", "name"}, "../../etc"), codes.InvalidArgument, []string{"name"}},
		"path as id":           {sealed([]string{"planExtras", "id"}, "../../etc"), codes.DataLoss, []string{"planExtras.id"}},
	} {
		t.Run(name, func(t *testing.T) {
			n.in(t)
			dir := copyImage(t, image)
			c.damage(t, dir)
			from := v.now()
			request := &vmletv1.RestoreVMRequest{Directory: dir}
			if name != "hostile name" {
				request.Name, request.NewIdentity = "copy", true
			}
			refused(t, n.restore(request), c.code, c.words...)
			_, err := n.api.GetVM(n.ctx, &vmletv1.GetVMRequest{Name: "copy"})
			if status.Code(err) != codes.NotFound {
				t.Errorf("looking for the VM that was not restored: %v", err)
			}
			for _, e := range v.events.all()[from:] {
				if e.GetState() == running {
					t.Errorf("it ran: %v", e)
				}
			}
		})
	}
	v.is(saved)
	v.must(v.start(false)) // the original is well
	v.countsOn()
}

// TestDamageUnderALazilyRestoredVM is found in the background and pauses it.
func TestDamageUnderALazilyRestoredVM(t *testing.T) {
	n := newNode(t, nodeOptions{})
	if !n.lazy() {
		t.Skip("no QEMU here can restore lazily")
	}
	v := n.boot(pvh(t, "lazy", "emulation", guest.PVHOptions{Memory: guest.Pattern{Address: 16 << 20, MiB: 8, Seed: 1}}))
	v.count()
	image := filepath.Join(t.TempDir(), "image")
	v.save(image, false)
	flip(t, filepath.Join(image, "memory"), 17<<20)
	from := v.now()
	v.must(n.restore(&vmletv1.RestoreVMRequest{Directory: image, Lazy: true}))
	n.event(from, "the image is damaged", func(e *vmletv1.Event) bool { return e.GetVm() == "lazy" && e.GetType() == "image-damaged" })
	if m := v.becomes(from, paused).GetMessage(); !bytes.Contains([]byte(m), []byte("memory: damaged")) {
		t.Errorf("the message is %q, want it to name the file", m)
	}
}
