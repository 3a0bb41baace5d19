package cloudhypervisor

import (
	"encoding/json"
	"fmt"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

// RAM is the id of the one memory zone.
const RAM = "ram0"

// Plan turns a specification, complete with its defaults, into a plan, whose
// Instructions are a wire.VM. It touches nothing. What is wrong with the
// specification, or what cloud-hypervisor can't do, are spec.FieldErrors.
func (CloudHypervisor) Plan(req vmm.PlanRequest) (*plan.Plan, error) {
	if err := spec.Validate(req.Spec).Err(); err != nil {
		return nil, err
	}
	b, err := newBuilder(req)
	if err != nil {
		return nil, err
	}
	return b.plan()
}

func newBuilder(req vmm.PlanRequest) (*builder, error) {
	details, ok := DetailsOf(req.Info)
	if !ok {
		return nil, fmt.Errorf("planning a VM for %s: the information on %s is of type %T, not %s's", wire.Name, req.Info.Binary, req.Info.Details, wire.Name)
	}
	return &builder{req: req, spec: req.Spec, details: details}, nil
}

func (b *builder) plan() (*plan.Plan, error) {
	b.refuse()
	args := b.process()
	memory := b.memory()
	b.cpus()
	b.payload()
	b.disks()
	b.networks()
	b.devices()
	b.hostDevices()
	b.refuseHardware()
	b.landlock()
	b.checkSize()
	if err := b.faults.Err(); err != nil {
		return nil, err
	}
	instructions, err := json.Marshal(&wire.VM{Config: b.config, Add: b.add, Devices: b.hosts, Folder: b.folder})
	if err != nil {
		return nil, fmt.Errorf("planning a VM for %s: %w", wire.Name, err)
	}
	return &plan.Plan{
		Name:         b.spec.GetName(),
		ID:           b.req.ID,
		VMM:          wire.Name,
		Program:      b.req.Info.Binary,
		Args:         args,
		User:         b.req.User,
		Files:        b.files,
		Memory:       memory,
		Restore:      b.req.Image.Restore(),
		Paused:       b.req.Paused,
		Terminal:     b.hasConsole(),
		Instructions: instructions,
		Dedicated:    vmm.Dedicated(b.spec.GetCpu()),
	}, nil
}

// process is what concerns the VMM as a process: all else goes over its API. It has
// no monitor of its own for the shim, since it serves any number of clients.
func (b *builder) process() []string {
	b.folder = b.own(plan.File{Kind: plan.FileFolder, Path: wire.FolderName})
	api := b.file(plan.File{Kind: plan.FileListen, Path: wire.APISocket})
	events := b.file(plan.File{Kind: plan.FileEvents})
	return []string{
		"--api-socket", fmt.Sprintf("fd=%d", api),
		"--event-monitor", fmt.Sprintf("fd=%d", events),
		"--seccomp", "true",
	}
}

// landlock fences the VMM in. What the configuration names it may open anyway; the
// rules are for what it makes in its folder, for backing files, which only their
// images name, and for what comes later.
func (b *builder) landlock() {
	if !b.details.Landlock {
		return
	}
	b.config.Landlock = true
	b.allow(b.folder, "rw")
	if len(b.hosts) > 0 {
		b.allow(vfioFolder, "rw")
	}
	for _, host := range b.hosts {
		b.allow(host.Path, "r")
	}
	for _, d := range b.spec.GetDisks() {
		for _, backing := range d.GetBackingFiles() {
			b.allow(backing.GetPath(), "r")
		}
	}
	for _, folder := range b.req.HotplugFolders {
		b.allow(folder, "rw")
	}
}

func (b *builder) allow(path, access string) {
	for _, rule := range b.config.LandlockRules {
		if rule.Path == path && rule.Access == access {
			return
		}
	}
	b.config.LandlockRules = append(b.config.LandlockRules, chapi.LandlockRule{Path: path, Access: access})
}

// checkSize refuses a configuration that the VMM would not read. Only paths of
// backing files can make it so long.
func (b *builder) checkSize() {
	body, err := json.Marshal(&b.config)
	if err == nil && len(body) > chapi.MaxBody {
		err = fmt.Errorf("the configuration has %d bytes, and cloud-hypervisor reads at most %d: use fewer backing files, or shorter paths", len(body), chapi.MaxBody)
	}
	if err != nil {
		b.faults.Add("disks", "%v", err)
	}
}
