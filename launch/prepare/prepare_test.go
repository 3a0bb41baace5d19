package prepare

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/internal/filesocket"
	"github.com/vmlet/vmlet/launch"
)

// pod has the folders of one.
type pod struct {
	*testing.T
	Preparer
	volume string
}

func newPod(t *testing.T) *pod {
	t.Helper()
	p := &pod{T: t, Preparer: Preparer{Made: t.TempDir(), Sockets: t.TempDir()}, volume: t.TempDir()}
	return p
}

func (p *pod) check(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *pod) write(path string, content []byte) string {
	p.Helper()
	p.check(os.MkdirAll(filepath.Dir(path), 0o700))
	p.check(os.WriteFile(path, content, 0o600))
	return path
}

func (p *pod) qemuImg(args ...string) {
	p.Helper()
	program, err := exec.LookPath("qemu-img")
	if err != nil {
		p.Skip(err)
	}
	if said, err := exec.CommandContext(p.Context(), program, args...).CombinedOutput(); err != nil {
		p.Fatalf("qemu-img %q: %v\n%s", args, err, said)
	}
}

// handOut serves a file's descriptor, or a fault, at a socket of that name.
func (p *pod) handOut(name string, open func() (*os.File, error)) string {
	p.Helper()
	path := filepath.Join(p.Sockets, name)
	l, err := filesocket.Listen(path)
	p.check(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- filesocket.Serve(ctx, l, open) }()
	p.Cleanup(func() { cancel(); p.check(<-ended) })
	return path
}

// run prepares one disk named d and returns it as the specification has it then.
func (p *pod) run(d launch.Disk) (map[string]any, error) {
	p.Helper()
	return p.runIn(d, `{"disks":[{"name":"d"}]}`)
}

func (p *pod) runIn(d launch.Disk, specification string) (map[string]any, error) {
	p.Helper()
	d.Name = "d"
	out, err := p.Preparer.Run(p.Context(), launch.Preparation{Disks: []launch.Disk{d}}, []byte(specification))
	if err != nil {
		return nil, err
	}
	var s struct{ Disks []map[string]any }
	p.check(json.Unmarshal(out, &s))
	return s.Disks[len(s.Disks)-1], nil
}

func (p *pod) wantFault(err error, want string) {
	p.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		p.Errorf("error %v\nwant  %s", err, want)
	}
}

