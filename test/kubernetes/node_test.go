package kubernetes_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vmlet/vmlet/deviceplugin"
	"github.com/vmlet/vmlet/deviceplugin/kind"
	"github.com/vmlet/vmlet/hypervisor/standard"
	"github.com/vmlet/vmlet/sysfs/sysfstest"
	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/kubernetes/report"
	"github.com/vmlet/vmlet/test/suites"
)

// patience bounds every wait, see suites.Patience; nothing takes as long unless it is broken.
const patience = 4 * time.Minute

const tryImage = "vmlet.test/try:1"

type object = map[string]any

// node is a cluster's, on a made-up machine, and vmlet's device plugins for it.
type node struct {
	*cluster.Cluster
	machine *machine
	plugins *deviceplugin.Manager
	ctx     context.Context
}

// TestNode has one cluster for all, as a cluster takes longer than most of it.
func TestNode(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a cluster")
	}
	if err := cluster.Unfit(); err != nil {
		t.Skip(err)
	}
	t.Parallel()
	n := startNode(t)
	t.Run("KVM", n.testKVM)
	t.Run("restarts", n.testRestarts)
	t.Run("taken away", n.testTakenAway)
	atOnce(t, map[string]func(*testing.T){"single NUMA node": n.testSingleNode, "tools": n.testTools})
	t.Run("restricted to NUMA nodes", n.testRestricted)
	t.Run("API server away", n.testAPIServerAway)
}

// TestMain has one test more at once than there are processors, as some of it is waiting:
// most tests have a guest that keeps a processor busy.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(runtime.GOMAXPROCS(0)+1)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(suites.StartsVMs(m))
}

// atOnce runs tests that don't mind each other, and returns when all have ended.
func atOnce(t *testing.T, tests map[string]func(*testing.T)) bool {
	return t.Run("at once", func(t *testing.T) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t)
			})
		}
	})
}

// kubelet's configuration. Of CPUs the pods have those of the second NUMA node to
// themselves, so that each of them has a place.
func (m *machine) kubelet(topologyPolicy string) map[string]any {
	return map[string]any{
		"topologyManagerPolicy": topologyPolicy, "cpuManagerPolicy": "static", "memoryManagerPolicy": "None",
		"reservedSystemCPUs": sysfstest.List(m.cpus[0]),
		"logging":            object{"verbosity": 4}, // it says what it asks device plugins
	}
}

func startNode(t *testing.T) *node {
	t.Helper()
	ctx := t.Context()
	n := &node{machine: newMachine(t), ctx: ctx}
	program, image := filepath.Join(t.TempDir(), "try"), filepath.Join(t.TempDir(), "try.tar")
	must(t, cluster.BuildProgram(ctx, program, "github.com/vmlet/vmlet/test/kubernetes/try"))
	must(t, cluster.ProgramImage(image, tryImage, program))
	c, err := cluster.Start(ctx, cluster.Options{
		Images: []string{image}, Kubelet: n.machine.kubelet("single-numa-node"), Logf: t.Logf,
		Binds: []cluster.Bind{
			{From: n.machine.Dev, To: "/dev"},
			{From: n.machine.Path("sys/devices/system/cpu"), To: "/sys/devices/system/cpu"},
			{From: n.machine.Path("sys/devices/system/node"), To: "/sys/devices/system/node"},
		},
	})
	must(t, err)
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	n.Cluster = c
	n.offer(t)
	return n
}

