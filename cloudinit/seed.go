// Package cloudinit makes the seed that cloud-init's NoCloud data source reads:
// a small ISO 9660 image with the volume label CIDATA
// (https://cloudinit.readthedocs.io/en/latest/reference/datasources/nocloud.html).
package cloudinit

import (
	"fmt"

	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"go.yaml.in/yaml/v3"

	"github.com/vmlet/vmlet/internal/iso9660"
)

// SeedName is the name of the seed's file in a VM's state folder.
const SeedName = "seed.iso"

// VolumeLabel is what cloud-init looks for.
const VolumeLabel = "CIDATA"

// Seed returns the image for a VM with this id, or nil if its specification
// has no cloud-init. The same input gives the same bytes, so that a VM that is
// restored finds the disk it had.
func Seed(id string, spec *specv1.VirtualMachineSpec) ([]byte, error) {
	if spec.GetCloudInit() == nil {
		return nil, nil
	}
	files, err := contents(id, spec)
	if err != nil {
		return nil, err
	}
	seed, err := iso9660.Image(VolumeLabel, files)
	if err != nil {
		return nil, fmt.Errorf("making a cloud-init seed: %w", err)
	}
	return seed, nil
}

// contents returns the seed's files.
func contents(id string, spec *specv1.VirtualMachineSpec) ([]iso9660.File, error) {
	c := spec.GetCloudInit()
	user, meta := c.GetUserData(), c.GetMetaData()
	if user == "" {
		// The file must be there for NoCloud to take the volume.
		user = "#cloud-config\n"
	}
	if meta == "" {
		defaults, err := yaml.Marshal(map[string]string{"instance-id": id, "local-hostname": spec.GetName()})
		if err != nil {
			return nil, fmt.Errorf("writing cloud-init's meta-data: %w", err)
		}
		meta = string(defaults)
	}
	files := []iso9660.File{{Path: "user-data", Content: []byte(user)}, {Path: "meta-data", Content: []byte(meta)}}
	if network := c.GetNetworkConfig(); network != "" {
		files = append(files, iso9660.File{Path: "network-config", Content: []byte(network)})
	}
	return files, nil
}
