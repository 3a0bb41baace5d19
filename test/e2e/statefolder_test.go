package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/faultfs"
	"github.com/vmlet/vmlet/test/guest"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// TestStateFolderFails: while the agent's state folder is read-only, full, broken or
// gone, VMs go on, and the agent says what it can't do; when the folder is well again
// nothing is missing.
func TestStateFolderFails(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeOptions{})
	fs := n.stateOnFaults()
	defer n.stateBack(fs)
	spec := pvh(t, "steady", "emulation", guest.PVHOptions{})
	v := n.boot(spec)
	v.attach()
	for _, c := range []struct {
		name  string
		fault faultfs.Fault
		words string
	}{
		{"read-only", faultfs.Fault{Op: faultfs.OpChange, Errno: unix.EROFS, Times: faultfs.Forever}, "read-only file system"},
		{"full", faultfs.Fault{Op: faultfs.OpWrite, Errno: unix.ENOSPC, Times: faultfs.Forever}, "no space left"},
		{"broken", faultfs.Fault{Op: faultfs.OpAny, Errno: unix.EIO, Times: faultfs.Forever}, "input/output error"},
		{"gone", faultfs.Fault{Op: faultfs.OpAny, Errno: unix.ESTALE, Times: faultfs.Forever}, "stale"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v.in(t)
			fs.Arm(c.fault)
			v.shows(3)
			_, err := v.api.PauseVM(v.ctx, &nodev1.PauseVMRequest{Name: v.name})
			refused(t, err, codes.Unavailable, n.path("state", "vms", "steady"), c.words)
			v.is(paused) // as it is, though it could not be written down
			_, err = v.api.ResumeVM(v.ctx, &nodev1.ResumeVMRequest{Name: v.name})
			refused(t, err, codes.Unavailable, n.path("state", "vms", "steady"), c.words)
			v.is(running)
			image := filepath.Join(t.TempDir(), "image")
			if err := v.trySave(image); err == nil || !strings.Contains(err.Error(), c.words) {
				t.Errorf("a save: %v", err)
			}
			noImage(t, image)
			v.is(running)
			v.shows(3)
			fs.Disarm()
			v.pause()
			v.resume()
		})
	}
	// An agent can't begin then, and the VM does not care.
	pid := v.is(running).GetProcess().GetVmmPid()
	v.hangUp()
	n.signal(unix.SIGKILL)
	fs.Arm(faultfs.Fault{Op: faultfs.OpChange, Errno: unix.EROFS, Times: faultfs.Forever})
	if err := n.tryStart(); err == nil {
		t.Error("an agent has begun over a read-only folder")
	} else if log := tail(n.log(), 4<<10); !strings.Contains(log, "read-only file system") || !strings.Contains(log, n.path("state")) {
		t.Errorf("it does not say why: %s", log)
	}
	fs.Disarm()
	n.start()
	v.follow()
	if now := v.is(running).GetProcess().GetVmmPid(); now != pid {
		t.Errorf("the VMM was process %d and is %d", pid, now)
	}
	v.attach()
	v.shows(3)
}

// stateOnFaults restarts the agent with its state folder on a filesystem with faults.
func (n *node) stateOnFaults() *faultfs.FS {
	n.t.Helper()
	n.signal(unix.SIGTERM)
	below := n.path("state-below")
	n.must(os.Rename(n.path("state"), below))
	n.must(os.Mkdir(n.path("state"), 0o711))
	fs, err := faultfs.Mount(below, n.path("state"))
	if err != nil {
		n.must(os.Remove(n.path("state")))
		n.must(os.Rename(below, n.path("state")))
		n.start()
		n.t.Skipf("no FUSE here: %v", err)
	}
	n.start()
	return fs
}

// stateBack undoes stateOnFaults; no VM runs any more.
func (n *node) stateBack(fs *faultfs.FS) {
	n.t.Helper()
	fs.Disarm()
	if n.alive() {
		n.endVMs()
		n.signal(unix.SIGTERM)
	}
	n.must(fs.Unmount())
	n.must(os.Remove(n.path("state")))
	n.must(os.Rename(n.path("state-below"), n.path("state")))
	n.start()
}

// shows waits for more lines on the console's screen, which needs no log.
func (v *vm) shows(lines int) {
	v.t.Helper()
	ctx, cancel := v.patient()
	defer cancel()
	from := len(v.screen.shown.all())
	for range lines {
		var err error
		from, err = v.screen.shown.next(ctx, from, func(b byte) bool { return b == '\n' })
		if err != nil {
			v.t.Fatalf("the guest of %s has stopped: %v", v.name, err)
		}
	}
}