// TestSpecification: what is not understood is carried as it is.
func TestSpecification(t *testing.T) {
	p := newPod(t)
	const before = `{"name":"","memory":{"size":"18446744073709551615"},"new":{"a":[1e400,null]},
		"disks":[{"name":"other","path":"/x","format":"raw"},{"name":"d","bus":"scsi","serial":"0042","bootOrder":1,"path":"PATH"}]}`
	path := filepath.Join(p.Made, "elsewhere.iso")
	out, err := p.Preparer.Run(t.Context(), launch.Preparation{Disks: []launch.Disk{{Name: "d", Files: &launch.Files{Folder: p.volume, Label: "l"}}}},
		[]byte(strings.Replace(before, "PATH", path, 1)))
	p.check(err)
	var got, want any
	after := strings.Replace(before, `"path":"PATH"`, `"path":"`+path+`","format":"raw","readOnly":true`, 1)
	for into, text := range map[*any]string{&got: string(out), &want: after} {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		p.check(d.Decode(into))
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s", out)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

func TestNothingToPrepare(t *testing.T) {
	out, err := newPod(t).Preparer.Run(t.Context(), launch.Preparation{}, []byte(`{"boot":{}}`))
	if err != nil || string(out) != `{"boot":{}}` {
		t.Errorf("%s, %v", out, err)
	}
}

func TestRefused(t *testing.T) {
	p := newPod(t)
	raw := &launch.Raw{Size: 1 << 20}
	for name, test := range map[string]struct {
		disks         []launch.Disk
		specification string
		want          string
	}{
		"no JSON":      {nil, "boot: {}", "is not JSON"},
		"no disks":     {nil, `{"disks":5}`, "specification's disks"},
		"unknown":      {[]launch.Disk{{Name: "x", Raw: raw}}, `{"disks":[{"name":"d"}]}`, "volume x: the preparation names it"},
		"twice":        {[]launch.Disk{{Name: "d", Raw: raw}, {Name: "d", Raw: raw}}, `{"disks":[{"name":"d"}]}`, "volume d is listed twice"},
		"no name":      {[]launch.Disk{{Name: "../d", Raw: raw}}, `{"disks":[{"name":"../d"}]}`, "no name of a volume"},
		"odd path":     {[]launch.Disk{{Name: "d", Raw: raw}}, `{"disks":[{"name":"d","path":5}]}`, "volume d: its path"},
		"of nothing":   {[]launch.Disk{{Name: "d"}}, `{"disks":[{"name":"d"}]}`, "volume d: the preparation says nothing"},
		"far too many": {make([]launch.Disk, maxDisks+1), `{}`, "at most 256"},
	} {
		_, err := p.Preparer.Run(t.Context(), launch.Preparation{Disks: test.disks}, []byte(test.specification))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", name, err, test.want)
		}
	}
}

// TestAllFaults: whoever mends one is not to find the next only then.
func TestAllFaults(t *testing.T) {
	p := newPod(t)
	_, err := p.Preparer.Run(t.Context(), launch.Preparation{Disks: []launch.Disk{
		{Name: "a", Raw: &launch.Raw{}}, {Name: "b", Files: &launch.Files{Folder: p.volume, Label: "l"}}, {Name: "c", Overlay: &launch.Overlay{Base: "/nonesuch"}},
	}}, []byte(`{"disks":[{"name":"a"},{"name":"b"},{"name":"c"}]}`))
	p.wantFault(err, "volume a: it has no ")
	p.wantFault(err, "\nvolume c: it has no nonesuch")
}

func TestOverlay(t *testing.T) {
	for _, format := range []string{"raw", "qcow2"} {
		t.Run(format, func(t *testing.T) {
			p := newPod(t)
			base := filepath.Join(p.volume, "disk.img")
			p.qemuImg("create", "-q", "-f", format, base, "3M")
			socket := p.handOut("d.sock", func() (*os.File, error) { return os.Open(base) })
			for at, size := range map[string]int64{base: 0, socket: 5 << 20} {
				made, err := p.run(launch.Disk{Overlay: &launch.Overlay{Base: at, Size: size}})
				p.check(err)
				path := filepath.Join(p.Made, "d.qcow2")
				want := map[string]any{"name": "d", "path": path, "format": "qcow2", "backingFiles": []any{map[string]any{"path": at, "format": format}}}
				if !reflect.DeepEqual(made, want) {
					t.Errorf("%v\nwant %v", made, want)
				}
				f, err := os.Open(path)
				p.check(err)
				defer f.Close()
				info, err := disk.Probe(f)
				p.check(err)
				if want := max(3<<20, size); info.VirtualSize != want || info.Header.BackingFile != at {
					t.Errorf("a disk of %d bytes, want %d: %+v", info.VirtualSize, want, info.Header)
				}
				p.check(os.Remove(path))
			}
		})
	}
}

// TestOverlayStays: a container that is started again goes on with what the guest wrote.
func TestOverlayStays(t *testing.T) {
	p := newPod(t)
	base, other := p.write(filepath.Join(p.volume, "a"), make([]byte, 4096)), p.write(filepath.Join(p.volume, "b"), make([]byte, 4096))
	overlay := func(base string) error {
		_, err := p.run(launch.Disk{Overlay: &launch.Overlay{Base: base}})
		return err
	}
	p.check(overlay(base))
	path := filepath.Join(p.Made, "d.qcow2")
	before, err := os.Stat(path)
	p.check(err)
	p.check(overlay(base))
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("it was made anew, %v", err)
	}
	p.wantFault(overlay(other), "was named as its backing file")
	names, err := filepath.Glob(filepath.Join(p.Made, ".*"))
	if len(names) > 0 || err != nil {
		t.Errorf("left behind: %v, %v", names, err)
	}
}

