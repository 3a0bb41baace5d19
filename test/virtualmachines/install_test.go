package virtualmachines_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/guest"
)

// Images, as deploy/cluster names them; nothing can be pulled.
const (
	vmletImage   = "vmlet.invalid/vmlet:local"
	controlImage = "vmlet.invalid/vmlet-cluster:local"
	kernelImage  = "vmlet.test/kernels:1"
)

// guests is a namespace in which only pods without any privilege are taken.
const guests = "guests"

// installed is a cluster with vmlet in it.
type installed struct {
	*cluster.Cluster
	ctx context.Context
	// api is the administrator's.
	api client.WithWatch
	// parts are the names of those that there are; partsRan: one of them ran.
	parts    []string
	partsRan bool
	// renewing: a VM is being renewed, for a moment with two VMMs.
	renewing atomic.Bool
}

// sharedCluster has TestVirtualMachines use the cluster that make cluster runs, if it does.
const sharedCluster = "VMLET_SHARED_CLUSTER"

// join returns the cluster that make cluster runs, without what an earlier run has left in it; nil: none runs.
// What vmlet's programs are there make cluster-redeploy has decided.
func join(t *testing.T) *installed {
	t.Helper()
	if os.Getenv(sharedCluster) == "" || named(hypervisorPart) { // which needs other programs
		return nil
	}
	kubeconfig, err := cluster.Shared()
	must(t, err)
	if kubeconfig == "" {
		t.Log("make cluster does not run: the part has a cluster of its own")
		return nil
	}
	c, err := cluster.Join(kubeconfig, t.Logf)
	must(t, err)
	t.Cleanup(func() { must(t, c.Stop()) })
	if n := len(c.Nodes()); n > 1 {
		t.Fatalf("the cluster of %s has %d nodes, and a part is for one", kubeconfig, n)
	}
	v := &installed{Cluster: c, ctx: t.Context(), api: connect(t, c, rest.NoWarnings{})}
	v.kubectl(t, "delete", "namespace", guests, "--ignore-not-found")
	for _, tar := range guestImages(t) {
		must(t, c.LoadImage(v.ctx, tar))
	}
	v.neverTwice(t)
	v.deploy(t)
	return v
}

// install does what docs/install.md has, on a new cluster; kubelet are fields of its kubelet's
// configuration that are not as usual.
func install(t *testing.T, kubelet map[string]any) *installed {
	t.Helper()
	v := newCluster(t, cluster.Options{Kubelet: kubelet, Multus: true, IPv6: true})
	v.deploy(t)
	return v
}

// newCluster has all images and volumes, and no vmlet yet. more are further arguments of deploy/image for vmlet's.
func newCluster(t *testing.T, o cluster.Options, more ...string) *installed {
	t.Helper()
	if _, err := guest.Cached("image-packages"); err != nil {
		t.Skip(err)
	}
	ctx, folder := t.Context(), t.TempDir()
	vmlet, control := filepath.Join(folder, "vmlet.tar"), filepath.Join(folder, "control.tar")
	must(t, cluster.VmletImage(ctx, vmlet, vmletImage, more...))
	must(t, cluster.ControlImage(ctx, control, controlImage))
	o.Images, o.Storage, o.Logf = append([]string{vmlet, control}, guestImages(t)...), true, t.Logf
	c, err := cluster.Start(ctx, o)
	must(t, err)
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	api := connect(t, c, rest.NoWarnings{})
	v := &installed{Cluster: c, ctx: ctx, api: api}
	if *starts == 0 { // it takes a tenth of a processor
		v.neverTwice(t)
	}
	return v
}

// guestImages are tars of what guests boot from.
func guestImages(t *testing.T) []string {
	t.Helper()
	folder := t.TempDir()
	kernels, linux, small := filepath.Join(folder, "kernels.tar"), filepath.Join(folder, "linux.tar"), filepath.Join(folder, "small.tar")
	must(t, cluster.FilesImage(kernels, kernelImage, kernelFiles(t)))
	must(t, cluster.FilesImage(linux, linuxImage, linuxFiles(t)))
	disk, err := guest.SmallDisk(t.Context())
	must(t, err)
	must(t, cluster.FilesImage(small, smallImage, map[string][]byte{"disk/disk.img": disk}))
	return []string{kernels, linux, small}
}

