package podvm

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/pods"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"github.com/vmlet/vmlet/podnet/helper"
	"github.com/vmlet/vmlet/podnet/podnettest"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/test/guest"
)

// newHelper is a real one: a run of this program.
func newHelper(t *testing.T) *helper.Client {
	t.Helper()
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	client, err := helper.Inherited()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if err := client.Refused(t.Context()); err != nil {
		t.Skip(err)
	}
	return client
}

// TestRealPodNetwork: a shim and a VMM without any right in their pod's network get a tap and
// sockets there, and the shim tells the guest its address.
func TestRealPodNetwork(t *testing.T) {
	busybox, err := guest.Busybox()
	if err != nil {
		t.Skip(err)
	}
	w := newWorld(t)
	n := newShimmedNode(t, w)
	node, pod, inside := podnettest.New(t), podnettest.New(t), podnettest.New(t)
	podnettest.Connect(1450, podnettest.End{In: node, Name: "veth0", Addresses: []string{"10.244.0.1/24"}},
		podnettest.End{In: pod, Name: "eth0", Addresses: []string{"10.244.0.5/24"}, Gateways: []string{"10.244.0.1"}})
	n.netns = pod
	appendTo(t, n.specFile, "networks: [{pod: {dhcp: {hostname: web}}}]\n")
	a := w.start()
	p := n.runner(a)
	p.pods, p.networks, p.namespace = n, newHelper(t), networkNamespace
	a.Go(func() { p.serve(a.ctx, pods.Volume{UID: podUID, Dir: n.dir}) })
	_, ended := n.run(n.specFile)
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))

	// Another in the guest's place, which says nothing itself.
	podnettest.Connect(1450, podnettest.End{In: inside, Name: "guest0", MAC: spec.MAC(podUID, 0)}, podnettest.End{In: pod, Name: "in-bridge"})
	pod.Do(func() error {
		bridge, err := netlink.LinkByName("k6t-eth0")
		if err != nil {
			return err
		}
		if _, err := netlink.LinkByName("tap-eth0"); err != nil {
			return err
		}
		end, err := netlink.LinkByName("in-bridge")
		return errors.Join(err, netlink.LinkSetMaster(end, bridge))
	})
	script := n.root + "/lease"
	n.must(os.WriteFile(script, []byte("#!/bin/sh\n[ \"$1\" = bound ] && echo \"lease $ip/$mask $router $mtu $hostname\"\nexit 0\n"), 0o755))
	var said []byte
	inside.Do(func() (err error) {
		said, err = exec.CommandContext(t.Context(), busybox, "udhcpc", "-f", "-n", "-q", "-i", "guest0", "-s", script, "-O", "mtu", "-O", "hostname").CombinedOutput()
		return err
	})
	if want := "lease 10.0.2.2/24 10.0.2.1 1450 web"; !strings.Contains(string(said), want) {
		t.Errorf("the guest was told %s, want %s", said, want)
	}
	_, err = a.Power.Kill(t.Context(), podVM)
	n.must(err)
	<-ended
	pod.Do(func() error {
		if _, err := netlink.LinkByName("tap-eth0"); !errors.As(err, new(netlink.LinkNotFoundError)) {
			t.Errorf("the tap is left: %v", err)
		}
		return nil
	})
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(content, text...), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// start starts a program in the pod's network namespace, where the node has one.
func (n *shimmedNode) start(cmd *exec.Cmd) error {
	if n.netns == nil {
		return cmd.Start()
	}
	return n.netns.In(cmd.Start)
}
