package podvm

import (
	"testing"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/vm"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"github.com/vmlet/vmlet/contract"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/test/loopdevice"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// TestDeviceHasOneWriter: a block device that a VM writes to is refused to the VM of a pod: one of the node's own, or of another
// pod of its namespace. What is in pods keeps no others from starting, as a container may have made its node up.
func TestDeviceHasOneWriter(t *testing.T) {
	const path = contract.DevicesFolder + "/data"
	device := loopdevice.New(t, 1<<20)
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	a := w.start()
	pod := func(namespace, name string) *fakeNode {
		n := newFakeNode(w)
		n.pod.Namespace, n.pod.Name = namespace, name
		n.pod.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: path}}
		n.devices = map[string]uint64{path: uint64(st.Rdev)}
		n.servePod(t, a)
		return n
	}
	start := func(n *fakeNode) *vmtest.Proc {
		return n.container(func(p *vmtest.Pod) {
			p.RunDir = "/run/" + n.pod.Namespace + "-" + n.pod.Name // the fakes tell their RAM apart by it
			p.Described.Specification = []byte(podSpec + "disks: [{name: data, path: " + path + ", format: raw}]\n")
		})
	}
	running := func(name string) func() bool {
		return func() bool {
			m, err := a.Get(t.Context(), name)
			return err == nil && m.State() == lifecycle.Running
		}
	}
	own := vmtest.Spec("own")
	own.Disks = []*specv1.Disk{{Name: "root", Path: device, Format: "raw"}}
	if _, err := a.Create(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	startOwn := func() error {
		_, err := a.Start(t.Context(), "own", vm.StartOptions{}, nil)
		return err
	}
	if err := startOwn(); err != nil {
		t.Fatal(err)
	}
	web := pod("default", "web")
	wantText(t, web.refusal(t, start(web)), `disk "data" of vm default/web`, "block device 7:", `disk "root" of vm own`)
	if _, err := a.Power.Kill(t.Context(), "own"); err != nil {
		t.Fatal(err)
	}
	start(web)
	vmtest.Eventually(t, "it runs", running("default/web"))
	db := pod("default", "db")
	wantText(t, db.refusal(t, start(db)), `disk "data" of vm default/db`, `disk "data" of vm default/web`)
	start(pod("other", "db"))
	vmtest.Eventually(t, "that of another namespace runs", running("other/db"))
	if err := startOwn(); err != nil {
		t.Errorf("a pod's word has kept a VM of the node's own from starting: %v", err)
	}
}
