package qemu

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu/wire"
)

// VarsName is the file in a VM's state folder that keeps its UEFI variables.
const VarsName = "uefi-vars.fd"

// RAM is the id of the memory backend, and so the name of the RAM block, of a guest
// without NUMA nodes. With them each node with memory has its own; see ramID.
const RAM = "ram0"

// Plan turns a complete specification into a command line. What is wrong with
// the specification, or what this QEMU can't do, are spec.FieldErrors.
func (q QEMU) Plan(req vmm.PlanRequest) (*plan.Plan, error) {
	if err := spec.Validate(req.Spec).Err(); err != nil {
		return nil, err
	}
	b, err := newBuilder(req)
	if err != nil {
		return nil, err
	}
	b.faults = q.Validate(req.Spec, b.details.Arch)
	return b.plan()
}

func newBuilder(req vmm.PlanRequest) (*builder, error) {
	details, ok := req.Info.Details.(*Details)
	if !ok {
		return nil, fmt.Errorf("planning a VM for QEMU: the information on %s is of type %T, not QEMU's", req.Info.Binary, req.Info.Details)
	}
	b := &builder{req: req, spec: req.Spec, details: details}
	if b.chooseMachine() {
		b.chooseAccelerator()
	}
	return b, b.faults.Err()
}

func (b *builder) plan() (*plan.Plan, error) {
	memory, err := b.memoryPlan()
	if err != nil {
		return nil, err
	}
	b.process()
	b.system()
	b.monitors()
	b.machineArgs()
	b.cpuArgs()
	b.memoryArgs(memory)
	b.bootArgs()
	b.ports()
	b.controllers()
	b.standardDevices()
	b.disks()
	b.networks()
	b.hostDevices()
	b.graphics()
	start := b.startInstructions()
	if b.req.Paused || b.req.Image != nil || start != nil {
		// The shim lets it go on when memory is there, and what the command line can't say is done.
		b.arg("-S")
	}
	if b.req.Image != nil {
		b.arg("-incoming", "defer")
	}
	if err := b.faults.Err(); err != nil {
		return nil, err
	}
	return &plan.Plan{
		Name:    b.spec.GetName(),
		ID:      b.req.ID,
		VMM:     wire.Name,
		Program: b.req.Info.Binary,
		Args:    slices.Clip(b.args),
		Env:     b.env,
		User:    b.req.User,
		Files:   b.files,
		Memory:  memory,
		Restore: b.req.Image.Restore(),
		Paused:  b.req.Paused,

		Instructions: start,
		Dedicated:    vmm.Dedicated(b.spec.GetCpu()),
	}, nil
}

// startInstructions are what the driver tells QEMU before the guest runs; nil: nothing.
func (b *builder) startInstructions() json.RawMessage {
	if b.first == nil {
		return nil
	}
	return encoded(wire.Start{Commands: b.first})
}

// process is what concerns QEMU as a process.
func (b *builder) process() {
	b.arg("-no-user-config", "-nodefaults", "-display", "none", "-vga", "none")
	b.arg("-name", keyValues("", "guest", b.spec.GetName(), "debug-threads", "on"))
	b.arg("-uuid", cmp.Or(b.spec.GetSystem().GetUuid(), b.req.ID))
	b.arg("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny")
	b.realTimeClock()
	if b.spec.GetOnReboot() == spec.RebootEnd {
		b.arg("-action", "reboot=shutdown")
	}
}

// monitors are listening sockets, bound before QEMU starts: there is no moment
// at which connecting fails.
func (b *builder) monitors() {
	for _, m := range []struct{ id, socket string }{{"monitor-agent", wire.AgentMonitor}, {"monitor-shim", wire.ShimMonitor}} {
		b.listener(m.id, m.socket)
		b.arg("-mon", keyValues("", "chardev", m.id, "mode", "control"))
	}
}

func (b *builder) listener(id, socket string) {
	fd := b.file(plan.File{Kind: plan.FileListen, Path: socket})
	b.arg("-chardev", keyValues("socket", "id", id, "fd", fd, "server", "on", "wait", "off"))
}
