package prepare

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/launch"
)

func TestRawSize(t *testing.T) {
	const gi, mi, ki = 1 << 30, 1 << 20, 1 << 10
	claim := launch.Raw{Size: 10 * gi, Reserve: 128 * ki, Tolerance: 10}
	for name, test := range map[string]struct {
		raw       launch.Raw
		now, room int64
		want      int64 // 0: refused
	}{
		"more room than asked for":   {claim, 0, 500 * gi, 10*gi - mi},
		"filesystem keeps a part":    {claim, 0, 9800 * mi, 9799 * mi},
		"just enough":                {claim, 0, 9216*mi + 128*ki, 9216 * mi},
		"too little":                 {claim, 0, 9214 * mi, 0},
		"no room":                    {claim, 0, 0, 0},
		"no tolerance":               {launch.Raw{Size: 10 * gi}, 0, 10*gi - 2*mi, 0},
		"no tolerance, no reserve":   {launch.Raw{Size: 10 * gi}, 0, 10 * gi, 10 * gi},
		"not whole MiB":              {launch.Raw{Size: 5*mi + 7}, 0, gi, 5 * mi},
		"small":                      {launch.Raw{Size: 1000}, 0, gi, 512},
		"smaller than a sector":      {launch.Raw{Size: 100}, 0, gi, 0},
		"grown":                      {claim, 5 * gi, 500 * gi, 9676 * mi},
		"grown as far as there is":   {claim, 5 * gi, 6 * gi, 5805 * mi},
		"imported with its overhead": {launch.Raw{Size: 10 * gi}, 9676 * mi, 10 * gi, 9676 * mi},
		"never shrunk":               {claim, 12 * gi, 500 * gi, 12 * gi},
		"never shrunk for want":      {claim, 5 * gi, gi, 5 * gi},
		"odd size gets whole blocks": {launch.Raw{Size: 5 * mi}, 5*mi + 512, gi, 5*mi + 4096},
		"negative":                   {launch.Raw{Size: -1}, 0, gi, 0},
		"all may be missing":         {launch.Raw{Size: gi, Tolerance: 101}, 0, gi, 0},
	} {
		got, err := rawSize(test.raw, test.now, test.room)
		if (err == nil) != (test.want > 0) || err == nil && got != test.want {
			t.Errorf("%s: %d bytes, want %d; %v", name, got, test.want, err)
		}
	}
}

