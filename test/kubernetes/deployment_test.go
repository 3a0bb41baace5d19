package kubernetes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/test/suites"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	// vmletImage is the node's; nothing can be pulled there.
	vmletImage = "vmlet.invalid/vmlet:test"
	agents     = "daemonset/vmlet-agent"
	agentUser  = "system:serviceaccount:vmlet:vmlet-agent"
	// foreign is a label of somebody else's, near to vmlet's.
	foreign = "example.org/rack"
)

// deployment is vmlet as it is installed: the image, and the manifests of deploy.
type deployment struct {
	*node
	// folder has the kustomization of a user.
	folder string
	// saved is this machine's path of what pods have at /saved.
	saved string
	// hypervisor of guests that don't need a certain one.
	hypervisor string
	// logs of VMs' pods that are followed, by the VM's name; mu guards the map.
	mu   sync.Mutex
	logs map[string]*attached
	// labelled is when the Node had all that it is to have.
	labelled time.Time
}

// TestDeployment has one cluster for all, as a cluster takes longer than most of it.
func TestDeployment(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a cluster")
	}
	if err := cluster.Unfit(); err != nil {
		t.Skip(err)
	}
	t.Parallel()
	d := deploy(t)
	d.part(t, "node", d.testNodeObject)
	if !atOnce(t, map[string]func(*testing.T){
		"life": d.testLife, "delete": d.testDelete, "failing": d.testFailing, "refused": d.testRefused,
		"containers": d.testContainers, "memory": d.testMemory, "endpoints": d.testEndpoints,
		"cloud-hypervisor": d.testCloudHypervisor,
	}) {
		d.describe(t)
	}
	d.part(t, "liars", d.testLiars)
	d.part(t, "restarts", d.testRestarts)
	d.part(t, "silence", d.testSilence)
}

// part runs a test, and tells how it looks in the cluster if it fails.
func (d *deployment) part(t *testing.T, name string, test func(*testing.T)) {
	if !t.Run(name, test) {
		d.describe(t)
	}
}

// deploy installs vmlet as docs/install.md has it.
func deploy(t *testing.T) *deployment {
	t.Helper()
	if _, err := guest.Cached("image-packages"); err != nil {
		t.Skip(err)
	}
	ctx := t.Context()
	tar := filepath.Join(t.TempDir(), "image.tar")
	must(t, cluster.VmletImage(ctx, tar, vmletImage, "-cloud-hypervisor", cloudHypervisor(ctx, t)))
	c, err := cluster.Start(ctx, cluster.Options{Images: []string{tar}, Logf: t.Logf})
	must(t, err)
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	d := &deployment{node: &node{Cluster: c, ctx: ctx}, folder: t.TempDir(), saved: t.TempDir(), hypervisor: "emulation", logs: make(map[string]*attached)}
	if kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err == nil {
		kvm.Close()
		d.hypervisor = "kvm"
	}
	must(t, os.Chmod(d.saved, 0o777)) // a provisioner of local volumes would
	d.kubectl(t, "label", "node", cluster.NodeName, foreign+"=7")
	must(t, d.Apply(ctx, fmt.Sprintf(surroundings, cluster.NodeName, d.saved)))
	d.guests(t)
	d.configure(t, "{}\n")
	d.liars(t)
	return d
}

// surroundings are a namespace where only pods without any privilege are taken,
// and a volume that stays when they go.
const surroundings = `
apiVersion: v1
kind: Namespace
metadata:
  name: guests
  labels: {pod-security.kubernetes.io/enforce: restricted}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: saved}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: by-hand
  claimRef: {namespace: guests, name: saved}
  local: {path: %[2]q}
  nodeAffinity:
    required:
      nodeSelectorTerms:
        - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%[1]s]}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: saved, namespace: guests}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: by-hand
  volumeName: saved
  resources: {requests: {storage: 1Gi}}
`

