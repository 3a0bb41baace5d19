package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vmlet/vmlet/memory"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/guest"
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

// imagesRefused damages images and claims that they are of another make: each is
// refused before anything has started.
func (s *suite) imagesRefused() {
	v := s.boots("original", guest.PVHOptions{Memory: s.pattern(8)})
	image := s.image()
	v.save(image, false)
	damages := damages(int64(s.verify(image).StateSize))
	maps.Copy(damages, s.foreign)
	for name, d := range damages {
		s.t.Run(name, func(t *testing.T) {
			s.in(t)
			s.refuses(image, d)
		})
	}
	v.is(saved)
	v.must(v.start(false)) // the original is well
	v.countsOn()
}

// damage is done to an image, which is then refused with a code and all words.
type damage struct {
	do    func(t *testing.T, dir string)
	code  codes.Code
	words []string
	// itself: the name is in the image, else the VM is to have another.
	itself bool
}

// refuses sees that a damaged copy of an image is refused.
func (s *suite) refuses(image string, d damage) {
	s.t.Helper()
	dir := copyImage(s.t, image)
	d.do(s.t, dir)
	from := len(s.events.all())
	request := &nodev1.RestoreVMRequest{Directory: dir}
	if !d.itself {
		request.Name, request.NewIdentity = "copy", true
	}
	refused(s.t, s.restore(request), d.code, d.words...)
	_, err := s.api.GetVM(s.ctx, &nodev1.GetVMRequest{Name: "copy"})
	if status.Code(err) != codes.NotFound {
		s.t.Errorf("looking for the VM that was not restored: %v", err)
	}
	for _, e := range s.events.all()[from:] {
		if e.GetState() == running {
			s.t.Errorf("it ran: %v", e)
		}
	}
}

// damages are those that no VMM takes.
func damages(state int64) map[string]damage {
	file := func(name string, do func(t *testing.T, path string)) func(*testing.T, string) {
		return func(t *testing.T, dir string) { do(t, filepath.Join(dir, name)) }
	}
	bit := func(at int64) func(*testing.T, string) {
		return func(t *testing.T, path string) { flip(t, path, at) }
	}
	return map[string]damage{
		"memory truncated":    {do: file("memory", truncate(32<<20)), code: codes.DataLoss, words: []string{"memory"}},
		"memory missing":      {do: file("memory", remove), code: codes.DataLoss, words: []string{"memory"}},
		"bit in memory":       {do: file("memory", bit(17<<20)), code: codes.DataLoss, words: []string{"memory", "damaged", "chunk"}},
		"bit in state":        {do: file("state", bit(state/2)), code: codes.DataLoss, words: []string{"state", "damaged"}},
		"state missing":       {do: file("state", remove), code: codes.DataLoss, words: []string{"state"}},
		"manifest missing":    {do: file("manifest.json", remove), code: codes.FailedPrecondition, words: []string{"manifest.json"}},
		"manifest not sealed": {do: func(t *testing.T, dir string) { editManifest(t, dir, false, set("pc-q35-0.1", "machineType")) }, code: codes.DataLoss, words: []string{"manifest.json", "manifestSum"}},
		"newer format":        {do: claim(99, "formatVersion"), code: codes.FailedPrecondition, words: []string{"manifest.json", "formatVersion", "99", "newer"}},
		"unknown VMM":         {do: claim("bochs", "vmm", "name"), code: codes.InvalidArgument, words: []string{"bochs"}},
		"newer VMM":           {do: claim("99.1.0", "vmm", "version"), code: codes.FailedPrecondition, words: []string{"99.1.0"}},
		"no such accelerator": {do: claim("mshv", "accelerator"), code: codes.FailedPrecondition, words: []string{"mshv"}},
		"another memory size": {do: claim(128<<20, "memorySize"), code: codes.DataLoss, words: []string{"memory"}},
		"no specification":    {do: claim("none", "specification"), code: codes.DataLoss, words: []string{"manifest.json", "specification"}},
		"hostile name":        {do: claim("../../etc", "specification", "name"), code: codes.InvalidArgument, words: []string{"name"}, itself: true},
		"path as id":          {do: claim("../../etc", "planExtras", "id"), code: codes.DataLoss, words: []string{"planExtras.id"}},
	}
}

// claim has an image say something else, as if it had been made so.
func claim(value any, names ...string) func(*testing.T, string) {
	return func(t *testing.T, dir string) { editManifest(t, dir, true, set(value, names...)) }
}

// damagedLater damages the image of a lazily restored VM: that is found in the
// background and pauses it.
func (s *suite) damagedLater() {
	if !s.lazy() {
		s.t.Skip("it can't restore lazily")
	}
	v := s.boots("lazy", guest.PVHOptions{Memory: s.pattern(8)})
	image := s.image()
	v.save(image, false)
	flip(s.t, filepath.Join(image, "memory"), 17<<20)
	from := v.now()
	v.must(s.restore(&nodev1.RestoreVMRequest{Directory: image, Lazy: true}))
	s.event(from, "the image is damaged", func(e *nodev1.Event) bool { return e.GetVm() == "lazy" && e.GetType() == "image-damaged" })
	says(s.t, v.becomes(from, paused), "memory: damaged")
}

func truncate(size int64) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
	}
}

func remove(t *testing.T, path string) {
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}
