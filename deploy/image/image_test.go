package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vmlet/vmlet/internal/ociimage"
	"github.com/vmlet/vmlet/test/guest"
)

// tree makes a made-up root filesystem: a path to content, or after -> to a link.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if target, link := strings.CutPrefix(content, "-> "); link && err == nil {
			err = os.Symlink(target, path)
		} else if err == nil {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestLinksAreFollowedWithinTheRoot(t *testing.T) {
	root := tree(t, map[string]string{
		"usr/lib/x.so.1.2": "library", "usr/lib/x.so.1": "-> x.so.1.2", "lib": "-> usr/lib",
		"etc/release": "-> /usr/lib/x.so.1", "up": "-> ../../../../usr/lib/x.so.1.2",
		"loop": "-> loop", "gone": "-> /etc/passwd",
	})
	p := newPicker(root, "none")
	for _, name := range []string{"lib/x.so.1", "etc/release", "up"} {
		if err := p.add(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"lib", "usr/lib/x.so.1", "usr/lib/x.so.1.2", "etc/release", "up", "etc"} {
		if _, there := p.entries[name]; !there {
			t.Errorf("%s was not picked: %v", name, p.files())
		}
	}
	if len(p.entries) != 8 { // and usr, usr/lib
		t.Errorf("picked %v", p.files())
	}
	if err := p.add("loop"); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("a link to itself: %v", err)
	}
	if err := p.add("gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a link to a file of the machine's: %v", err)
	}
}

func TestContents(t *testing.T) {
	root := tree(t, map[string]string{"a/one.rom": "1", "a/two.rom": "2", "a/three.txt": "3", "b": "-> a", "d/e/one": "1", "d/two": "2", "d/three": "-> e/one"})
	for line, want := range map[string]string{
		"a/*.rom": "a/one.rom a/two.rom", "b/one.rom": "a/one.rom b", "? a/none": "", "a/none | b/two.rom | a/one.rom": "a/two.rom b", "? c/none": "", "# text": "", "": "",
		"d": "d/e/one d/two d/three", "[d-e]": "d/e/one d/two d/three",
	} {
		p := newPicker(root, "none")
		if err := p.line(line); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		for name := range strings.FieldsSeq(want) {
			if !p.files()[name] {
				t.Errorf("%q picks %v: want %s", line, p.files(), want)
			}
		}
		if want == "" && len(p.entries) > 0 {
			t.Errorf("%q picks %v", line, p.files())
		}
	}
	for _, line := range []string{"a/none", "c/*", "a/[", "a/none | c/none"} {
		if err := newPicker(root, "none").line(line); err == nil {
			t.Errorf("%q was taken", line)
		}
	}
}

// debian is where deploy/image/packages has unpacked Debian's.
func debian(t *testing.T) string {
	t.Helper()
	folder, err := guest.Cached("image-packages")
	if err != nil {
		t.Skip(err)
	}
	return folder
}

func makeImage(t *testing.T, o options) (file string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"vmlet", "vmlet-agent", "vmlet-shim", "vmlet-importer"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file = filepath.Join(dir, "image.tar")
	o.programs, o.reference, o.version, o.arch, o.out = dir, "vmlet.invalid/vmlet:test", "test", "amd64", file
	if _, err := run(o); err != nil {
		t.Fatal(err)
	}
	return file
}

// distributed are the entries of the layer with QEMU.
func distributed(t *testing.T) []ociimage.Entry {
	t.Helper()
	packages := debian(t)
	a, err := architectureOf("amd64")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := distribution(filepath.Join(packages, "root"), filepath.Join(packages, "packages"), a)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// QEMU starts with nothing but what is in the image, and finds its modules.
func TestQEMUOfTheImageStarts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("chroot is for root")
	}
	root := t.TempDir()
	for _, e := range distributed(t) {
		if err := write(filepath.Join(root, e.Path), e); err != nil {
			t.Fatal(err)
		}
	}
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/Argentina/Ushuaia"} {
		if content, err := os.ReadFile(filepath.Join(root, "usr/share/zoneinfo", zone)); err != nil || !strings.HasPrefix(string(content), "TZif") {
			t.Errorf("time zone %s is not in the image: %.20q, %v", zone, content, err)
		}
	}
	cmd := exec.Command("/usr/bin/qemu-system-x86_64", "-machine", "none", "-device", "help")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, device := range []string{"virtio-blk-pci", "virtio-vga", "usb-host"} {
		if !strings.Contains(string(out), `"`+device+`"`) {
			t.Errorf("QEMU has no %s", device)
		}
	}
	if strings.Contains(string(out), "Failed to") {
		t.Errorf("QEMU complains:\n%s", out)
	}
	cmd = exec.Command("/usr/bin/qemu-img", "create", "-f", "qcow2", "/tmp/disk", "1M")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("qemu-img: %v\n%s", err, out)
	}
	authorities, err := filepath.Glob(filepath.Join(root, "usr/share/ca-certificates/mozilla/*.crt"))
	if err != nil || len(authorities) < 50 {
		t.Errorf("there are %d certificates of public authorities, %v", len(authorities), err)
	}
}

// write makes what an entry says.
func write(path string, e ociimage.Entry) error {
	if e.Mode.IsDir() {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if e.Target != "" {
		return os.Symlink(e.Target, path)
	}
	return os.WriteFile(path, e.Content, e.Mode.Perm())
}

func TestMissingLibraryIsNamed(t *testing.T) {
	p := newPicker(filepath.Join(debian(t), "root"), "x86_64-linux-gnu")
	if err := p.add("usr/bin/qemu-system-x86_64"); err != nil {
		t.Fatal(err)
	}
	p.search = nil
	if err := p.libraries(); err == nil || !strings.Contains(err.Error(), "usr/bin/qemu-system-x86_64: needs lib") {
		t.Errorf("without libraries: %v", err)
	}
}

// The image has what its packages' licences ask for, and what scanners look for;
// and nothing to run but what is meant to be.
func TestImageHasLicencesAndNoShell(t *testing.T) {
	have := make(map[string]ociimage.Entry)
	for _, e := range distributed(t) {
		have[e.Path] = e
	}
	for _, name := range []string{"qemu-system-x86", "libc6", "seabios", "ovmf", "libzstd1"} {
		doc := "usr/share/doc/" + name
		if link := have[doc]; link.Target != "" {
			doc = "usr/share/doc/" + link.Target
		}
		if len(have[doc+"/copyright"].Content) == 0 {
			t.Errorf("there is no licence of %s", name)
		}
		if !strings.Contains(string(have["var/lib/dpkg/status.d/"+name].Content), "\nVersion: ") {
			t.Errorf("there is no version of %s", name)
		}
	}
	for name, e := range have {
		if strings.Contains(name, "bin/") && !e.Mode.IsDir() && name != "usr/bin/qemu-system-x86_64" && name != "usr/bin/qemu-img" {
			t.Errorf("%s is in the image", name)
		}
		if e.Mode&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			t.Errorf("%s is run as another user", name)
		}
	}
}

func TestOtherArchitecturesAreRefused(t *testing.T) {
	if _, err := run(options{arch: "arm64"}); err == nil || !strings.Contains(err.Error(), "arm64") {
		t.Errorf("arm64: %v", err)
	}
}
