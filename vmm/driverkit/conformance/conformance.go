// Package conformance tries a driver as vmlet would use it, for its author: the program
// vmlet-driver-conformance and the tests of drivers call Run. It needs neither an agent nor a
// shim, and no rights; with a kernel it also runs a VM, and saves and restores it.
package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"time"

	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/remote"
	"github.com/vmlet/vmlet/vmm/remote/process"
	"github.com/vmlet/vmlet/vmm/remote/wire"
)

// Options say what is tried.
type Options struct {
	// Driver is the program.
	Driver plan.Driver
	// Kernel of a guest that prints on its console for as long as it runs; empty: no VM is
	// run. Hypervisor is the one that it runs under, Accelerator the VMM's name for it.
	Kernel, Hypervisor, Accelerator string
	Log                             *slog.Logger
}

// Check is one rule, and whether the driver keeps it.
type Check struct {
	Name string
	Err  error
}

// answerTime bounds what a driver may take to start and to say what it is.
const answerTime = time.Minute

// Run tries all, and reports each check as it is done. It returns how many failed. What can't
// be tried, as an earlier check failed that it stands on, counts as failed.
func Run(ctx context.Context, o Options, report func(Check)) (failed int) {
	t := &trial{o: o, report: func(c Check) {
		if c.Err != nil {
			failed++
		}
		report(c)
	}}
	t.check("started by hand it says what it is, and ends", t.byHand(ctx))
	t.check("it agrees on a version of the protocol", t.negotiates(ctx))
	t.check("it refuses versions that it doesn't speak", t.refusesVersions(ctx))
	t.check("it answers nothing before versions are agreed", t.refusesEarlyCalls(ctx))
	t.check("it refuses a field of a specification that it doesn't know, by its name", t.refusesFields(ctx))
	t.check("it refuses calls that it doesn't have", t.refusesCalls(ctx))
	t.check("it ends with its connection", t.ends(ctx))
	t.check("it describes its VMM", t.describes(ctx))
	if t.vmm == nil {
		return failed
	}
	defer t.vmm.Close()
	t.check("it plans what the specification asks for, and no more", t.plans(ctx))
	if t.o.Kernel != "" && t.planned != nil {
		t.runs(ctx)
	}
	return failed
}

// trial is one run.
type trial struct {
	o       Options
	report  func(Check)
	vmm     *remote.VMM
	info    vmm.Info
	planned *plan.Plan
}

func (t *trial) check(name string, err error) { t.report(Check{name, err}) }

func (t *trial) options() process.Options {
	return process.Options{Program: t.o.Driver.Program, Args: t.o.Driver.Args, User: self(), Log: t.o.Log}
}

// self is the user that tries: an author runs his driver as himself.
func self() *plan.User {
	if os.Geteuid() != 0 {
		return nil
	}
	return &plan.User{}
}

func (t *trial) byHand(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, t.o.Driver.Program, t.o.Driver.Args...)
	out, err := cmd.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return errors.New("it waits for something")
	case err == nil:
		return errors.New("it ended with exit status 0, as if it had done something")
	case len(out) == 0:
		return errors.New("it said nothing")
	}
	return nil
}

// asked starts the driver, and calls one method of it.
func (t *trial) asked(ctx context.Context, versions []int, method string, request any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	p, err := process.Start(t.options())
	if err != nil {
		return err
	}
	defer p.Close()
	peer := wire.NewPeer(p.Conn, nil)
	defer peer.Close()
	if versions != nil {
		if _, err := peer.Call(ctx, "Negotiate", wire.NegotiateRequest{Versions: versions, Host: "vmlet-driver-conformance"}, nil); err != nil {
			return p.Explain(err)
		}
	}
	if method == "" {
		return nil
	}
	_, err = peer.Call(ctx, method, request, nil)
	return p.Explain(err)
}

func (t *trial) negotiates(ctx context.Context) error {
	return t.asked(ctx, []int{wire.Version, wire.Version + 1}, "", nil)
}

func (t *trial) refusesVersions(ctx context.Context) error {
	return refusal(t.asked(ctx, []int{1 << 20}, "", nil))
}

func (t *trial) refusesEarlyCalls(ctx context.Context) error {
	return refusal(t.asked(ctx, nil, "Describe", nil))
}

func (t *trial) refusesCalls(ctx context.Context) error {
	err := t.asked(ctx, []int{wire.Version}, "NoSuchMethod", nil)
	if err == nil || wire.CodeOf(err) != wire.CodeUnsupported {
		return fmt.Errorf("the error is %w, want one with the code %q", orNone(err), wire.CodeUnsupported)
	}
	return nil
}

