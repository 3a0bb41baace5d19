package driver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/vmm/qemu/driver"
)

// attachment adds a raw disk by a set of descriptors.
func attachment(t *testing.T, device string) control.Attachment {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	steps := fmt.Sprintf(`{"steps":[
		{"name":"blockdev-add","arguments":{"driver":"file","node-name":"d-file"},"opens":0,"undo":{"name":"blockdev-del","arguments":{"node-name":"d-file"}}},
		{"name":"blockdev-add","arguments":{"driver":"raw","node-name":"d","file":"d-file"},"undo":{"name":"blockdev-del","arguments":{"node-name":"d"}}},
		{"name":"device_add","arguments":%s,"undo":{"name":"device_del","arguments":{"id":"d-device"}}}]}`, device)
	return control.Attachment{Instructions: json.RawMessage(steps), Files: []*os.File{f}}
}

const (
	plugged   = `{"driver":"virtio-blk-pci","id":"d-device","drive":"d","bus":"p0"}`
	unplugged = `{"device":"d-device","nodes":["d","d-file"]}`
)

// descriptors are those of a QEMU that lead to a file of that name.
func descriptors(t *testing.T, pid int, name string) int {
	t.Helper()
	count := 0
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if strings.HasPrefix(target, name) {
			count++
		}
	}
	return count
}

// TestAttachAndDetach: no guest answers for a disk on PCI while there is none, but a
// reset has QEMU let it go; a SCSI disk goes at once.
func TestAttachAndDetach(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, binary string) {
		m, cmd := start(t, binary, "-device", "pcie-root-port,id=p0,bus=pcie.0,addr=0x10,chassis=1", "-device", "virtio-scsi-pci,id=scsi")
		p, ctx := m.(control.Plugger), patience(t)
		for _, device := range []string{plugged, `{"driver":"scsi-hd","id":"d-device","drive":"d","bus":"scsi.0","scsi-id":3,"lun":0}`} {
			a := attachment(t, device)
			if err := p.Attach(ctx, a); err != nil {
				t.Fatal(err)
			}
			if descriptors(t, cmd.Process.Pid, a.Files[0].Name()) == 0 {
				t.Error("QEMU has not got the disk")
			}
			if err := p.Attach(ctx, attachment(t, device)); err == nil {
				t.Error("attached twice")
			}
			if strings.Contains(device, "virtio-blk") {
				short, cancel := context.WithTimeout(ctx, time.Second)
				err := p.Detach(short, json.RawMessage(unplugged))
				cancel()
				if !errors.Is(err, control.ErrGuestKeeps) {
					t.Fatalf("without a guest detaching gives %v", err)
				}
				gone := make(chan error, 1)
				go func() { gone <- p.AwaitGone(ctx, json.RawMessage(unplugged)) }()
				reset(t, m)
				if err := <-gone; err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // the second finds nothing to do
				if err := p.Detach(ctx, json.RawMessage(unplugged)); err != nil {
					t.Fatal(err)
				}
			}
			if n := descriptors(t, cmd.Process.Pid, a.Files[0].Name()); n != 0 {
				t.Errorf("QEMU still has %d descriptors of the disk", n)
			}
		}
	})
}

// lock keeps a file's bytes that QEMU locks until the end of the test, as another
// process would: an open file description's lock is not the process's.
func lock(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		t.Cleanup(func() { f.Close() })
		err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestAttachIsUndone has each step fail.
func TestAttachIsUndone(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, binary string) {
		m, cmd := start(t, binary, "-device", "pcie-root-port,id=p0,bus=pcie.0,addr=0x10,chassis=1")
		p, ctx := m.(control.Plugger), patience(t)
		for name, spoil := range map[string]func(*control.Attachment){
			"no file":      func(a *control.Attachment) { a.Files = nil },
			"no such file": func(a *control.Attachment) { replace(a, `"opens":0`, `"opens":1`) },
			"no such node": func(a *control.Attachment) { replace(a, `"file":"d-file"`, `"file":"e"`) },
			"no such bus":  func(a *control.Attachment) { replace(a, `"bus":"p0"`, `"bus":"harbour"`) },
			"no JSON":      func(a *control.Attachment) { a.Instructions = json.RawMessage(`{"steps":1}`) },
			"in use":       func(a *control.Attachment) { lock(t, a.Files[0].Name()) },
		} {
			a := attachment(t, plugged)
			path := a.Files[0].Name()
			spoil(&a)
			if err := p.Attach(ctx, a); err == nil || name == "in use" && !strings.HasPrefix(err.Error(), path+": another process has it open") {
				t.Errorf("%s: error %v", name, err)
			}
			if n := descriptors(t, cmd.Process.Pid, path); n != 0 {
				t.Errorf("%s: QEMU still has %d descriptors of the disk", name, n)
			}
		}
		if err := p.Attach(ctx, attachment(t, plugged)); err != nil {
			t.Errorf("after all these: %v", err)
		}
		for _, text := range []string{"", "{}", "[]", `{"device":1}`} {
			if err := p.Detach(ctx, json.RawMessage(text)); err == nil {
				t.Errorf("detaching %q gave no error", text)
			}
		}
	})
}

func replace(a *control.Attachment, old, new string) {
	a.Instructions = json.RawMessage(strings.Replace(string(a.Instructions), old, new, 1))
}

func reset(t *testing.T, m control.Machine) {
	t.Helper()
	if err := driver.Reset(patience(t), m); err != nil {
		t.Error(err)
	}
}
