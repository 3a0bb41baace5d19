package cloudhypervisor

import (
	"encoding/json"
	"fmt"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/plan"
	"github.com/vmlet/vmlet/vmm/spec"
)

// APISocket is the name, in the VM's run folder, of the socket that the VMM serves
// its API on. The agent and the shim both connect to it.
const APISocket = "ch.sock"

// FolderName is the name of the VMM's own folder in the VM's run folder.
const FolderName = "vmm"

// Sockets that the VMM makes in its own folder.
const (
	// SerialSocket has the serial console, for one client at a time. What the guest
	// writes before somebody connects is kept.
	SerialSocket = "serial.sock"
	// VsockSocket leads to the guest's vsock ports, see chapi.Vsock.
	VsockSocket = "vsock.sock"
)

// RAM is the id of the one memory zone.
const RAM = "ram0"

// Kinds of files that this VMM needs beside those of package plan.
const (
	// FileFolder is a folder of the VMM's own, of the name Path in the run folder,
	// made by the shim for the VMM's user alone and opened for reading. The VMM makes
	// its sockets there, and reads and writes snapshots.
	FileFolder plan.FileKind = "folder"
	// FileEvents is the writing end of a pipe whose reading end the shim has. The VMM
	// makes it non-blocking and drops what doesn't fit: it is to be read at once.
	FileEvents plan.FileKind = "events"
)

// Plan is how a VM is started: a process, and what it is told over its API.
//
// A VM that boots is created with Config (vm.create), given what is in Add, in that
// order, and booted (vm.boot). One that is restored is restored from a snapshot
// whose config.json is what Restored returns, with the taps of Add.
type Plan struct {
	Process *plan.Plan     `json:"process"`
	Config  chapi.VMConfig `json:"config"`
	// Add is plugged in between vm.create, with which no file can go, and vm.boot.
	Add []AddNet `json:"add,omitempty"`
	// Folder is the VMM's own folder as the VMM reaches it, for vm.snapshot and
	// vm.restore: "/proc/self/fd/3".
	Folder string `json:"folder"`
	// Reopened are the files that the VMM opens again.
	Reopened []Reopened `json:"reopened,omitempty"`
}

// AddNet is a network interface that goes with its tap.
type AddNet struct {
	Net chapi.Net `json:"net"`
	// Tap is the number of the descriptor among those sent with the plan. The VMM
	// doesn't inherit it: the tap would stay in use when the interface is removed.
	Tap int `json:"tap"`
}

// Reopened is a file that the VMM opens again through /proc/self/fd, where the
// kernel checks permissions anew. So the VMM's user must have the right to it, by
// owner, mode or access list, for as long as the VMM runs: a reboot opens it once
// more. No right to the folders above it is needed.
//
// With Landlock the file must have a name. What only exists in memory
// (memfd_create(2)) can't be allowed: landlock_add_rule(2) fails with EBADFD, and
// with it vm.create.
type Reopened struct {
	// File is the index in Process.Files.
	File int `json:"file"`
	// Write: for writing too.
	Write bool `json:"write,omitempty"`
	// Copy: a copy does as well, where the user has no right.
	Copy bool `json:"copy,omitempty"`
	// ByName: it is a backing file, and opened by the name that the image above it
	// has for it. So the folders above must let the user through, too.
	ByName bool `json:"byName,omitempty"`
}

// Request is all that a plan depends on.
type Request struct {
	vmm.PlanRequest
	// HotplugFolders are absolute paths of folders, or files, that disks plugged in
	// later are in. Landlock lets the VMM open nothing else, and can't be widened.
	// They must exist when the VMM starts.
	HotplugFolders []string
}

// PlanVM turns a specification, complete with its defaults, into a plan. It touches
// nothing. What is wrong with the specification, or what cloud-hypervisor can't do,
// are spec.FieldErrors.
func PlanVM(req Request) (*Plan, error) {
	if err := spec.Validate(req.Spec).Err(); err != nil {
		return nil, err
	}
	details, ok := detailsOf(req.Info)
	if !ok {
		return nil, fmt.Errorf("planning a VM for %s: the information on %s is of type %T, not %s's", Name, req.Info.Binary, req.Info.Details, Name)
	}
	b := &builder{req: req, spec: req.Spec, details: details}
	return b.plan()
}

func (b *builder) plan() (*Plan, error) {
	b.refuse()
	args := b.process()
	memory := b.memory()
	b.cpus()
	b.payload()
	b.disks()
	b.networks()
	b.devices()
	b.landlock()
	b.checkSize()
	if err := b.faults.Err(); err != nil {
		return nil, err
	}
	return &Plan{
		Process: &plan.Plan{
			Name:    b.spec.GetName(),
			ID:      b.req.ID,
			VMM:     spec.VMMCloudHypervisor,
			Program: b.req.Info.Binary,
			Args:    args,
			User:    b.req.User,
			Files:   b.files,
			Memory:  memory,
			Restore: b.restore(),
			Paused:  b.req.Paused,
		},
		Config: b.config, Add: b.add, Folder: b.folder, Reopened: b.reopened,
	}, nil
}

// process is what concerns the VMM as a process: all else goes over its API. It has
// no monitor of its own for the shim, since it serves any number of clients.
func (b *builder) process() []string {
	b.folder = b.own(plan.File{Kind: FileFolder, Path: FolderName})
	api := b.file(plan.File{Kind: plan.FileListen, Path: APISocket})
	events := b.file(plan.File{Kind: FileEvents})
	return []string{
		"--api-socket", fmt.Sprintf("fd=%d", api),
		"--event-monitor", fmt.Sprintf("fd=%d", events),
		"--seccomp", "true",
	}
}

func (b *builder) restore() *plan.Restore {
	if b.req.Image == nil {
		return nil
	}
	return &plan.Restore{
		Directory: b.req.Image.Directory,
		ImageID:   b.req.Image.Manifest.ID,
		Lazy:      b.req.Image.Lazy,
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

// Restored is Config as a snapshot's config.json has to have it for vm.restore: with
// the interfaces of Add, each of which says that its one tap comes as a file.
func (p *Plan) Restored() chapi.VMConfig {
	config := p.Config
	config.Nets = make([]chapi.Net, len(p.Add))
	for i, add := range p.Add {
		config.Nets[i] = add.Net
		// The number means nothing to the VMM, how many there are does.
		config.Nets[i].Extra = chapi.Extra{"fds": json.RawMessage("[-1]")}
	}
	return config
}
