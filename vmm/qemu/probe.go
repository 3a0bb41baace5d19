package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/vmlet/vmlet/vmm/qemu/qmp"
	"github.com/vmlet/vmlet/vmm/spec"
)

// probe runs the program once for each accelerator that may be had, side by
// side. Emulation is always there, and is asked what does not depend on the
// accelerator.
func (q *QEMU) probe(ctx context.Context) (*answer, error) {
	a := new(answer)
	var base, kvm, mshv Accelerator
	var failed error
	var group sync.WaitGroup
	group.Go(func() { base, failed = q.probeBase(ctx, a) })
	tried := map[string]*Accelerator{}
	for name, device := range map[string]string{spec.HypervisorKVM: q.config.KVMDevice, spec.HypervisorMSHV: q.config.MSHVDevice} {
		if _, err := os.Stat(device); err != nil {
			continue // there is nothing to try
		}
		result := map[string]*Accelerator{spec.HypervisorKVM: &kvm, spec.HypervisorMSHV: &mshv}[name]
		tried[name] = result
		group.Go(func() { *result = q.probeAccelerator(ctx, name) })
	}
	group.Wait()
	if failed != nil {
		return nil, failed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	a.Details.Accelerators = map[string]Accelerator{spec.HypervisorEmulation: base}
	for name, accelerator := range tried {
		a.Details.Accelerators[name] = *accelerator
	}
	a.Details.Firmware = q.firmware(a.Details.Arch)
	return a, nil
}

func (q *QEMU) probeBase(ctx context.Context, a *answer) (Accelerator, error) {
	qemu, err := startBare(ctx, q.config.Binary, acceleratorName(spec.HypervisorEmulation))
	if err != nil {
		return Accelerator{}, err
	}
	defer qemu.stop()
	asking := asker{ctx: ctx, client: qemu.client}
	greeting := qemu.client.Greeting()
	a.Version, a.Details.Package = greeting.Version.String(), greeting.Version.Package
	a.Details.Arch = asking.arch()
	a.Details.Machines = asking.machines()
	a.Details.Devices = asking.devices()
	a.Details.KVMDevice = slices.Contains(asking.properties("kvm-accel"), "device")
	a.Details.ReadOnlyMemory = slices.Contains(asking.properties("memory-backend-file"), "rom")
	a.Details.MigrateFile = asking.migrateFile()
	accelerator := asking.accelerator()
	if asking.err != nil {
		return Accelerator{}, qemu.explain(asking.err)
	}
	return accelerator, nil
}

func (q *QEMU) probeAccelerator(ctx context.Context, hypervisor string) Accelerator {
	qemu, err := startBare(ctx, q.config.Binary, acceleratorName(hypervisor))
	if err != nil {
		return Accelerator{Failure: err.Error()}
	}
	defer qemu.stop()
	asking := asker{ctx: ctx, client: qemu.client}
	accelerator := asking.accelerator()
	if asking.err != nil {
		return Accelerator{Failure: qemu.explain(asking.err).Error()}
	}
	return accelerator
}

// asker asks one question after the other until one fails.
type asker struct {
	ctx    context.Context
	client *qmp.Client
	err    error
}

// ask reports whether there was an answer. That QEMU refuses the question is
// none, but no failure.
func (a *asker) ask(command string, args, result any) bool {
	if a.err != nil {
		return false
	}
	err := a.client.Execute(a.ctx, command, args, result)
	var refused *qmp.Error
	if err != nil && !errors.As(err, &refused) {
		a.err = err
	}
	return err == nil
}

func (a *asker) arch() string {
	var target struct {
		Arch string `json:"arch"`
	}
	a.ask("query-target", nil, &target)
	switch target.Arch {
	case "x86_64":
		return spec.ArchAMD64
	case "aarch64":
		return spec.ArchARM64
	}
	if a.err == nil {
		a.err = fmt.Errorf("it is for the architecture %.40q: want x86_64 or aarch64", target.Arch)
	}
	return ""
}

func (a *asker) machines() []Machine {
	var reply []struct {
		Name       string `json:"name"`
		Alias      string `json:"alias"`
		Deprecated bool   `json:"deprecated"`
		MaxCPUs    int    `json:"cpu-max"`
	}
	a.ask("query-machines", nil, &reply)
	machines := make([]Machine, 0, len(reply))
	for _, m := range reply {
		if familyOf(m.Name) != familyUnknown {
			machines = append(machines, Machine{Name: m.Name, Alias: m.Alias, Deprecated: m.Deprecated, MaxCPUs: m.MaxCPUs})
		}
	}
	slices.SortFunc(machines, func(x, y Machine) int { return strings.Compare(x.Name, y.Name) })
	return machines
}

// devices asks for each by name: the list of all makes QEMU load every module.
func (a *asker) devices() []string {
	var found []string
	for _, name := range usedDevices() {
		if a.ask("device-list-properties", map[string]string{"typename": name}, nil) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

// usedDevices are all that a plan may have.
func usedDevices() []string {
	names := []string{
		"e1000e", "i6300esb", "ich9-ahci", "ide-cd", "ide-hd", "pvpanic-pci", "qemu-xhci",
		"scsi-cd", "scsi-hd", "usb-bot", "virtserialport", "vmgenid",
	}
	for _, transport := range []string{"pci", "device"} {
		for _, kind := range []string{"balloon", "blk", "net", "rng", "scsi", "serial"} {
			names = append(names, "virtio-"+kind+"-"+transport)
		}
		names = append(names, "vhost-vsock-"+transport)
	}
	return names
}

func (a *asker) properties(typename string) []string {
	var reply []struct {
		Name string `json:"name"`
	}
	a.ask("qom-list-properties", map[string]string{"typename": typename}, &reply)
	names := make([]string, len(reply))
	for i, p := range reply {
		names[i] = p.Name
	}
	return names
}

func (a *asker) migrateFile() bool {
	if a.err != nil {
		return false
	}
	schema, err := a.client.Schema(a.ctx)
	if err != nil {
		a.err = err
		return false
	}
	return schema.HasArgument("migrate", "channels", "addr", "filename")
}