// configure applies the manifests with a configuration of the agent's, and waits
// until they are rolled out.
func (d *deployment) configure(t *testing.T, config string) {
	t.Helper()
	base, err := filepath.Abs("../../deploy/base")
	must(t, err)
	base, err = filepath.Rel(d.folder, base) // kustomize wants it so
	must(t, err)
	name, tag, _ := strings.Cut(vmletImage, ":")
	kustomization := fmt.Sprintf(`
resources: [%s]
images: [{name: vmlet.invalid/vmlet, newName: %s, newTag: %s}]
configMapGenerator: [{name: vmlet-agent, namespace: vmlet, behavior: replace, files: [agent.yaml]}]
`, base, name, tag)
	must(t, os.WriteFile(filepath.Join(d.folder, "kustomization.yaml"), []byte(kustomization), 0o600))
	must(t, os.WriteFile(filepath.Join(d.folder, "agent.yaml"), []byte(config), 0o600))
	_, err = d.ApplyFolder(d.ctx, d.folder)
	must(t, err)
	if err := d.RolledOut(d.ctx, "vmlet", agents); err != nil {
		d.describe(t)
		t.Fatal(err)
	}
}

// describe logs what a person would look at.
func (d *deployment) describe(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{
		{"get", "pods", "--all-namespaces", "-o", "wide"},
		{"-n", "vmlet", "logs", agents, "--tail=100"},
		{"get", "events", "--all-namespaces", "--field-selector=type=Warning"},
	} {
		out, err := d.Kubectl(d.ctx, args...)
		t.Logf("kubectl %s:\n%s%v", strings.Join(args, " "), out, err)
	}
}

// agent is the pod of the agent that runs.
func (d *deployment) agent(t *testing.T) cluster.Pod {
	t.Helper()
	names := d.kubectl(t, "-n", "vmlet", "get", "pods", "-l", "app.kubernetes.io/name=vmlet-agent", "-o",
		`jsonpath={range .items[?(@.status.phase=="Running")]}{.metadata.deletionTimestamp}{.metadata.name} {end}`)
	if len(strings.Fields(names)) != 1 {
		t.Fatalf("the agent's pods are %q, want one", names)
	}
	return cluster.Pod{Namespace: "vmlet", Name: names}
}

// vmlet runs the client in the agent's pod.
func (d *deployment) vmlet(args ...string) (string, error) {
	return d.Exec(d.ctx, cluster.Pod{Namespace: "vmlet", Name: agents}, append([]string{"vmlet"}, args...)...)
}

// mustVmlet runs the client, which is to succeed.
func (d *deployment) mustVmlet(t *testing.T, args ...string) string {
	t.Helper()
	out, err := d.vmlet(args...)
	must(t, err)
	return out
}

// api is a client of the agent's, whichever it is: its socket is the node's.
func (d *deployment) api(t *testing.T) (api nodev1.NodeServiceClient, hangUp func()) {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+d.Path("/run/vmlet/vmlet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	return nodev1.NewNodeServiceClient(conn), func() { _ = conn.Close() }
}

// listed are the VMs that the agent has, by name.
func (d *deployment) listed(t *testing.T) map[string]*nodev1.VirtualMachine {
	t.Helper()
	api, hangUp := d.api(t)
	defer hangUp()
	ctx, cancel := suites.Wait(d.ctx, t, patience)
	defer cancel()
	list, err := api.ListVMs(ctx, &nodev1.ListVMsRequest{}, grpc.WaitForReady(true))
	must(t, err)
	out := make(map[string]*nodev1.VirtualMachine)
	for _, vm := range list.GetVms() {
		pod := vm.GetStatus().GetPod()
		out[pod.GetNamespace()+"/"+pod.GetName()] = vm
	}
	return out
}

// state waits until a VM is in a state.
func (d *deployment) state(t *testing.T, name string, want nodev1.State) *nodev1.VirtualMachine {
	t.Helper()
	var vm *nodev1.VirtualMachine
	d.eventually(t, func() bool {
		vm = d.listed(t)[name]
		return vm.GetStatus().GetState() == want
	}, func() string { return fmt.Sprintf("%s is %v, want %v", name, vm.GetStatus(), want) })
	return vm
}
