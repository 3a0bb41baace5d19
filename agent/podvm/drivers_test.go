package podvm

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"testing"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/driverkit"
)

// strange is a VMM that no agent has heard of.
type strange struct{ *vmtest.VMM }

func (strange) Name() string { return "strange" }
func (strange) Info(context.Context) (vmm.Info, error) {
	return vmm.Info{Name: "strange", Version: "9", Binary: "/bin/strange"}, nil
}

func (strange) Validate(s *specv1.VirtualMachineSpec, _ string) (faults spec.FieldErrors) {
	if s.GetDevices().GetTpm() != nil {
		faults.Add("devices.tpm", "a strange VMM has none")
	}
	return faults
}

func (v strange) Plan(r vmm.PlanRequest) (*plan.Plan, error) {
	size, err := spec.ParseQuantity(r.Spec.GetMemory().GetSize())
	return &plan.Plan{Program: "/bin/strange", Memory: plan.Memory{Size: size, Path: r.MemoryPath}}, errors.Join(err, v.Validate(r.Spec, "").Err())
}

func (v strange) Manifest(r vmm.PlanRequest) (memory.Manifest, error) {
	size, err := spec.ParseQuantity(r.Spec.GetMemory().GetSize())
	return memory.Manifest{Layout: memory.LayoutStream, MemorySize: size}, err
}

func (strange) Connect(context.Context, vmm.Dialer) (vmm.Monitor, error) {
	return quiet{events: make(chan vmm.Event)}, nil
}

// quiet is the monitor of a guest that runs on.
type quiet struct {
	vmm.Monitor
	events chan vmm.Event
}

func (quiet) Status(context.Context) (vmm.Status, error) { return vmm.Status{Running: true}, nil }
func (q quiet) Events() <-chan vmm.Event                 { return q.events }
func (quiet) Close() error                               { return nil }

// TestPodWithADriver: a VMM that the agent has never heard of is planned by the driver in the pod's image,
// which the shim starts there. What it can't do is refused by the field, and what is wrong with the driver
// ends its pod alone.
func TestPodWithADriver(t *testing.T) {
	serve := func(name string, conn net.Conn) error {
		go func() {
			_ = driverkit.Serve(context.Background(), conn.(*net.UnixConn), driverkit.Stack{Version: name, VMM: strange{&vmtest.VMM{}}})
		}()
		return nil
	}
	for _, test := range []struct {
		name    string
		drivers []string
		spec    string
		connect func(name string, conn net.Conn) error
		refused string // empty: it is launched
	}{
		{"named", []string{"strange"}, "vmm: strange\n", serve, ""},
		{"the only one", []string{"strange"}, "", serve, ""},
		{"not in the image", nil, "vmm: strange\n", serve, "strange"},
		{"what it can't do", []string{"strange"}, "vmm: strange\ndevices: {tpm: {}}\n", serve, "devices.tpm"},
		{"another by its own words", []string{"other"}, "vmm: other\n", serve, `says that it is for "strange"`},
		{"that can't be started", []string{"strange"}, "vmm: strange\n", func(string, net.Conn) error { return errors.New("no such program") }, "no such program"},
		{"that ends", []string{"strange"}, "vmm: strange\n", func(_ string, conn net.Conn) error { return conn.Close() }, "strange's driver"},
		{"a name that is none", []string{"../qemu"}, "vmm: qemu\n", serve, "can't be a VMM's name"},
		{"too many", make([]string, maxDrivers+1), "", serve, "17 drivers"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			a, n := w.start(), newFakeNode(w)
			n.servePod(t, a)
			proc := n.container(func(p *vmtest.Pod) {
				p.Described.VMMs, p.Described.Drivers, p.Driver = json.RawMessage(`[]`), test.drivers, test.connect
				p.Described.Specification = []byte(podSpec + test.spec)
			})
			if test.refused != "" {
				wantText(t, n.refusal(t, proc), test.refused)
				return
			}
			vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
			proc.Mu.Lock()
			defer proc.Mu.Unlock()
			p := proc.Pod.Launched.Plan
			if p.Driver == nil || p.Driver.Program != "/usr/libexec/vmlet/drivers/strange" {
				t.Errorf("the plan's driver is %+v", p.Driver)
			}
			if p.VMM != "strange" || p.Program != "/bin/strange" {
				t.Errorf("the plan is for VMM %s, program %s", p.VMM, p.Program)
			}
		})
	}
}
