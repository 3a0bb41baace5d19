package virtualmachines_test

import (
	"fmt"
	"strings"
	"testing"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/test/cluster"
)

// filler is a pod that leaves next to no room in a claim.
const filler = `
---
apiVersion: v1
kind: Pod
metadata: {name: filler, namespace: guests}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {runAsNonRoot: true, runAsUser: 107, fsGroup: 107, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: filler
    image: ` + cluster.BusyboxImage + `
    command: [sh, -c, "busybox fallocate -l $(( $(stat -f -c '%a*%S' /v) - 16777216 )) /v/full && echo filled && sleep 1000000"]
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    volumeMounts: [{name: v, mountPath: /v}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: full}}]
`

// testUnsuitableClaims: a guest whose claim won't do goes on, its VM says why, and it is saved as
// soon as the claim will do; one whose claim has gone with its memory boots by its user's word.
func (v *installed) testUnsuitableClaims(t *testing.T) {
	w := &walk{installed: v, name: "fault-claims"}
	other := onClaims(t, "fault-other", "others")
	*other.Spec.RunStrategy = kubevirtv1.RunStrategyHalted
	v.create(t, other)
	must(t, v.Apply(v.ctx, sleeper(w.name, "", "")+
		dynamic("small", "local-path", "Filesystem", "ReadWriteOnce", "64Mi")+
		dynamic("read", "local-path", "Filesystem", "ReadOnlyMany", "4Gi")+
		dynamic("device", "loop", "Block", "ReadWriteOnce", "4Gi")+
		dynamic("others", "local-path", "Filesystem", "ReadWriteOnce", "4Gi")+
		dynamic("full", "loop", "Filesystem", "ReadWriteOnce", "2Gi")+filler))
	var log string
	var err error
	v.eventually(t, func() bool {
		log, err = v.Kubectl(v.ctx, "logs", "-n", guests, "filler")
		return strings.Contains(log, "filled")
	}, func() string { return fmt.Sprintf("the claim is not filled: %s %v", log, err) })
	vmi := v.phase(t, w.name, kubevirtv1.PhaseRunning)
	boot := v.remember(t, w.name, v.podOf(t, vmi))
	w.saveTo(t, "nowhere") // before a claim is made
	w.want(t, kubevirtv1.RunStrategyHibernate)
	for _, c := range []struct{ claim, reason, words string }{
		{"nowhere", "ClaimUnsuitable", "does not exist"},
		{"small", "ClaimUnsuitable", "has 64Mi"},
		{"read", "ClaimUnsuitable", "can only be read"},
		{"device", "ClaimUnsuitable", "volumeMode Block"},
		{"others", "ClaimUnsuitable", "used by VirtualMachine fault-other"},
		{"full", "NoSpace", "no room"},
	} {
		w.saveTo(t, c.claim)
		var vm *kubevirtv1.VirtualMachine
		v.eventually(t, func() bool {
			vm = v.vm(t, w.name)
			h := vm.Status.HibernationStatus
			return h != nil && h.Phase == kubevirtv1.HibernationFailed && h.ClaimName == c.claim && h.Reason == c.reason &&
				strings.Contains(h.Message, c.words) && vm.Status.PrintableStatus == kubevirtv1.StatusRunning
		}, func() string {
			return fmt.Sprintf("with the claim %s the VM is not said to run as of %s: %s", c.claim, c.reason, text(vm))
		})
		if now := v.vmi(t, w.name); now.UID != vmi.UID {
			t.Fatalf("with the claim %s the guest has another instance", c.claim)
		}
		if _, now := w.bootID(t); now != boot {
			t.Fatalf("with the claim %s the guest has booted", c.claim)
		}
	}
	_, err = v.Exec(v.ctx, cluster.Pod{Namespace: guests, Name: "filler"}, "rm", "/v/full")
	must(t, err)
	v.asleep(t, v.printed(t, w.name, kubevirtv1.StatusHibernated))
	v.kubectl(t, "delete", "pod", "filler", "-n", guests)
	w.want(t, kubevirtv1.RunStrategyAlways)
	v.printed(t, w.name, kubevirtv1.StatusRunning)
	pod, now := w.bootID(t)
	if now != boot {
		t.Error("the guest has booted, want it to go on")
	}
	v.askAgain(t, pod, "verify", "verified ")

	w.want(t, kubevirtv1.RunStrategyHibernate)
	v.asleep(t, v.printed(t, w.name, kubevirtv1.StatusHibernated))
	v.kubectl(t, "delete", "pvc", "full", "-n", guests, "--timeout=24h")
	w.want(t, kubevirtv1.RunStrategyAlways)
	var vm *kubevirtv1.VirtualMachine
	v.eventually(t, func() bool {
		vm = v.vm(t, w.name)
		r := vm.Status.ResumeStatus
		return r != nil && r.Phase == kubevirtv1.ResumeFailed && r.Reason == contract.RestoreImageMissing &&
			vm.Status.PrintableStatus == kubevirtv1.StatusHibernated
	}, func() string { return "a VM whose memory is gone does not say so: " + text(vm) })
	begin := kubevirtv1.StartBoot
	w.patch(t, func(vm *kubevirtv1.VirtualMachine) { vm.Spec.StartStrategy = &begin })
	v.printed(t, w.name, kubevirtv1.StatusRunning)
	if _, now := w.bootID(t); now == boot {
		t.Error("the guest goes on, and its memory was deleted")
	}
	for _, name := range []string{w.name, "fault-other"} {
		v.kubectl(t, "delete", "vm", name, "-n", guests)
		v.noMachine(t, name)
	}
}

// saveTo names the claim for the guest's memory.
func (w *walk) saveTo(t *testing.T, claim string) {
	t.Helper()
	w.patch(t, func(vm *kubevirtv1.VirtualMachine) {
		vm.Spec.HibernateStrategy = &kubevirtv1.HibernateStrategy{Mode: kubevirtv1.HibernateSave, ClaimName: claim}
	})
}
