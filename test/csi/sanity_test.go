package csi

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
)

// TestSanity holds the driver to CSI's specification. That can be done once in a process, and a
// driver that attaches volumes does more.
func TestSanity(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loop devices and mounts are root's")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("no loop devices here: ", err)
	}
	dir := t.TempDir()
	d, err := newDriver(Options{Root: filepath.Join(dir, "root"), Node: "node-1", Attach: true})
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "csi.sock")
	listener, err := listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	d.register(server)
	go func() { _ = server.Serve(listener) }() // its tests fail if it does
	defer server.Stop()

	config := sanity.NewTestConfig()
	config.Address = "unix:" + socket
	config.TargetPath, config.StagingPath = filepath.Join(dir, "target"), filepath.Join(dir, "staging")
	config.TestVolumeSize, config.TestVolumeExpandSize = 2*smallest, 4*smallest
	t.Cleanup(func() { // after a test that went wrong
		for _, path := range []string{"target/target", "target/other_target", "staging"} {
			_ = unix.Unmount(filepath.Join(dir, path), unix.MNT_DETACH)
		}
	})
	sanity.Test(t, config)
	for _, kind := range []string{volumes, snapshots} {
		if left, _ := filepath.Glob(filepath.Join(dir, "root", kind+"*")); len(left) > 0 {
			t.Errorf("there is still %v", left)
		}
	}
	if len(d.held) > 0 {
		t.Errorf("loop devices of %d volumes are still held", len(d.held))
	}
}