// offer has vmlet's device plugins run until the test ends, as an agent has them
// on a machine like this.
func (n *node) offer(t *testing.T) {
	t.Helper()
	roots := n.machine.roots
	config := kind.Config{
		Hypervisors: standard.Registry().All(), Roots: roots, Permitted: permitted(), Counts: map[string]int{"kvm": 10},
	}
	plugins, err := deviceplugin.NewManager(deviceplugin.Config{
		Folder: filepath.Join(n.KubeletDir(), "device-plugins"), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}, config.Kinds())
	must(t, err)
	n.plugins = plugins
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { plugins.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
}

// status of a resource's plugin.
func (n *node) status(t *testing.T, resource string) deviceplugin.Status {
	t.Helper()
	for _, s := range n.plugins.Status() {
		if s.Resource == resource {
			return s
		}
	}
	t.Fatalf("%s is not offered", resource)
	return deviceplugin.Status{}
}

// allocatable waits until the node has so many devices of a resource, and so many
// that can be used.
func (n *node) allocatable(t *testing.T, name string, capacity, allocatable int) {
	t.Helper()
	path := strings.NewReplacer(".", `\.`).Replace(name)
	want, got := [2]int{capacity, allocatable}, [2]int{}
	n.eventually(t, func() bool {
		got = [2]int{}
		out := n.kubectl(t, "get", "node", cluster.NodeName, "-o", fmt.Sprintf("jsonpath={.status.capacity.%s} {.status.allocatable.%[1]s}", path))
		for i, word := range strings.Fields(out) {
			q, err := resource.ParseQuantity(word) // 1000 is 1k
			must(t, err)
			got[i] = int(q.Value())
		}
		return got == want
	}, func() string { return fmt.Sprintf("%s: capacity and allocatable are %d, want %d", name, got, want) })
}

// eventually waits until something is so; complaint says what is instead.
func (n *node) eventually(t *testing.T, so func() bool, complaint func() string) {
	t.Helper()
	ctx, cancel := suites.Wait(n.ctx, t, patience)
	defer cancel()
	for wait := 50 * time.Millisecond; !so(); wait = min(wait*3/2, time.Second) { // most of what is asked starts a program
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", complaint(), context.Cause(ctx))
		case <-n.Broken().Done():
			t.Fatal(context.Cause(n.Broken()))
		case <-time.After(wait):
		}
	}
}

func (n *node) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := n.Kubectl(n.ctx, args...)
	must(t, err)
	return strings.TrimSpace(out)
}

// pod is one whose container says what it can do.
type pod struct {
	name string
	// limits, which are the requests, too.
	limits map[string]string
	// security context of the container's user.
	security object
}

// create makes pods and waits for none.
func (n *node) create(t *testing.T, pods ...pod) {
	t.Helper()
	items := make([]object, 0, len(pods))
	for _, p := range pods {
		items = append(items, object{
			"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": p.name},
			"spec": object{
				"restartPolicy": "Never", "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 2,
				"securityContext": p.security,
				"containers": []object{{
					"name": "try", "image": tryImage, "args": []string{"stay"}, "resources": object{"limits": p.limits},
				}},
			},
		})
	}
	text, err := json.Marshal(object{"apiVersion": "v1", "kind": "List", "items": items})
	must(t, err)
	must(t, n.Apply(n.ctx, string(text)))
}

// run makes pods and waits until all are ready, or one of them has failed.
func (n *node) run(t *testing.T, pods ...pod) {
	t.Helper()
	n.create(t, pods...)
	for _, p := range pods {
		if outcome := n.outcome(t, p.name); outcome != "" {
			t.Fatalf("the pod %s: %s", p.name, outcome)
		}
	}
}

// outcome waits until a pod is ready (""), or has failed and says why.
func (n *node) outcome(t *testing.T, name string) string {
	t.Helper()
	var phase, ready, reason, message string
	n.eventually(t, func() bool {
		out := n.kubectl(t, "get", "pod", name, "-o", `jsonpath={.status.phase}|{.status.conditions[?(@.type=="Ready")].status}|{.status.reason}|{.status.message}`)
		parts := strings.SplitN(out, "|", 4)
		phase, ready, reason, message = parts[0], parts[1], parts[2], parts[3]
		return phase == "Failed" || ready == "True"
	}, func() string { return fmt.Sprintf("the pod %s is %s: %s %s", name, phase, reason, message) })
	if phase == "Failed" {
		return reason + ": " + message
	}
	return ""
}

// remove has pods end, and waits for none: who needs what they have waits for that.
func (n *node) remove(t *testing.T, pods ...pod) {
	t.Helper()
	args := []string{"delete", "pod", "--wait=false"}
	for _, p := range pods {
		args = append(args, p.name)
	}
	n.kubectl(t, args...)
}

// report is what a pod's container says.
func (n *node) report(t *testing.T, p pod) report.Report {
	t.Helper()
	out, err := n.Exec(n.ctx, cluster.Pod{Namespace: "default", Name: p.name}, "/try")
	must(t, err)
	var r report.Report
	must(t, json.Unmarshal([]byte(out), &r))
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
