package prepare

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/launch"
)

// withoutDirect is a regular file, on every machine, whose filesystem has no direct I/O.
const withoutDirect = "/sys/devices/system/cpu/online"

// TestWithoutDirectIO: a disk is cached where one of its files can't be read otherwise, and
// nobody chose otherwise.
func TestWithoutDirectIO(t *testing.T) {
	raw, over := launch.Disk{Raw: &launch.Raw{}}, launch.Disk{Overlay: &launch.Overlay{Base: withoutDirect}}
	for name, test := range map[string]struct {
		disk     launch.Disk
		fields   string
		want     any
		wantFail string
	}{
		"raw":             {raw, ``, "writeback", ""},
		"base":            {over, ``, "writeback", ""},
		"chosen":          {over, `,"cache":"writethrough"`, "writethrough", ""},
		"none":            {over, `,"cache":"none"`, nil, "has no direct I/O: leave out cache, or use writethrough"},
		"native":          {raw, `,"io":"native"`, nil, "which io native needs: leave out io"},
		"shareable":       {raw, `,"shareable":true`, nil, "which a shareable disk needs: use a claim with volumeMode Block"},
		"chosen, threads": {raw, `,"cache":"unsafe","io":"threads"`, "unsafe", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			path := withoutDirect
			if test.disk.Overlay != nil {
				path = filepath.Join(p.Made, "d.qcow2")
			}
			made, err := p.runIn(test.disk, `{"disks":[{"name":"d","path":"`+path+`"`+test.fields+`}]}`)
			if test.wantFail != "" {
				p.wantFault(err, "volume d: "+withoutDirect+": its filesystem has no direct I/O")
				p.wantFault(err, test.wantFail)
				return
			}
			p.check(err)
			if made["cache"] != test.want {
				t.Errorf("cache %v, want %v", made["cache"], test.want)
			}
		})
	}
}

// TestWithDirectIO: the disk stays as the user has it.
func TestWithDirectIO(t *testing.T) {
	p := newPod(t)
	path := p.write(filepath.Join(p.volume, "disk.img"), make([]byte, 1<<20))
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		t.Skip(err)
	}
	p.check(f.Close())
	for _, cache := range []string{``, `,"cache":"none"`} {
		made, err := p.runIn(launch.Disk{Raw: &launch.Raw{}}, `{"disks":[{"name":"d","path":"`+path+`"`+cache+`}]}`)
		p.check(err)
		if got := made["cache"]; got != nil && got != "none" {
			t.Errorf("disk%s: cache %v", cache, got)
		}
	}
}