// deploy applies the manifests, and waits until vmlet says that it is deployed.
func (v *installed) deploy(t *testing.T) {
	t.Helper()
	_, err := v.ApplyFolder(v.ctx, "../../deploy/cluster", "--server-side")
	must(t, err)
	for _, workload := range []string{"deployment/vmlet-api", "deployment/vmlet-controller", "daemonset/vmlet-agent"} {
		must(t, v.RolledOut(v.ctx, "vmlet", workload))
	}
	must(t, v.Apply(v.ctx, surroundings))
	v.kubectl(t, "wait", "--for=jsonpath={.status.phase}=Deployed", "kubevirt/kubevirt", "-n", "vmlet", "--timeout=24h")
}

const surroundings = `
apiVersion: kubevirt.io/v1
kind: KubeVirt
metadata: {name: kubevirt, namespace: vmlet}
spec: {configuration: {developerConfiguration: {useEmulation: true}}}
---
apiVersion: v1
kind: Namespace
metadata:
  name: guests
  labels: {pod-security.kubernetes.io/enforce: restricted}
`

// Kernels that guests boot.
const (
	// idle takes no processor and answers nothing.
	idle = "idle"
	// counting says numbers on its console, and shuts down when it is asked to.
	counting = "counting"
	// stubborn counts, and does not shut down.
	stubborn = "stubborn"
	// brief counts for a moment and shuts down by itself.
	brief = "brief"
	// broken is no kernel.
	broken = "broken"
)

// kernelFiles are the kernels, by their paths in the image.
func kernelFiles(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{"boot/" + broken: []byte("this is no kernel\n")}
	for name, o := range map[string]guest.PVHOptions{
		idle: {Idle: true}, counting: {}, stubborn: {IgnorePowerButton: true}, brief: {PowerOffAt: 10},
	} {
		elf, err := guest.PVH(o)
		must(t, err)
		files["boot/"+name] = elf
	}
	return files
}

// connect returns a client; warnings are the API server's.
func connect(t *testing.T, c *cluster.Cluster, warnings rest.WarningHandler) client.WithWatch {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	must(t, err)
	config.QPS, config.Burst, config.WarningHandler = 1000, 1000, warnings
	scheme := runtime.NewScheme()
	must(t, clientscheme.AddToScheme(scheme))
	must(t, kubevirtv1.AddToScheme(scheme))
	must(t, poolv1.AddToScheme(scheme))
	api, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	must(t, err)
	return api
}

// describe logs what a person would look at.
func (v *installed) describe(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{
		{"get", "vm,vmi,pods,pvc", "--all-namespaces", "-o", "wide"},
		{"-n", guests, "get", "events", "--sort-by=lastTimestamp", "-o", "custom-columns=:lastTimestamp,:involvedObject.kind,:involvedObject.name,:reason,:message"},
		{"get", "nodes", "-o", "jsonpath={.items[0].spec.taints} {.items[0].status.conditions}"},
		{"get", "events", "--all-namespaces", "--field-selector=type=Warning"},
		{"-n", "vmlet", "logs", "-l", "app.kubernetes.io/name=vmlet-api", "--tail=20", "--prefix"},
		{"-n", "vmlet", "logs", "-l", "app.kubernetes.io/name=vmlet-controller", "--tail=60", "--prefix"},
		{"-n", "vmlet", "logs", "daemonset/vmlet-agent", "--tail=60"}, // the last lines say most, and are seldom cut off
	} {
		out, err := v.Kubectl(v.ctx, args...)
		t.Logf("kubectl %s:\n%s%v", strings.Join(args, " "), out, err)
	}
}