func TestRaw(t *testing.T) {
	p := newPod(t)
	path := filepath.Join(p.volume, "disk.img")
	specification := `{"disks":[{"name":"d","path":"` + path + `"}]}`
	size := func(r launch.Raw) int64 {
		t.Helper()
		made, err := p.runIn(launch.Disk{Raw: &r}, specification)
		p.check(err)
		if made["format"] != "raw" || made["path"] != path || made["readOnly"] != nil {
			t.Errorf("%v", made)
		}
		var st unix.Stat_t
		p.check(unix.Stat(path, &st))
		if st.Blocks > 8 {
			t.Errorf("%d blocks are taken", st.Blocks)
		}
		return st.Size
	}
	for _, step := range []struct {
		size, want int64
	}{{8 << 20, 8 << 20}, {4 << 20, 8 << 20}, {16 << 20, 15 << 20}, {0, 15 << 20}} {
		if got := size(launch.Raw{Size: step.size}); got != step.want {
			t.Errorf("size %d: %d bytes, want %d", step.size, got, step.want)
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	p.check(err)
	_, err = f.WriteString("written by the guest")
	p.check(err)
	p.check(f.Close())
	size(launch.Raw{Size: 32 << 20})
	content, err := os.ReadFile(path)
	if err != nil || string(content[:7]) != "written" {
		t.Errorf("the guest's data is gone: %q, %v", content[:7], err)
	}
}

// TestRawInPod: an empty disk has its size though the node has less room.
func TestRawInPod(t *testing.T) {
	p := newPod(t)
	made, err := p.run(launch.Disk{Raw: &launch.Raw{Size: 1 << 42}})
	p.check(err)
	st, err := os.Stat(filepath.Join(p.Made, "d.img"))
	p.check(err)
	if st.Size() != 1<<42 || made["path"] != filepath.Join(p.Made, "d.img") {
		t.Errorf("%d bytes, %v", st.Size(), made)
	}
}

func TestRawFaults(t *testing.T) {
	p := newPod(t)
	p.qemuImg("create", "-q", "-f", "qcow2", filepath.Join(p.volume, "qcow2"), "1M")
	other := p.write(filepath.Join(t.TempDir(), "other"), nil) // of this test: it may be run as root
	p.check(os.Symlink(other, filepath.Join(p.volume, "link")))
	p.check(unix.Mkfifo(filepath.Join(p.volume, "fifo"), 0o600))
	for name, test := range map[string]struct {
		raw  launch.Raw
		want string
	}{
		"qcow2":      {launch.Raw{Size: 1 << 20}, "has a qcow2 image inside, and must be raw: convert it"},
		"link":       {launch.Raw{Size: 1 << 20}, "is a symbolic link"},
		"fifo":       {launch.Raw{Size: 1 << 20}, "a pipe"},
		"missing":    {launch.Raw{}, "must have a raw image of that name"},
		"large":      {launch.Raw{Size: 1 << 55, Tolerance: 10}, "room for a disk of"},
		"no/folder":  {launch.Raw{Size: 1 << 20}, "no such file or directory"},
		"/proc/made": {launch.Raw{Size: 1 << 20}, "/proc/made"},
	} {
		path := name
		if name[0] != '/' {
			path = filepath.Join(p.volume, name)
		}
		_, err := p.runIn(launch.Disk{Raw: &test.raw}, `{"disks":[{"name":"d","path":"`+path+`"}]}`)
		p.wantFault(err, "volume d: ")
		p.wantFault(err, test.want)
	}
	if _, err := os.Stat(filepath.Join(p.volume, "large")); !os.IsNotExist(err) {
		t.Errorf("an empty image is left: %v", err)
	}
}

// TestRawOfAnother: an image of another user is opened, though the kernel lets nobody but him
// open it with O_CREAT in a folder that all may write to.
func TestRawOfAnother(t *testing.T) {
	const protected = "/proc/sys/fs/protected_regular"
	if on, err := os.ReadFile(protected); err != nil || on[0] == '0' || os.Getuid() != 0 {
		t.Skipf("%s is %q, and this is user %d: %v", protected, on, os.Getuid(), err)
	}
	p := newPod(t)
	path := p.write(filepath.Join(p.volume, "disk.img"), make([]byte, 1<<20))
	p.check(os.Chown(path, 107, 107))
	p.check(os.Chmod(p.volume, 0o777|os.ModeSticky))
	_, err := p.runIn(launch.Disk{Raw: &launch.Raw{Size: 1 << 20}}, `{"disks":[{"name":"d","path":"`+path+`"}]}`)
	p.check(err)
}

// TestRawRights: the advice is to give the right that is missing.
func TestRawRights(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may open every file")
	}
	p := newPod(t)
	path := p.write(filepath.Join(p.volume, "disk.img"), make([]byte, 1<<20))
	p.check(os.Chmod(path, 0))
	for size, want := range map[int64]string{0: "it must be readable for user", 1 << 20: "it must be writable for user"} {
		_, err := p.runIn(launch.Disk{Raw: &launch.Raw{Size: size}}, `{"disks":[{"name":"d","path":"`+path+`"}]}`)
		p.wantFault(err, want)
		if readOnly := strings.Contains(err.Error(), "make the disk read-only"); readOnly != (size > 0) {
			t.Errorf("size %d: advises a read-only disk: %v", size, err)
		}
	}
}
