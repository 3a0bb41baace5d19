package cluster_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/csi"
	"github.com/vmlet/vmlet/test/suites"
)

// claims are of both classes and both modes.
const claims = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: folder}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: files}
spec: {accessModes: [ReadWriteOnce], storageClassName: loop, resources: {requests: {storage: 16Mi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: block}
spec: {accessModes: [ReadWriteOncePod], volumeMode: Block, storageClassName: loop, resources: {requests: {storage: 16Mi}}}
`

// writer is a pod without rights that writes to all of them. A device has its owner and group on
// the node, which is root.
const writer = `
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 0
  securityContext: {runAsUser: 107, runAsGroup: 107, fsGroup: 107, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: writer
      image: ` + cluster.BusyboxImage + `
      args: [-euc, "for f in /folder/word /files/word; do echo written > $f; done; sync; sleep 1d"]
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      volumeMounts: [{name: folder, mountPath: /folder}, {name: files, mountPath: /files}]
    - name: device
      image: ` + cluster.BusyboxImage + `
      args: [-euc, "echo written > /block; sync; sleep 1d"]
      securityContext: {runAsUser: 0, runAsGroup: 0, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      volumeDevices: [{name: block, devicePath: /block}]
  volumes:
    - {name: folder, persistentVolumeClaim: {claimName: folder}}
    - {name: files, persistentVolumeClaim: {claimName: files}}
    - {name: block, persistentVolumeClaim: {claimName: block}}
`

// clones are copies of the claims, a pod that reads them, and one that wants the claim for a
// single pod, too.
const clones = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: files-2}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: loop
  resources: {requests: {storage: 48Mi}}
  dataSource: {kind: PersistentVolumeClaim, name: files}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: block-2}
spec:
  accessModes: [ReadWriteOncePod]
  volumeMode: Block
  storageClassName: loop
  resources: {requests: {storage: 48Mi}}
  dataSource: {kind: PersistentVolumeClaim, name: block}
---
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 0
  containers:
    - name: reader
      image: ` + cluster.BusyboxImage + `
      args: [-c, "sleep 1d"]
      volumeMounts: [{name: files, mountPath: /files}]
      volumeDevices: [{name: block, devicePath: /block}]
  volumes:
    - {name: files, persistentVolumeClaim: {claimName: files-2}}
    - {name: block, persistentVolumeClaim: {claimName: block-2}}
---
apiVersion: v1
kind: Pod
metadata: {name: second}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 0
  containers:
    - {name: second, image: ` + cluster.BusyboxImage + `, volumeDevices: [{name: block, devicePath: /block}]}
  volumes:
    - {name: block, persistentVolumeClaim: {claimName: block}}
`

// loops are a cluster's loop devices, those of its volumes and those that the kubelet puts over
// them, and what each is attached to.
func loops(t *testing.T, folder string) map[string]string {
	t.Helper()
	attached := make(map[string]string)
	volumes, err := filepath.Glob(filepath.Join(folder, "lib/csi-loop/*/content"))
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range volumes {
		for {
			device, err := csi.FindLoop(of)
			if err != nil {
				t.Fatal(err)
			}
			if device == nil {
				break
			}
			_ = device.Close()
			of = device.Name()
			attached[of] = attachedTo(of)
		}
	}
	return attached
}

func attachedTo(device string) string {
	file, _ := readFile(filepath.Join("/sys/block", filepath.Base(device), "loop/backing_file"))
	return file
}

// stored is a cluster that fills claims.
type stored struct {
	*cluster.Cluster
	ctx context.Context
}

func (s stored) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.Kubectl(s.ctx, args...)
	if err != nil {
		// What claims wait for, the kubelet and the provisioners say there.
		events, _ := s.Kubectl(context.WithoutCancel(s.ctx), "get", "pvc,pv,events", "--all-namespaces")
		t.Fatalf("%v\n%s", err, events)
	}
	return out
}

func (s stored) apply(t *testing.T, manifests string) {
	t.Helper()
	if err := s.Apply(s.ctx, manifests); err != nil {
		t.Fatal(err)
	}
}

// wait: the context ends earlier than what is waited for a day.
func (s stored) wait(t *testing.T, args ...string) {
	t.Helper()
	s.kubectl(t, append([]string{"wait", "--timeout=24h"}, args...)...)
}

// in is what a program in a container prints.
func (s stored) in(t *testing.T, pod, container string, args ...string) string {
	t.Helper()
	return strings.TrimSpace(s.kubectl(t, append([]string{"exec", pod, "-c", container, "--"}, args...)...))
}

// TestStorage: claims of both classes bind, are written to, grow, and are cloned.
func TestStorage(t *testing.T) {
	if err := cluster.Unfit(); err != nil {
		t.Skip(err)
	}
	ctx, cancel := suites.Wait(t.Context(), t, patience)
	defer cancel()
	// By default it takes the kubelet a minute to look at a running pod's claims again.
	o := cluster.Options{Storage: true, Kubelet: map[string]any{"syncFrequency": "1s"}, Logf: t.Logf}
	c, err := cluster.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() }) // after a test that went wrong
	s := stored{c, ctx}
	s.apply(t, claims+"---"+writer)
	s.wait(t, "--for=condition=Ready", "pod/writer")
	s.growing(t)
	s.cloned(t)
	s.kubectl(t, "delete", "pods,pvc", "--all", "--timeout=24h")
	s.wait(t, "--for=delete", "pv", "--all")
	s.takenAway(t)
}

// growing: a device grows under its pod; a file system does so, too, where root may have it
// grow, and else when no pod has it.
func (s stored) growing(t *testing.T) {
	for _, claim := range []string{"files", "block"} {
		s.kubectl(t, "patch", "pvc/"+claim, "--patch", `{"spec":{"resources":{"requests":{"storage":"32Mi"}}}}`)
	}
	s.wait(t, "--for=jsonpath={.status.capacity.storage}=32Mi", "pvc/block")
	if got := s.in(t, "writer", "device", "sh", "-c", "dd if=/block bs=1M status=none | wc -c"); got != "33554432" {
		t.Errorf("the device that grew to 32Mi has %s bytes", got)
	}
	s.kubectl(t, "delete", "pod/writer", "--timeout=24h")
	for len(loops(t, folder(s.Cluster))) > 0 {
		select {
		case <-s.ctx.Done():
			t.Fatalf("volumes of a pod that is gone have the loop devices %v", loops(t, folder(s.Cluster)))
		case <-time.After(50 * time.Millisecond):
		}
	}
	s.apply(t, writer)
	s.wait(t, "--for=condition=Ready", "pod/writer")
	s.wait(t, "--for=jsonpath={.status.capacity.storage}=32Mi", "pvc/files")
	// Blocks of 1 KiB: a file system keeps some for itself.
	if got := s.in(t, "writer", "writer", "stat", "-f", "-c", "%b", "/files"); len(got) != 5 || got < "24000" {
		t.Errorf("the file system that grew to 32Mi has %s KiB", got)
	}
}

// cloned: claims made from others have what those have, and a claim for one pod has one.
func (s stored) cloned(t *testing.T) {
	s.apply(t, clones)
	s.wait(t, "--for=condition=Ready", "pod/reader")
	for _, read := range [][]string{{"cat", "/files/word"}, {"dd", "if=/block", "bs=8", "count=1", "status=none"}} {
		if got := s.in(t, "reader", "reader", read...); got != "written" {
			t.Errorf("%v reads %q in the clone", read, got)
		}
	}
	if got := s.in(t, "reader", "reader", "stat", "-f", "-c", "%b", "/files"); len(got) != 5 || got < "36000" {
		t.Errorf("the file system of a clone of 48Mi has %s KiB", got)
	}
	s.wait(t, `--for=jsonpath={.status.conditions[?(@.type=="PodScheduled")].reason}=Unschedulable`, "pod/second")
}

// takenAway: nothing is left of volumes that pods use when the cluster is stopped.
func (s stored) takenAway(t *testing.T) {
	s.apply(t, claims+"---"+writer)
	s.wait(t, "--for=condition=Ready", "pod/writer")
	kept := folder(s.Cluster)
	used := loops(t, kept)
	if len(used) != 3 {
		t.Errorf("loop devices are %v: want one a volume, and the kubelet's over that of the mode Block", used)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	wantNothingLeft(t, kept)
	for device, before := range used {
		if now := attachedTo(device); now != "" && now == before {
			t.Errorf("%s is still attached to %s", device, now)
		}
	}
}