func (t *trial) refusesFields(ctx context.Context) error {
	err := t.asked(ctx, []int{wire.Version}, "Plan", wire.PlanRequest{Launch: &wire.Launch{Spec: json.RawMessage(`{"name":"web-1","noSuchField":{"x":1}}`)}})
	if err == nil || wire.CodeOf(err) != wire.CodeInvalid {
		return fmt.Errorf("the error is %w, want one with the code %q", orNone(err), wire.CodeInvalid)
	}
	return nil
}

// refusal is nil where the driver refused, and stayed.
func refusal(err error) error {
	if err == nil {
		return errors.New("it took it")
	}
	if wire.CodeOf(err) == "" {
		return fmt.Errorf("it gave no answer: %w", err)
	}
	return nil
}

var errNone = errors.New("none")

func orNone(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

func (t *trial) ends(ctx context.Context) error {
	p, err := process.Start(t.options())
	if err != nil {
		return err
	}
	defer p.Close()
	p.Conn.Close()
	select {
	case <-p.Done():
		return nil
	case <-time.After(5 * time.Second):
		return errors.New("it runs 5 s after its connection has ended")
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *trial) describes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	name, err := t.name(ctx)
	if err != nil {
		return err
	}
	if _, err := vmm.NewRegistry(remote.New(remote.Config{Name: name})); err != nil {
		return err
	}
	v := remote.New(remote.Config{Name: name, Driver: t.o.Driver, Open: t.open, Log: t.o.Log})
	info, err := v.Info(ctx)
	if err != nil {
		return errors.Join(err, v.Close())
	}
	t.vmm, t.info = v, info
	switch {
	case info.Version == "":
		return errors.New("the VMM has no version: an image would be restored by any")
	case len(info.Capabilities.GetAccelerators()) == 0:
		return errors.New("capabilities.accelerators is empty: say under which hypervisors it runs")
	}
	return nil
}

// name is what the driver calls its VMM.
func (t *trial) name(ctx context.Context) (string, error) {
	p, err := process.Start(t.options())
	if err != nil {
		return "", err
	}
	defer p.Close()
	peer := wire.NewPeer(p.Conn, nil)
	defer peer.Close()
	var d wire.DescribeResponse
	if _, err := peer.Call(ctx, "Negotiate", wire.NegotiateRequest{Versions: []int{wire.Version}}, nil); err != nil {
		return "", p.Explain(err)
	}
	_, err = peer.Call(ctx, "Describe", nil, &d)
	return d.Name, p.Explain(err)
}

// request is a small VM's.
func (t *trial) request(image *vmm.Image) vmm.PlanRequest {
	kernel := t.o.Kernel
	if kernel == "" {
		kernel = "/boot/vmlinuz"
	}
	s := &specv1.VirtualMachineSpec{Name: "conformance", Vmm: t.vmm.Name(), Memory: &specv1.Memory{Size: "64Mi"}, Boot: &specv1.Boot{Kernel: &specv1.KernelBoot{Path: kernel}}}
	const id = "0d5c1a52-6a2f-4a2e-8f0f-1f6f0a6e1c01"
	hypervisor, accelerator := t.o.Hypervisor, t.o.Accelerator
	if hypervisor == "" {
		hypervisor, accelerator = "emulation", "tcg"
	}
	target := spec.Target{ID: id, Arch: runtime.GOARCH, Hypervisor: hypervisor, VMM: t.vmm.Name(), Defaults: t.vmm.Defaults(runtime.GOARCH)}
	return vmm.PlanRequest{
		ID: id, Spec: spec.Default(s, target, spec.BaseLayers()), Hypervisor: hypervisor, Accelerator: accelerator, Info: t.info,
		MemoryPath: "/run/vmlet/ram/conformance", StateDir: "/var/lib/vmlet/vms/conformance", Seed: -1, Image: image,
	}
}

func (t *trial) plans(context.Context) error {
	r := t.request(nil)
	if faults := t.vmm.Validate(r.Spec, runtime.GOARCH); len(faults) > 0 {
		return fmt.Errorf("it refuses a VM of a kernel and 64 MiB: %w", faults)
	}
	first, err := t.vmm.Plan(r)
	if err != nil {
		return err
	}
	again, err := t.vmm.Plan(r)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(first, again) {
		return errors.New("two plans of one request differ")
	}
	m, err := t.vmm.Manifest(r)
	if err != nil {
		return err
	}
	t.planned = first
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	if err := t.vmm.CheckImage(ctx, &m); err != nil {
		return fmt.Errorf("it refuses the image of a VM of its own: %w", err)
	}
	m.VMM.Version += "-another"
	if t.vmm.CheckImage(ctx, &m) == nil {
		return errors.New("it takes an image of a version that there is not")
	}
	return nil
}
