package probe

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm/qemu"
	"github.com/vmlet/vmlet/vmm/qemu/qmp"
)

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
	a.fail("it is for the architecture %.40q: want x86_64 or aarch64", target.Arch)
	return ""
}

func (a *asker) machines() []qemu.Machine {
	var reply []struct {
		Name       string `json:"name"`
		Alias      string `json:"alias"`
		Deprecated bool   `json:"deprecated"`
		MaxCPUs    int    `json:"cpu-max"`
		Default    bool   `json:"is-default"`
		CPUType    string `json:"default-cpu-type"`
		Hotplug    bool   `json:"hotpluggable-cpus"`
	}
	a.ask("query-machines", nil, &reply)
	machines := make([]qemu.Machine, 0, len(reply))
	for _, m := range reply {
		machines = append(machines, qemu.Machine{
			Name: m.Name, Alias: m.Alias, Deprecated: m.Deprecated, MaxCPUs: m.MaxCPUs,
			Default: m.Default, CPUType: m.CPUType, HotplugCPUs: m.Hotplug,
		})
	}
	slices.SortFunc(machines, func(x, y qemu.Machine) int { return strings.Compare(x.Name, y.Name) })
	return machines
}

// devices asks for each by name: the list of all makes QEMU load every module.
func (a *asker) devices(arch string) []string {
	var found []string
	for _, name := range qemu.UsedDevices(arch) {
		if a.ask("device-list-properties", map[string]string{"typename": name}, nil) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

// built asks for the type that each accelerator is in QEMU, and which of them
// take the hypervisor's device.
func (a *asker) built(hypervisors []hypervisor.Hypervisor) (all, withDevice []string) {
	for _, h := range hypervisors {
		properties, known := a.properties(h.Accelerator() + "-accel")
		if !known {
			continue
		}
		all = append(all, h.Accelerator())
		if slices.Contains(properties, "device") {
			withDevice = append(withDevice, h.Accelerator())
		}
	}
	slices.Sort(all)
	slices.Sort(withDevice)
	return slices.Compact(all), slices.Compact(withDevice)
}

func (a *asker) migrationCapabilities() []string {
	var reply []struct {
		Capability string `json:"capability"`
	}
	a.ask("query-migrate-capabilities", nil, &reply)
	names := make([]string, len(reply))
	for i, c := range reply {
		names[i] = c.Capability
	}
	slices.Sort(names)
	return names
}

// properties are those of a type; false: QEMU hasn't got it.
func (a *asker) properties(typename string) ([]string, bool) {
	var reply []struct {
		Name string `json:"name"`
	}
	known := a.ask("qom-list-properties", map[string]string{"typename": typename}, &reply)
	names := make([]string, len(reply))
	for i, p := range reply {
		names[i] = p.Name
	}
	return names, known
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

// sev asks about AMD's memory encryption. A hypervisor or processor without it
// refuses, and so does a QEMU of another architecture.
func (a *asker) sev() *qemu.SEV {
	var reply struct {
		CBitPosition    uint32 `json:"cbitpos"`
		ReducedPhysBits uint32 `json:"reduced-phys-bits"`
	}
	if !a.ask("query-sev-capabilities", nil, &reply) {
		return nil
	}
	return &qemu.SEV{CBitPosition: reply.CBitPosition, ReducedPhysBits: reply.ReducedPhysBits}
}
