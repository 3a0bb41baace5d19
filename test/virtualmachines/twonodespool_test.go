package virtualmachines_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
	"github.com/vmlet/vmlet/test/cluster"
)

// crowd is the pool that TestTwoNodes has: its VMs are spread over the nodes, and their memory can be on either.
const crowd = "crowd"

// testPoolSpread: VMs of a pool are spread over the nodes as their template says; a scale-in takes the one on the
// node that the policy names, and it goes on on the other; the next one is made where there are fewest.
func (w *twoNodes) testPoolSpread(t *testing.T) {
	p := &poolv1.VirtualMachinePool{}
	p.Namespace, p.Name = guests, crowd
	must(t, yaml.UnmarshalStrict(fmt.Appendf(nil, `
replicas: 2
maxUnavailable: 1
autohealing: {}
scaleInStrategy:
  proactive:
    statePreservation: Online
    selectionPolicy: {orderedPolicies: [{nodeSelector: {matchLabels: {kubernetes.io/hostname: %s}}}]}
virtualMachineTemplate:
  spec:
    runStrategy: Always
    hibernateStrategy: {mode: Save, storageClassName: loop}
    template:
      metadata: {labels: {app: %[2]s}}
      spec:
        terminationGracePeriodSeconds: 0
        topologySpreadConstraints:
        - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, nodeTaintsPolicy: Honor, labelSelector: {matchLabels: {app: %[2]s}}}
        domain:
          memory: {guest: 128Mi}
          resources: {requests: {cpu: 10m}}
          devices: {}
          firmware:
            kernelBoot:
              kernelArgs: console=ttyS0 quiet no_timer_check
              container: {image: %[3]q, kernelPath: /boot/vmlinuz, initrdPath: /boot/initrd}
`, w.second.Name(), crowd, linuxImage), &p.Spec))
	w.create(t, p)
	w.available(t, crowd, 2)
	at := w.spread(t, w.Node, w.second)
	sleeps := at[w.second.Name()]
	boot := w.fill(t, sleeps)
	w.scaleCrowd(t, 1)
	w.asleep(t, w.printed(t, sleeps, kubevirtv1.StatusHibernated))
	must(t, w.second.Cordon(w.ctx))
	w.scaleCrowd(t, 2)
	pod := w.podOf(t, w.on(t, sleeps, w.Node))
	w.askAgain(t, pod, "cat /proc/sys/kernel/random/boot_id", boot)
	w.askAgain(t, pod, "verify", "verified ")
	must(t, w.second.Uncordon(w.ctx))
	w.scaleCrowd(t, 3)
	w.spread(t, w.Node, w.Node, w.second)
}

// spread wants the pool's VMs on just these nodes, and returns one on each.
func (w *twoNodes) spread(t *testing.T, nodes ...*cluster.Node) map[string]string {
	t.Helper()
	var got, want []string
	at := make(map[string]string)
	for name := range w.members(t, crowd) {
		node := w.vmi(t, name).Status.NodeName
		got, at[node] = append(got, node), name
	}
	for _, n := range nodes {
		want = append(want, n.Name())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("the pool's VMs are on %v, want them on %v", got, want)
	}
	return at
}

func (w *twoNodes) scaleCrowd(t *testing.T, n int32) {
	t.Helper()
	w.kubectl(t, "scale", "vmpool/"+crowd, "-n", guests, fmt.Sprintf("--replicas=%d", n))
	w.available(t, crowd, n)
}

// fill has a guest without disks write to its memory, and returns its boot id.
func (w *twoNodes) fill(t *testing.T, name string) string {
	t.Helper()
	pod := w.podOf(t, w.phase(t, name, kubevirtv1.PhaseRunning))
	w.ask(t, pod, "mem 32 7", "filled 32 MiB")
	before, _, _ := strings.Cut(w.ask(t, pod, "cat /proc/sys/kernel/random/boot_id", "cat 37 bytes"), "cat 37 bytes")
	lines := strings.Fields(before)
	return lines[len(lines)-1]
}

// crowdInstances are the UIDs of the instances of the pool's VMs.
func (w *twoNodes) crowdInstances(t *testing.T) map[string]types.UID {
	t.Helper()
	of := make(map[string]types.UID)
	for name := range w.members(t, crowd) {
		of[name] = w.vmi(t, name).UID
	}
	return of
}

// poolOnDeadNode: the pool knows that one VM serves no more, and neither replaces it nor makes another while nobody
// has said that it has ended.
func (w *twoNodes) poolOnDeadNode(t *testing.T, before map[string]types.UID) {
	t.Helper()
	p := &poolv1.VirtualMachinePool{}
	w.eventually(t, func() bool {
		must(t, w.api.Get(w.ctx, types.NamespacedName{Namespace: guests, Name: crowd}, p))
		return p.Status.ReadyReplicas == 2
	}, func() string { return "of a pool with a VM on a dead node it is said: " + text(p) })
	if now := w.crowdInstances(t); !maps.Equal(now, before) {
		t.Errorf("the pool's instances were %v, and are %v with a dead node", before, now)
	}
}

// poolAfterDeadNode: the VM of the dead node runs on the other one, and the others as before.
func (w *twoNodes) poolAfterDeadNode(t *testing.T, before map[string]types.UID) {
	t.Helper()
	w.available(t, crowd, 3)
	w.spread(t, w.Node, w.Node, w.Node)
	replaced := 0
	for name, uid := range w.crowdInstances(t) {
		if was, is := before[name]; !is {
			t.Errorf("the pool has made VM %s in the place of one on a dead node", name)
		} else if was != uid {
			replaced++
		}
	}
	if replaced != 1 {
		t.Errorf("%d of the pool's VMs were started again, want the one of the dead node", replaced)
	}
}
