package cluster_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/test/suites"
)

// server is a pod on a node that says its name on port 8080.
const server = `
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeName: %s
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 0
  containers:
    - name: it
      image: ` + cluster.BusyboxImage + `
      args: [-euc, "echo $HOSTNAME >/tmp/index.html; exec busybox httpd -f -p 8080 -h /tmp"]
`

// TestNodes has a cluster of two nodes, and does to the second what can happen to one.
func TestNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a cluster")
	}
	if err := cluster.Unfit(); err != nil {
		t.Skip(err)
	}
	ctx, cancel := suites.Wait(t.Context(), t, 2*patience)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{Nodes: 2, Storage: true, Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() }) // after a test that went wrong
	n := nodes{stored{c, ctx}, c.Nodes()[1]}
	n.reached(t)
	n.cutOff(t)
	n.frozen(t)
	n.moved(t)
	n.killed(t)
	n.added(t)
	if err := n.second.Freeze(); err != nil {
		t.Fatal(err)
	}
	all, kept := processes(t, folder(c)), folder(c)
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	all.waitGone(t)
	wantNothingLeft(t, kept)
	waitNoAddress(t, c.MachineAddress())
}

// nodes is a cluster of two.
type nodes struct {
	stored
	second *cluster.Node
}

func (n nodes) address(t *testing.T, pod string) string {
	t.Helper()
	return n.kubectl(t, "get", "pod/"+pod, "-o", "jsonpath={.status.podIP}")
}

// reached: pods of each node reach those of the other, and the API server.
func (n nodes) reached(t *testing.T) {
	for _, on := range n.Nodes() {
		n.apply(t, fmt.Sprintf(server, "on-"+on.Name(), on.Name()))
	}
	n.wait(t, "--for=condition=Ready", "pod", "--all")
	n.reaches(t, n.kubectl(t, "get", "service/kubernetes", "-o", "jsonpath={.spec.clusterIP}"), "443", true)
	first, second := "on-"+n.Name(), "on-"+n.second.Name()
	for from, to := range map[string]string{first: second, second: first} {
		if got := n.in(t, from, "it", "busybox", "wget", "-q", "-O", "-", "http://"+n.address(t, to)+":8080/"); got != to {
			t.Errorf("of %s %s reads %q", to, from, got)
		}
	}
}

// cutOff: a node that is cut off reaches those that it was not cut off from, until that is mended.
func (n nodes) cutOff(t *testing.T) {
	pod := n.address(t, "on-"+n.Name())
	for _, c := range []struct {
		from      cluster.Peers
		api, pods bool
	}{
		{cluster.ControlPlane, false, true},
		{cluster.OtherNodes, true, false},
		{cluster.ControlPlane | cluster.OtherNodes, false, false},
		{0, true, true},
	} {
		var err error
		if c.from == 0 {
			err = n.second.Mend(n.ctx)
		} else {
			err = n.second.Cut(n.ctx, c.from)
		}
		if err != nil {
			t.Fatal(err)
		}
		n.reaches(t, n.NodeAddress(), "443", c.api)
		n.reaches(t, pod, "8080", c.pods)
	}
}

// reaches waits until a program on the second node reaches a port, or doesn't.
func (n nodes) reaches(t *testing.T, address, port string, want bool) {
	t.Helper()
	busybox, err := guest.Busybox()
	if err != nil {
		t.Fatal(err)
	}
	for {
		_, err := n.second.InNode(n.ctx, busybox, "nc", "-w", "3", address, port, "-e", "/bin/true")
		if (err == nil) == want {
			return
		}
		if n.ctx.Err() != nil {
			t.Fatalf("reaching port %s of %s: %v", port, address, err)
		}
	}
}

// frozen: what runs on a frozen node stands still, and goes on.
func (n nodes) frozen(t *testing.T) {
	if err := n.second.Freeze(); err != nil {
		t.Fatal(err)
	}
	n.reaches(t, n.second.NodeAddress(), "10250", true) // the kernel answers
	ctx, cancel := context.WithTimeout(n.ctx, 3*time.Second)
	defer cancel()
	if out, err := n.Exec(ctx, cluster.Pod{Namespace: "default", Name: "on-" + n.second.Name()}, "id"); err == nil {
		t.Errorf("a container of a frozen node says %q", out)
	}
	if err := n.second.Thaw(); err != nil {
		t.Fatal(err)
	}
	n.in(t, "on-"+n.second.Name(), "it", "id")
}

