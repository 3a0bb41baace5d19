package podvm

import (
	"github.com/vmlet/vmlet/test/suites"

	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/pods"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"github.com/vmlet/vmlet/capabilities/sources"
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/internal/posixacl"
	"github.com/vmlet/vmlet/podnet/helper"
	"github.com/vmlet/vmlet/podnet/podnettest"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/test/chtest"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/test/printed"
	"github.com/vmlet/vmlet/vmm"
	chprobe "github.com/vmlet/vmlet/vmm/cloudhypervisor/probe"
)

// TestMain makes a run of this program the network helper, as vmlet-agent's argument does.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == helper.Name {
		if err := helper.Run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	runtime.LockOSThread() // else /proc/self may be that of a thread in a namespace of a test
	os.Exit(suites.StartsVMs(m))
}

// podUser is nobody else's in a test.
const podUser = 954323

// shimmedNode is a node whose pods' shims are real; of Kubernetes it makes up the rest.
type shimmedNode struct {
	*fakeNode
	t                     *testing.T
	root                  string // the container's user's, on a disk
	shim, vmlet, specFile string
	netns                 *podnettest.Namespace // the pod's; nil: the test's own
}

func (n *shimmedNode) Dial(ctx context.Context, dir string) (place.Shim, pods.Peer, error) {
	return systemPods{}.Dial(ctx, dir)
}

func (n *shimmedNode) Identify(pid int) (shim.ShimProcess, error) { return shim.Identify(pid) }

// newShimmedNode has in its pods' image cloud-hypervisor, or its stand-in, alone.
func newShimmedNode(t *testing.T, w *world) *shimmedNode {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("it takes the place of a kubelet: run as root")
	}
	if f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err != nil {
		t.Skipf("cloud-hypervisor needs KVM: %v", err)
	} else {
		f.Close()
	}
	root, volume := folder(t, ""), folder(t, "/dev/shm")
	n := &shimmedNode{
		fakeNode: newFakeNode(w), t: t, root: filepath.Join(root, "own"),
		shim: filepath.Join(root, "vmlet-shim"), vmlet: filepath.Join(root, "vmlet"), specFile: filepath.Join(root, "vm.yaml"),
	}
	n.dir = volume
	must := n.must
	must(os.Mkdir(n.root, 0o700))
	must(os.Chown(n.root, podUser, podUser))
	must(os.Chown(volume, podUser, podUser))
	must(posixacl.Grant("/dev/kvm", podUser, posixacl.Read|posixacl.Write))
	t.Cleanup(func() { must(posixacl.Revoke("/dev/kvm", podUser)) })
	n.image(root)
	w.OwnShims = place.SystemShims{}
	w.Others = []vmm.Program{chprobe.New(chprobe.Config{
		Binary: "/nonesuch", Architecture: runtime.GOARCH, Hypervisors: []hypervisor.Hypervisor{vmtest.KVM{}},
	})}
	return n
}

func folder(t *testing.T, parent string) string {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "vmlet-pod-")
	if err == nil {
		t.Cleanup(func() { os.RemoveAll(dir) })
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func (n *shimmedNode) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// image makes what is in the pod's image and its ConfigMap. What vmlet says of the VMM
// there was asked beforehand.
func (n *shimmedNode) image(root string) {
	n.t.Helper()
	must := n.must
	program, err := exec.LookPath("cloud-hypervisor")
	if err != nil {
		n.t.Log("no cloud-hypervisor: this is a stand-in")
		program, err = chtest.Build(n.t.Context(), root)
		must(err)
	}
	build := exec.Command("go", "build", "-trimpath", "-o", n.shim, "../../cmd/vmlet-shim")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		n.t.Fatalf("building the shim: %v\n%s", err, out)
	}
	said := sources.Config{QEMU: sources.QEMU{Binary: "/nonesuch"}, CloudHypervisor: sources.CloudHypervisor{Binary: program}}.Complete().Sayings(n.t.Context())
	answer, err := json.Marshal(said)
	must(err)
	must(os.WriteFile(filepath.Join(root, "said"), answer, 0o644))
	must(os.WriteFile(n.vmlet, []byte("#!/bin/sh\ncat "+filepath.Join(root, "said")+"\n"), 0o755))
	kernel, err := guest.PVH(guest.PVHOptions{})
	must(err)
	must(os.WriteFile(filepath.Join(root, "kernel"), kernel, 0o644))
	must(os.WriteFile(n.specFile, []byte("memory: {size: 64Mi}\nboot: {kernel: {path: "+filepath.Join(root, "kernel")+"}}\n"), 0o644))
}

