package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/vmlet/vmlet/internal/ociimage"
	"github.com/vmlet/vmlet/test/csi"
	"github.com/vmlet/vmlet/test/guest"
)

// The components that make volumes, where [Options.Storage] asks for them. They run on the
// first node, as the others do, and the driver on each.
const (
	// LocalPath makes folders of the node's: the StorageClass local-path, the default.
	LocalPath = "local-path-provisioner"
	// LoopDriver is the CSI driver of test/csi: the StorageClass loop.
	LoopDriver = "csi-loop"
	// LoopProvisioner and LoopResizer ask it for what claims ask for.
	LoopProvisioner = "csi-provisioner"
	LoopResizer     = "csi-resizer"
	// LoopAttacher has it attach volumes to nodes, where there are several.
	LoopAttacher = "csi-attacher"
)

// BusyboxImage is in a cluster with [Options.Storage]: a shell, and what scripts use.
const BusyboxImage = "vmlet.test/busybox:1"

// Where volumes are: on a node, and in the cluster's folder.
const (
	localPathFolder = "/var/lib/local-path"
	loopFolder      = "lib/csi-loop"

	loopDriverProgram = "bin/csi-loop"
)

// attached says that volumes of the class loop are attached to a node before they are mounted
// there, as where they could be on another. On the only node all of them always are.
func (o Options) attached() bool { return o.Storage && o.Nodes > 1 }

// storageArguments are those of [Node.arguments] of a component that makes volumes.
func (n *Node) storageArguments(component string) []string {
	c := n.cluster
	switch component {
	case LocalPath:
		return []string{
			"start", "--kubeconfig=" + c.path("etc/storage.kubeconfig"), "--config=" + c.path("etc/local-path.json"),
			"--provisioner-name=rancher.io/local-path", "--namespace=local-path-storage", "--configmap-name=local-path-config",
			"--service-account-name=local-path", "--helper-image=" + BusyboxImage, "--helper-pod-file=" + c.path("etc/helper-pod.json"),
		}
	case LoopDriver:
		return []string{"--node=" + n.Name(), "--root=" + c.path(loopFolder), fmt.Sprintf("--attach=%t", c.options.attached())}
	case LoopProvisioner:
		return c.toLoopDriver("--default-fstype=ext4")
	case LoopResizer:
		return c.toLoopDriver("--handle-volume-inuse-error=false")
	case LoopAttacher:
		return c.toLoopDriver()
	}
	return nil
}

// toLoopDriver are the arguments of what stands between the API server and the driver.
func (c *Cluster) toLoopDriver(more ...string) []string {
	return append(more, "--kubeconfig="+c.path("etc/storage.kubeconfig"), "--csi-address="+csi.Socket("/var/lib/kubelet"))
}

// configureStorage writes the configuration of what makes volumes.
func (c *Cluster) configureStorage() error {
	return errors.Join(
		c.writeJSON("etc/local-path.json", object{
			"nodePathMap": []object{{"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": []string{localPathFolder}}},
		}),
		c.writeJSON("etc/helper-pod.json", object{
			"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "helper-pod"},
			"spec": object{"containers": []object{{"name": "helper-pod", "image": BusyboxImage}}},
		}),
	)
}

// buildStorage makes what nodes need for volumes: the driver, and an image.
func (c *Cluster) buildStorage(ctx context.Context) error {
	c.programs[LoopDriver] = c.path(loopDriverProgram)
	if err := BuildProgram(ctx, c.programs[LoopDriver], "github.com/vmlet/vmlet/test/csi/loop"); err != nil {
		return err
	}
	image := c.path("bin/busybox.tar")
	c.images = append(c.images, image)
	return busyboxImage(image)
}

// startStorage starts what makes volumes; nobody waits for it but claims.
func (c *Cluster) startStorage(ctx context.Context) error {
	c.logf("starting what makes volumes")
	if err := c.configureStorage(); err != nil {
		return err
	}
	if err := c.Apply(ctx, fmt.Sprintf(storageObjects, c.options.attached())); err != nil {
		return err
	}
	components := []string{LocalPath, LoopProvisioner, LoopResizer}
	if c.options.attached() {
		components = append(components, LoopAttacher)
	}
	return c.startComponents(components...)
}

// The ServiceAccount is not the default one: that comes a moment after its namespace, and a pod
// that is refused meanwhile is tried again after a quarter of a minute.
const storageObjects = `
apiVersion: v1
kind: Namespace
metadata: {name: local-path-storage}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: local-path, namespace: local-path-storage}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: local-path-config, namespace: local-path-storage}
data:
  setup: |
    set -eu
    mkdir -m 0777 -p "$VOL_DIR"
  teardown: |
    set -eu
    rm -rf "$VOL_DIR"
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: local-path
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: rancher.io/local-path
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: ` + csi.Name + `}
spec: {attachRequired: %t, podInfoOnMount: false, fsGroupPolicy: File, volumeLifecycleModes: [Persistent]}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: loop}
provisioner: ` + csi.Name + `
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: true
`

// busyboxImage writes [BusyboxImage].
func busyboxImage(tarFile string) error {
	path, err := guest.Busybox()
	if err != nil {
		return err
	}
	busybox, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	entries := []ociimage.Entry{
		{Path: "bin", Mode: fs.ModeDir | 0o755},
		{Path: "tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
		{Path: "bin/busybox", Mode: 0o755, Content: busybox},
	}
	for _, name := range []string{"cat", "cmp", "cp", "dd", "df", "id", "ls", "mkdir", "rm", "sh", "sleep", "stat", "sync", "test", "wc"} {
		entries = append(entries, ociimage.Entry{Path: "bin/" + name, Mode: fs.ModeSymlink | 0o777, Target: "busybox"})
	}
	if err := writeImage(tarFile, BusyboxImage, []string{"/bin/sh"}, entries...); err != nil {
		return fmt.Errorf("making %s: %w", BusyboxImage, err)
	}
	return nil
}