// moved: a volume is on one node at once, and one that stays on its node does so.
func (n nodes) moved(t *testing.T) {
	n.apply(t, fmt.Sprintf(movable, n.second.Name()))
	n.wait(t, "--for=condition=Ready", "pod/user")
	n.in(t, "user", "it", "sh", "-c", "echo written | tee /files/word /local/word; sync")
	n.apply(t, fmt.Sprintf(other, n.Name()))
	for !strings.Contains(n.kubectl(t, "get", "events", "--field-selector=involvedObject.name=other", "-o", "jsonpath={.items[*].reason}"), "FailedAttachVolume") {
		if n.ctx.Err() != nil {
			t.Fatal("a volume that is on a node is not refused on another")
		}
	}
	n.wait(t, "--for=condition=Ready", "pod/sharing")
	n.kubectl(t, "delete", "pod/user", "--timeout=24h")
	n.wait(t, "--for=condition=Ready", "pod/other")
	if got := n.in(t, "other", "it", "cat", "/files/word"); got != "written" {
		t.Errorf("a volume that has moved to another node has %q", got)
	}
	n.kubectl(t, "delete", "pod/other", "pod/sharing", "--timeout=24h")
}

// killed: a node whose power is cut has another boot ID afterwards, and what was on its disk.
func (n nodes) killed(t *testing.T) {
	bootID := func() string {
		return n.kubectl(t, "get", "node/"+n.second.Name(), "-o", "jsonpath={.status.nodeInfo.bootID}")
	}
	before := bootID()
	n.apply(t, fmt.Sprintf(movable, n.second.Name()))
	n.wait(t, "--for=condition=Ready", "pod/user")
	if err := n.second.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := n.second.Boot(n.ctx); err != nil {
		t.Fatal(err)
	}
	if now := bootID(); now == before {
		t.Errorf("the boot ID is %s as before", now)
	}
	n.wait(t, "--for=jsonpath={.status.containerStatuses[0].restartCount}=1", "pod/user")
	n.wait(t, "--for=condition=Ready", "pod/user")
	for _, file := range []string{"/files/word", "/local/word"} {
		if got := n.in(t, "user", "it", "cat", file); got != "written" {
			t.Errorf("after the node's boot %s has %q", file, got)
		}
	}
	if err := n.Kill(); err == nil {
		t.Fatal("the first node was killed")
	}
}

// added: a node comes and goes, and is drained before.
func (n nodes) added(t *testing.T) {
	third, err := n.AddNode(n.ctx)
	if err != nil {
		t.Fatal(err)
	}
	n.apply(t, fmt.Sprintf(server, "drained", third.Name()))
	n.wait(t, "--for=condition=Ready", "pod/drained")
	if err := third.Cordon(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.kubectl(t, "delete", "pod/drained", "--timeout=24h")
	if err := third.Drain(n.ctx); err != nil {
		t.Fatal(err)
	}
	if err := n.RemoveNode(n.ctx, third); err != nil {
		t.Fatal(err)
	}
	if left := strings.Fields(n.kubectl(t, "get", "nodes", "-o", "name")); len(left) != 2 {
		t.Errorf("after a third node went there are %v", left)
	}
}

// movable are two claims, of which one stays on its node, and a pod that has them on a node.
const movable = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: moves}
spec: {accessModes: [ReadWriteOnce], storageClassName: loop, resources: {requests: {storage: 16Mi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: stays}
spec: {accessModes: [ReadWriteOnce], storageClassName: local-path, resources: {requests: {storage: 16Mi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: shared}
spec: {accessModes: [ReadWriteMany], volumeMode: Block, storageClassName: loop, resources: {requests: {storage: 16Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 0
  containers:
    - name: it
      image: ` + cluster.BusyboxImage + `
      args: [-c, "sleep 1d"]
      volumeMounts: [{name: moves, mountPath: /files}, {name: stays, mountPath: /local}]
      volumeDevices: [{name: shared, devicePath: /shared}]
  volumes:
    - {name: moves, persistentVolumeClaim: {claimName: moves}}
    - {name: stays, persistentVolumeClaim: {claimName: stays}}
    - {name: shared, persistentVolumeClaim: {claimName: shared}}
`

// other and sharing are pods on another node: the one that has the claim that moves waits until it is
// free, the one that has the device for many writers does not.
const other = `
apiVersion: v1
kind: Pod
metadata: {name: other}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 0
  containers:
    - name: it
      image: ` + cluster.BusyboxImage + `
      args: [-c, "sleep 1d"]
      volumeMounts: [{name: moves, mountPath: /files}]
  volumes: [{name: moves, persistentVolumeClaim: {claimName: moves}}]
---
apiVersion: v1
kind: Pod
metadata: {name: sharing}
spec:
  nodeSelector: {kubernetes.io/hostname: %[1]s}
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 0
  containers:
    - name: it
      image: ` + cluster.BusyboxImage + `
      args: [-c, "sleep 1d"]
      volumeDevices: [{name: shared, devicePath: /shared}]
  volumes: [{name: shared, persistentVolumeClaim: {claimName: shared}}]
`
