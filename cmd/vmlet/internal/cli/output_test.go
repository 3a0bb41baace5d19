package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
	"sigs.k8s.io/yaml"
)

// twoMachines are one that runs and one that only has a name.
func twoMachines() []*nodev1.VirtualMachine {
	web := machine("web-1", runs)
	web.Spec.Labels = map[string]string{"tier": "front", "app": "web"}
	web.Spec.Memory = &specv1.Memory{Size: "1Gi"}
	web.Status.EffectiveSpec = &specv1.VirtualMachineSpec{
		Name: "web-1", Memory: &specv1.Memory{Size: "1Gi"},
		Cpu: &specv1.CPU{Sockets: 2, Cores: 3, Threads: 2},
	}
	web.Status.Vmm = &nodev1.Vmm{Name: "qemu", Version: "7.2.0", Binary: "/usr/bin/qemu"}
	web.Status.Hypervisor = "kvm"
	web.Status.Message = "evil \x1b[2J\nmessage"
	web.Status.StartedAt = timestamppb.New(testNow().Add(-61 * time.Second))
	web.Status.Process = &nodev1.ProcessStatus{ShimPid: 10, VmmPid: 11, Uid: 2100000000}
	return []*nodev1.VirtualMachine{web, machine("db", created)}
}

func TestGoldenOutput(t *testing.T) {
	n := newFakeNode(t, twoMachines()...)
	empty := newFakeNode(t)
	n.events = []*nodev1.Event{
		{Time: timestamppb.New(testNow()), Vm: "web-1", VmId: "x", Type: "state", State: runs, Message: "kvm: it works"},
		{Time: timestamppb.New(testNow().Add(time.Millisecond)), Vm: "web-1", Type: "RESET", Data: `{"guest":true}`},
	}
	for _, test := range []struct {
		name string
		node *fakeNode
		args string
	}{
		{"list.table", n, "list"},
		{"list.wide", n, "ps -o wide"},
		{"list.json", n, "list -o json"},
		{"list.yaml", n, "list -o yaml"},
		{"list.name", n, "list -o name"},
		{"list-empty.table", empty, "list"},
		{"list-empty.json", empty, "list -o json"},
		{"list-empty.yaml", empty, "list -o yaml"},
		{"get.yaml", n, "get web-1"},
		{"get.json", n, "get web-1 -o json"},
		{"get.table", n, "get db -o table"},
		{"events.table", n, "events"},
		{"events.json", n, "events web-1 -o json"},
		{"events.yaml", n, "events -o yaml"},
		{"events.tail", n, "events --tail 1"},
		{"node.table", n, "node"},
		{"node.json", n, "node -o json"},
		{"help", n, "--help"},
		{"help-run", n, "run --help"},
		{"help-save", n, "help save"},
		{"help-resize", n, "help resize"},
		{"help-attach-disk", n, "attach disk --help"},
		{"help-attach-network", n, "attach network --help"},
		{"help-detach", n, "help detach"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := test.node.run(t, strings.Fields(test.args)...)
			if r.code != 0 || r.stderr != "" {
				t.Fatalf("code %d, stderr %q", r.code, r.stderr)
			}
			golden(t, test.name, strings.ReplaceAll(r.stdout, test.node.socket, "SOCKET"))
			switch {
			case strings.HasSuffix(test.name, ".json"):
				for _, doc := range strings.Split(strings.ReplaceAll(strings.TrimSpace(r.stdout), "}\n{", "}\x00{"), "\x00") {
					if !json.Valid([]byte(doc)) {
						t.Errorf("not JSON: %s", doc)
					}
				}
			case strings.HasSuffix(test.name, ".yaml"):
				var v any
				if err := yaml.Unmarshal([]byte(strings.ReplaceAll(r.stdout, "---\n", "")), &v); err != nil && !strings.Contains(test.name, "events") {
					t.Error(err)
				}
			}
		})
	}
}

// ProtoJSON has white space at random, by the message: many messages show that
// none of it comes through.
func TestJSONIsDeterministic(t *testing.T) {
	n := newFakeNode(t, twoMachines()...)
	r := n.run(t, "list", "-o", "json")
	var v struct {
		VMs []json.RawMessage `json:"vms"`
	}
	if err := json.Unmarshal([]byte(r.stdout), &v); err != nil || len(v.VMs) != 2 {
		t.Fatalf("%d machines, %v", len(v.VMs), err)
	}
	if strings.Contains(r.stdout, `":  `) || strings.Contains(r.stdout, "  \n") {
		t.Errorf("stray white space in %s", r.stdout)
	}
}

func TestSelectorIsPassedOn(t *testing.T) {
	n := newFakeNode(t)
	n.run(t, "list", "-l", "a=b,c!=d")
	if got := n.takeCalls(); len(got) != 1 || got[0] != `ListVMs label_selector:"a=b,c!=d"` {
		t.Errorf("calls %q", got)
	}
}

func TestVersion(t *testing.T) {
	n := newFakeNode(t)
	r := n.run(t, "version")
	if r.code != 0 || !strings.Contains(r.stdout, "Client:  v0.0.0-test (go") || !strings.Contains(r.stdout, "Agent:   v0.1.0 (node node-1)") {
		t.Errorf("%+v", r)
	}
	r = n.run(t, "version", "--socket", "/nonexistent/s", "-o", "json")
	var v versions
	if err := json.Unmarshal([]byte(r.stdout), &v); r.code != 0 || err != nil || v.Agent != nil || v.Client.Version != "v0.0.0-test" {
		t.Errorf("%+v: %v", r, err)
	}
}
