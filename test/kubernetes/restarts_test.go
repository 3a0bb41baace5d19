package kubernetes_test

import (
	"errors"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/cluster"
	"io"
	"strings"
	"testing"
)

// testRestarts: agents, the kubelet and the API server come and go, and a VM goes
// on.
func (d *deployment) testRestarts(t *testing.T) {
	p := d.guestPod("lasting", "plain.yaml")
	d.createVMs(t, p)
	d.counted(t, p, 3)
	vm := d.state(t, p.vm(), running)
	same := func(what string) {
		t.Helper()
		d.goesOn(t, p, running)
		now := d.state(t, p.vm(), running)
		if now.GetId() != vm.GetId() || now.GetStatus().GetProcess().GetVmmPid() != vm.GetStatus().GetProcess().GetVmmPid() {
			t.Errorf("%s: the VM was %v and is %v", what, vm.GetStatus().GetProcess(), now.GetStatus().GetProcess())
		}
	}
	d.killAgent(t)
	must(t, d.RolledOut(d.ctx, "vmlet", agents))
	same("after the agent was killed")
	if m := d.listed(t)[p.vm()].GetStatus().GetMessage(); !strings.Contains(m, "adopted by a new agent") {
		t.Errorf("the VM's message is %q, want that it was adopted", m)
	}
	d.mustVmlet(t, "save", "--keep-running", p.vm(), "/saved/adopted")
	same("after a save by an agent that has adopted it")

	d.configure(t, "devicePlugins: {counts: {kvm: 40, tun: 7}}\n")
	d.allocatable(t, "devices.kubevirt.io/tun", 7, 7)
	same("after the agents were rolled")

	must(t, d.RestartKubelet(d.ctx))
	d.allocatable(t, "devices.kubevirt.io/tun", 7, 7)
	same("after the kubelet was restarted")

	d.withoutAPIServer(t, p)
	same("after the API server was away")
	d.mustVmlet(t, "save", p.vm(), "/saved/lasting")
	if e := d.ended(t, p); e.phase != "Succeeded" || e.code != 0 {
		t.Errorf("after the save the pod is %+v", e)
	}
	until := d.gapless(t, p)
	next := d.restorePod("lasting-2", "/saved/lasting")
	d.createVMs(t, next)
	d.restored(t, next, until, until)
	d.deleteVMs(t, p, next)
}

// killAgent kills the agent's process, and waits until it has another.
func (d *deployment) killAgent(t *testing.T) {
	t.Helper()
	before := d.agentProcess()
	_, err := d.InNode(d.ctx, "kill", "-KILL", before)
	must(t, err)
	d.eventually(t, func() bool { now := d.agentProcess(); return now != "" && now != before },
		func() string { return "the agent is not started again" })
}

// agentProcess is its number on the node; empty: there is none.
func (d *deployment) agentProcess() string {
	out, err := d.InNode(d.ctx, "pgrep", "--full", `^([^ ]*/)?vmlet-agent --config `)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(out)
}

// withoutAPIServer: without it the VM is listed, paused and saved as ever, by the
// agent's socket on the node, and an agent that is started then finds it as soon as
// the API server says whose pod it is.
func (d *deployment) withoutAPIServer(t *testing.T, p vmPod) {
	t.Helper()
	api, hangUp := d.api(t)
	defer hangUp()
	must(t, d.StopComponent(cluster.APIServer))
	d.state(t, p.vm(), running)
	_, err := api.PauseVM(d.ctx, &nodev1.PauseVMRequest{Name: p.vm()})
	must(t, err)
	d.state(t, p.vm(), paused)
	_, err = api.ResumeVM(d.ctx, &nodev1.ResumeVMRequest{Name: p.vm()})
	must(t, err)
	saving, err := api.SaveVM(d.ctx, &nodev1.SaveVMRequest{Name: p.vm(), Directory: "/saved/alone", KeepRunning: true})
	must(t, err)
	for err == nil {
		_, err = saving.Recv()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("a save without an API server: %v", err)
	}
	d.state(t, p.vm(), running)
	d.killAgent(t)
	must(t, d.StartComponent(d.ctx, cluster.APIServer))
	d.state(t, p.vm(), running)
	// The kubelet says by then that the container is another.
	d.eventually(t, func() bool {
		_, err := d.vmlet("version")
		return err == nil
	}, func() string { return "the agent can't be asked" })
}
