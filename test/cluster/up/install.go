package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/guest"
)

// The images of deploy/examples/vm.yaml.
const (
	kernelImage = "vmlet.test/kernel:1"
	diskImage   = "vmlet.test/disk:1"
)

// exampleImages writes them to a folder and returns the tars.
func exampleImages(ctx context.Context, folder string) ([]string, error) {
	kernel, initrd, err := guest.Linux(ctx)
	if err != nil {
		return nil, err
	}
	boot := make(map[string][]byte)
	for name, from := range map[string]string{"boot/vmlinuz": kernel, "boot/initrd": initrd} {
		if boot[name], err = os.ReadFile(from); err != nil {
			return nil, err
		}
	}
	disk, err := guest.SmallDisk(ctx)
	if err != nil {
		return nil, err
	}
	kernelTar, diskTar := filepath.Join(folder, "kernel.tar"), filepath.Join(folder, "disk.tar")
	if err := cluster.FilesImage(kernelTar, kernelImage, boot); err != nil {
		return nil, err
	}
	return []string{kernelTar, diskTar}, cluster.FilesImage(diskTar, diskImage, map[string][]byte{"disk/disk.img": disk})
}

// install applies vmlet's manifests, waits until all of it is ready, and has its VMs emulated
// if this machine's KVM is of no use.
func install(ctx context.Context, c *cluster.Cluster, folders []string) error {
	for _, folder := range folders {
		say("applying %s", folder)
		if _, err := c.ApplyFolder(ctx, folder, "--server-side"); err != nil {
			return err
		}
	}
	workloads, err := c.Kubectl(ctx, "--namespace=vmlet", "get", "daemonsets,deployments", "-o", "name")
	if err != nil {
		return err
	}
	for workload := range strings.FieldsSeq(workloads) {
		say("waiting for %s", workload)
		if err := c.RolledOut(ctx, "vmlet", workload); err != nil {
			return err
		}
	}
	emulation, err := needsEmulation(ctx, c)
	if err != nil {
		return err
	}
	say("making the KubeVirt object, with useEmulation: %t", emulation)
	if err := c.Apply(ctx, fmt.Sprintf(configuration, emulation)); err != nil {
		return err
	}
	_, err = c.Kubectl(ctx, "--namespace=vmlet", "wait", "kubevirt/kubevirt", "--for=jsonpath={.status.phase}=Deployed", "--timeout=1m")
	return err
}

const configuration = `
apiVersion: kubevirt.io/v1
kind: KubeVirt
metadata: {name: kubevirt, namespace: vmlet}
spec: {configuration: {developerConfiguration: {useEmulation: %t}}}
`

// needsEmulation: KVM is not there, or slower than emulation.
func needsEmulation(ctx context.Context, c *cluster.Cluster) (bool, error) {
	pod, err := c.Kubectl(ctx, "--namespace=vmlet", "get", "pods", "--selector=app.kubernetes.io/name=vmlet-agent",
		"-o", "jsonpath={.items[0].metadata.name}")
	if err != nil {
		return false, err
	}
	probed, err := c.Exec(ctx, cluster.Pod{Namespace: "vmlet", Name: pod}, "vmlet", "probe", "-o", "json")
	if err != nil {
		return false, err
	}
	var node struct {
		Hypervisors []struct{ Name, State string }
	}
	if err := json.Unmarshal([]byte(probed), &node); err != nil {
		return false, fmt.Errorf("vmlet probe: %w", err)
	}
	for _, h := range node.Hypervisors {
		if h.Name == "kvm" {
			return h.State != "STATE_WORKS", nil
		}
	}
	return true, nil
}