// run starts the container; the process has ended when the channel is closed.
func (n *shimmedNode) run(args ...string) (out *printed.Text, ended <-chan struct{}) {
	n.t.Helper()
	cmd := exec.Command(n.shim, append([]string{"pod", "--volume", n.dir, "--vmlet", n.vmlet, "--termination-log", filepath.Join(n.root, "log")}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: podUser, Gid: podUser}}
	out = new(printed.Text)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &said
	if err := n.start(cmd); err != nil {
		n.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }() // its end is all there is to know
	n.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has mostly ended
		<-done
		if n.t.Failed() {
			n.t.Logf("the shim said: %s", said.String())
		}
	})
	return out, done
}

// serve has an agent run the VMs of the node's pod.
func (n *shimmedNode) serve(a *testAgent) {
	p := n.runner(a)
	p.pods = n // itself, not the fake in it
	a.Go(func() { p.serve(a.ctx, pods.Volume{UID: podUID, Dir: n.dir}) })
}

// TestPodWithCloudHypervisor: a user without any privilege runs a VM that an agent
// drives, another takes up, and a pod after it maps.
func TestPodWithCloudHypervisor(t *testing.T) {
	w := newWorld(t)
	n := newShimmedNode(t, w)
	a := w.start()
	n.serve(a)
	out, ended := n.run(n.specFile)
	counts := func(out *printed.Text) func() bool {
		return func() bool { return strings.Contains(out.String(), guest.CountPrefix) }
	}
	vmtest.Eventually(t, "the guest counts", counts(out))
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	m, _ := a.Get(t.Context(), podVM)
	if st := m.Snapshot().GetStatus(); st.GetVmm().GetName() != "cloud-hypervisor" || !strings.HasPrefix(st.GetVmmReason(), "cloud-hypervisor: qemu can't be used") || st.GetProcess().GetUid() != podUser {
		t.Errorf("%v", st)
	}
	do := func(what string, err error, want lifecycle.State) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		vmtest.Eventually(t, what, a.is(want))
	}
	_, err := a.Power.Pause(t.Context(), podVM)
	do("pause", err, lifecycle.Paused)
	a.end() // the next agent takes it up as it is
	a = w.start()
	n.serve(a)
	vmtest.Eventually(t, "it is adopted", a.is(lifecycle.Paused))
	_, err = a.Power.Resume(t.Context(), podVM, false)
	do("resume", err, lifecycle.Running)
	_, err = a.Power.Reset(t.Context(), podVM)
	do("reset", err, lifecycle.Running)
	image := filepath.Join(n.root, "image")
	_, _, err = a.Saver.Save(t.Context(), podVM, place.SaveOptions{Directory: image}, nil)
	do("save", err, lifecycle.Saved)
	<-ended

	out, ended = n.run("--restore", image, "--lazy")
	vmtest.Eventually(t, "the guest goes on", counts(out))
	vmtest.Eventually(t, "it runs again", a.is(lifecycle.Running))
	if strings.Contains(out.String(), guest.UpLine) {
		t.Error("the guest was booted")
	}
	_, err = a.Power.Kill(t.Context(), podVM)
	do("kill", err, lifecycle.Stopped)
	<-ended
}