func TestOverlayFaults(t *testing.T) {
	p := newPod(t)
	in := func(name string) string { return filepath.Join(p.volume, name) }
	p.qemuImg("create", "-q", "-f", "raw", in("raw"), "1M")
	p.qemuImg("create", "-q", "-f", "qcow2", "-b", in("raw"), "-F", "raw", in("backed"))
	p.qemuImg("create", "-q", "-f", "qcow2", "-o", "data_file="+in("data"), in("external"), "1M")
	p.qemuImg("create", "-q", "-f", "qcow2", in("encrypted"), "1M")
	f, err := os.OpenFile(in("encrypted"), os.O_WRONLY, 0)
	p.check(err)
	_, err = f.WriteAt([]byte{0, 0, 0, 2}, 32) // crypt_method of its header
	p.check(errors.Join(err, f.Close()))
	p.qemuImg("create", "-q", "-f", "vmdk", in("vmdk"), "1M")
	p.write(in("empty"), nil)
	p.write(in("damaged"), []byte("QFI\xfb\x00\x00\x00\x03"))
	p.check(os.Symlink("raw", in("link")))
	for name, test := range map[string]struct {
		size int64
		want string
	}{
		"backed":    {0, "lies over another file"},
		"external":  {0, "whose data is in another file"},
		"encrypted": {0, "encrypted (luks)"},
		"vmdk":      {0, "in format vmdk: convert it"},
		"empty":     {0, "has an empty disk"},
		"damaged":   {0, "qcow2 header"},
		"raw":       {4096, "can't be shrunk to the 4096"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pod{T: t, Preparer: p.Preparer, volume: p.volume}
			_, err := p.run(launch.Disk{Overlay: &launch.Overlay{Base: in(name), Size: test.size}})
			p.wantFault(err, "volume d: "+in(name)+" has")
			p.wantFault(err, test.want)
			socket := p.handOut(name, func() (*os.File, error) { return os.Open(in(name)) })
			_, err = p.run(launch.Disk{Overlay: &launch.Overlay{Base: socket, Image: "quay.io/x", Size: test.size}})
			p.wantFault(err, "image quay.io/x has")
			p.wantFault(err, test.want)
			if strings.Contains(err.Error(), "volume d") {
				t.Errorf("%v names a volume, too", err)
			}
		})
	}
	_, err = p.run(launch.Disk{Overlay: &launch.Overlay{Base: in("link")}})
	p.wantFault(err, "is a symbolic link")
	said := p.handOut("said", func() (*os.File, error) {
		return nil, errors.New("has no single disk file under /disk; found: etc, usr")
	})
	_, err = p.run(launch.Disk{Overlay: &launch.Overlay{Base: said, Image: "quay.io/x"}})
	if want := "image quay.io/x has no single disk file under /disk; found: etc, usr"; err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	if left, err := os.ReadDir(p.Made); len(left) > 0 || err != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestNotHandedOut: the end of the wait says whose container it was.
func TestNotHandedOut(t *testing.T) {
	p := newPod(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	_, err := p.openBase(ctx, launch.Overlay{Base: filepath.Join(p.Sockets, "x.sock"), Image: "quay.io/x"})
	p.wantFault(err, "image quay.io/x can't be used: enough")
}

// TestForeignImages: a container image's file that is no disk is refused, but not to a VM that has an overlay
// over it already; a claim's disk may be what a guest has made of it.
func TestForeignImages(t *testing.T) {
	p := newPod(t)
	text := filepath.Join(p.volume, "pointer")
	p.write(text, []byte("version https://git-lfs.github.com/spec/v1\n"+strings.Repeat("x", 1<<20)))
	socket := p.handOut("pointer", func() (*os.File, error) { return os.Open(text) })
	ofImage := launch.Disk{Overlay: &launch.Overlay{Base: socket, Image: "quay.io/x"}}
	_, err := p.run(ofImage)
	p.wantFault(err, "image quay.io/x has a disk that can't be used: it is a git-lfs pointer, not a disk: fetch the file")
	made, err := p.run(launch.Disk{Overlay: &launch.Overlay{Base: text}})
	p.check(err)
	p.check(os.Remove(made["path"].(string)))

	made, err = p.run(launch.Disk{Overlay: &launch.Overlay{Base: socket}})
	p.check(err)
	again, err := p.run(ofImage)
	p.check(err)
	if again["path"] != made["path"] {
		t.Errorf("the overlay is %v, and was %v", again["path"], made["path"])
	}
}
