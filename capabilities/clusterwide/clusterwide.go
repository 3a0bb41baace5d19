// Package clusterwide is what a cluster's configuration says to each of its nodes: vmlet-controller
// writes it, every node's agent reads it. What a node's own configuration says counts before it. The
// package must not know how it gets to a node.
package clusterwide

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"

	"go.yaml.in/yaml/v3"

	"github.com/vmlet/vmlet/capabilities/hostdevice"
	"github.com/vmlet/vmlet/hypervisor/standard"
	"github.com/vmlet/vmlet/internal/strictyaml"
	"github.com/vmlet/vmlet/vmm/profile"
	vmms "github.com/vmlet/vmlet/vmm/standard"
)

// Configuration is what the controller tells nodes. The zero Configuration says nothing. Its keys are those of
// the agent's own file.
type Configuration struct {
	// ObsoleteCPUModels are not offered; false takes one away that is obsolete by itself.
	ObsoleteCPUModels map[string]bool `yaml:"obsoleteCPUModels,omitempty"`
	// PermittedHostDevices may be given to guests.
	PermittedHostDevices hostdevice.Permitted `yaml:"permittedHostDevices,omitempty"`
	// VirtualizationProfile names the parts of the stack.
	VirtualizationProfile profile.Profile `yaml:"virtualizationProfile,omitempty"`
}

// Marshal returns the file's content, the same for the same configuration.
func (c Configuration) Marshal() ([]byte, error) {
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(c), e.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Load reads a file, which need not be there: a cluster may have nothing to say. The error names each
// fault by its line or key.
func Load(path string) (Configuration, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Configuration{}, nil
	}
	if err != nil {
		return Configuration{}, err
	}
	return Parse(content, path)
}

// Parse is Load of what was read; the filename is for errors.
func Parse(content []byte, filename string) (Configuration, error) {
	var c Configuration
	if err := strictyaml.Parse(content, filename, &c); err != nil {
		return Configuration{}, err
	}
	var faults []error
	fault := func(key, format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s: %s: "+format, append([]any{filename, key}, args...)...))
	}
	c.PermittedHostDevices.Validate(fault)
	c.VirtualizationProfile.Validate(standard.Registry(), vmms.Registry(), fault)
	if len(faults) > 0 {
		return Configuration{}, errors.Join(faults...)
	}
	return c, nil
}

// Under lays the cluster's word under a node's own: a node that permits devices, or has a profile,
// has none of the cluster's; of a CPU model the node's word counts. Of the cluster's profile a node
// has no hypervisor and no VMM: VMs in pods bring the cluster's choice along, and as a node's default
// it would keep all VMs off nodes without it.
func (c Configuration) Under(own Configuration) Configuration {
	if models := maps.Clone(c.ObsoleteCPUModels); len(models) > 0 {
		maps.Copy(models, own.ObsoleteCPUModels)
		own.ObsoleteCPUModels = models
	}
	if reflect.ValueOf(own.PermittedHostDevices).IsZero() {
		own.PermittedHostDevices = c.PermittedHostDevices
	}
	if reflect.ValueOf(own.VirtualizationProfile).IsZero() {
		own.VirtualizationProfile = c.VirtualizationProfile
		own.VirtualizationProfile.Components.HypervisorDevice, own.VirtualizationProfile.Components.VMMProcessExecutable = "", ""
	}
	return own
}
