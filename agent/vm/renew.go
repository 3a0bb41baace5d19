package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/memory"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/grpc/codes"
)

// renewedPatience is how long a new VMM may take to answer the agent: until then the VM's operations would fail.
const renewedPatience = 5 * time.Second

// Renewer replaces the VMMs of VMs that run.
type Renewer struct {
	vms      *Registry
	platform *Platform
}

// Renew has a new process of the VM's VMM, of the program as it is installed by now, take the place of the one that runs.
// After an error the guest goes on where it was, unless the VM has ended.
func (a *Renewer) Renew(ctx context.Context, name string, progress func(shim.Progress)) (*nodev1.VirtualMachine, *nodev1.RenewResult, error) {
	m, err := a.vms.Get(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	_, done, err := m.begin(ctx, lifecycle.Renew)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	l := m.running()
	if l == nil {
		return nil, nil, endedMeanwhile(m)
	}
	r := &renewing{Renewer: a, m: m, l: l}
	result, err := r.run(ctx, progress)
	if err != nil {
		return nil, nil, contract.Errorf("renewing the VMM of %s: %w", contract.ThisVM(m.name), err)
	}
	return m.Snapshot(), result, nil
}

// renewing is one renewal under way.
type renewing struct {
	*Renewer
	m *VM
	l *live

	request vmm.PlanRequest
	lease   place.Lease // as it is afterwards
	files   []*os.File
}

func (r *renewing) run(ctx context.Context, progress func(shim.Progress)) (*nodev1.RenewResult, error) {
	defer func() {
		for _, f := range r.files {
			f.Close()
		}
	}()
	ask, err := r.plan(ctx)
	if err != nil {
		return nil, err
	}
	faultpoint.Reach("agent.renew.planned")
	r.l.renewing.Store(true)
	defer r.l.renewing.Store(false)
	renewed, err := r.l.shim.Renew(ctx, ask, r.files, progress)
	if err != nil {
		return nil, err
	}
	faultpoint.Reach("agent.renew.renewed")
	result := &nodev1.RenewResult{
		StoppedUs: renewed.Stopped.Microseconds(), VersionBefore: r.l.lease.Manifest.VMM.Version, Version: r.lease.Manifest.VMM.Version, Warning: renewed.Warning,
	}
	r.settle(renewed)
	r.awaitMonitor(ctx)
	return result, nil
}

// plan plans the VM as if it were restored: the same machine, with the devices that it has by now.
func (r *renewing) plan(ctx context.Context) (ask shim.Renew, err error) {
	if r.l.vmm == nil {
		return ask, fault.Errorf(codes.FailedPrecondition, "its VMM is not known to this agent")
	}
	manifest, err := (&saving{m: r.m, l: r.l}).manifest()
	if err != nil {
		return ask, err
	}
	i, err := ImageOf(&manifest, "the run's manifest")
	if err != nil {
		return ask, err
	}
	v, err := r.m.place.VMM(manifest.VMM.Name)
	if err != nil {
		return ask, err
	}
	if err := vmm.Renewable(v, i.Spec).Err(); err != nil {
		return ask, fault.Errorf(codes.FailedPrecondition, "it can't be handed over: %w", err)
	}
	if err := v.CheckImage(ctx, &manifest); err != nil {
		return ask, fault.Errorf(codes.FailedPrecondition, "the program that is installed can't go on with the guest: %w", err)
	}
	if err := r.describe(ctx, v, i, &manifest); err != nil {
		return ask, err
	}
	p, err := v.Plan(r.request)
	if err != nil {
		return ask, err
	}
	p.Restore = nil // there is no image
	if r.lease.Manifest, err = r.manifest(v, i); err != nil {
		return ask, err
	}
	kept, err := json.Marshal(&r.lease)
	if err == nil && r.m.container != nil && len(kept) > shim.MaxPodKeep { // the next agent would not read it
		err = fault.Errorf(codes.FailedPrecondition, "the pod's shim would have to keep %d bytes of it and keeps %d: start the VM again", len(kept), shim.MaxPodKeep)
	}
	return shim.Renew{Plan: p, Keep: kept}, err
}

// describe fills in what the plan depends on.
func (r *renewing) describe(ctx context.Context, v vmm.VMM, i *Image, manifest *memory.Manifest) error {
	info, err := v.Info(ctx)
	if err != nil {
		return fault.Errorf(codes.FailedPrecondition, "VMM %s: %w", v.Name(), err)
	}
	c := &chooser{wanted{m: r.m, spec: i.Spec, image: &vmm.Image{Manifest: manifest, AllowChangedDisks: true}}, r.platform, r.vms}
	h := c.pairable().Candidate(ctx, v.Name(), info.Capabilities, nil).Hypervisor
	if h == nil {
		return fault.Errorf(codes.FailedPrecondition, "it can't run under %s here any more", i.Spec.GetHypervisor())
	}
	r.lease = *r.l.lease
	r.request = c.request(ctx, i.ID, v, info, h)
	if err := r.m.place.Describe(&r.lease, &r.request); err != nil {
		r.m.log.Debug("what its place would not give a VM that is started, it has", "error", err)
	}
	r.request.Taps, r.request.Seed = kept(r.request.Spec), 0
	r.request.VhostNet = nil
	if opener, can := r.m.place.(place.VhostOpener); can {
		r.request.VhostNet, r.files, err = opener.OpenVhost(r.request.Spec)
	}
	return err
}

// kept are numbers of taps that the shim does not go by: it has those of the VM.
func kept(s *specv1.VirtualMachineSpec) []int {
	numbers := make([]int, len(s.GetNetworks()))
	for i, n := range s.GetNetworks() {
		if n.GetTap() == nil && n.GetPod() == nil {
			numbers[i] = -1
		}
	}
	return numbers
}

// manifest is that of an image that is saved from now on.
func (r *renewing) manifest(v vmm.VMM, i *Image) (memory.Manifest, error) {
	m, err := v.Manifest(r.request)
	if err != nil {
		return m, err
	}
	c := &choice{Choice: place.Choice{ID: i.ID, Spec: r.request.Spec}}
	return m, describeImage(&m, c)
}

// settle notes which VMM has the guest.
func (r *renewing) settle(renewed *shim.Renewed) {
	m, info := r.m, r.request.Info
	r.l.lease.Manifest = r.lease.Manifest // read by operations alone, one at a time
	if m.container == nil {
		if err := r.l.lease.Write(m.place.RunDir()); err != nil {
			m.log.Error("failed to note which VMM the VM has", "error", err)
		}
	}
	faultpoint.Reach("agent.renew.noted")
	_, pid := m.pids(0, renewed.VMMPID)
	message := fmt.Sprintf("its VMM was renewed: %s %s", info.Name, info.Version)
	err := m.Change(func(vm *nodev1.VirtualMachine) {
		vm.Status.Vmm = &nodev1.Vmm{Name: info.Name, Version: info.Version, Binary: info.Binary, LazyRestore: info.LazyRestore}
		if vm.Status.Process != nil {
			vm.Status.Process.VmmPid = pid
		}
	})
	if err == nil {
		err = m.persist()
	}
	if err != nil {
		m.log.Error("failed to write the VM's record", "error", err)
	}
	m.log.Info("VMM renewed", "version", info.Version, "pid", pid, "stopped", renewed.Stopped, "warning", renewed.Warning)
	m.Publish(&nodev1.Event{Type: "renewed", Message: message})
}

// awaitMonitor returns when the watch has connected to the new VMM.
func (r *renewing) awaitMonitor(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, renewedPatience)
	defer cancel()
	for {
		monitor, err := r.l.connected()
		if err == nil {
			_, err = monitor.Status(ctx)
		}
		if err == nil {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-r.l.over:
			return
		case <-ctx.Done():
			r.m.log.Warn("the new VMM's monitor does not answer yet", "error", err)
			return
		}
	}
}

// renewed brings a lease up to what an agent before this one has had the shim keep of the last renewal, and could not note.
func (ad *adoption) renewed(w shim.Welcome) error {
	if ad.m.container != nil || len(w.Keep) == 0 {
		return nil // of a pod it was read from there
	}
	var said place.Lease
	err := json.Unmarshal(w.Keep, &said)
	if err == nil && said.RunID != ad.lease.RunID {
		err = errors.New("it is of another run")
	}
	if err == nil {
		_, err = spec.Parse(said.Manifest.Specification, place.LeaseName)
	}
	if err != nil {
		return fmt.Errorf("what the shim keeps of the last renewal: %w", err)
	}
	ad.lease.Manifest = said.Manifest
	return ad.lease.Write(ad.m.place.RunDir())
}
