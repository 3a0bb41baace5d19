// Package cloudinit makes the seed that cloud-init's NoCloud data source reads:
// a small ISO 9660 image with the volume label CIDATA
// (https://cloudinit.readthedocs.io/en/latest/reference/datasources/nocloud.html).
package cloudinit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"go.yaml.in/yaml/v3"
)

// SeedName is the name of the seed's file in a VM's state folder.
const SeedName = "seed.iso"

// VolumeLabel is what cloud-init looks for.
const VolumeLabel = "CIDATA"

// Sizes in bytes of ISO 9660's parts (ECMA-119, 6.1.2 and 6.2.1).
const (
	sectorSize = 2048
	systemArea = 16 * sectorSize
)

// epoch is the time that everything in a seed is dated: cloud-init does not look
// at dates, and the same input is to give the same bytes.
func epoch() time.Time { return time.Unix(315532800, 0).UTC() } // 1980-01-01

// Seed returns the image for a VM with this id, or nil if its specification
// has no cloud-init. The same input gives the same bytes, so that a VM that is
// restored finds the disk it had. A temporary folder is used meanwhile, which
// only the caller's user can read.
func Seed(id string, spec *specv1.VirtualMachineSpec) (seed []byte, err error) {
	if spec.GetCloudInit() == nil {
		return nil, nil
	}
	content, err := contents(id, spec)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "vmlet-seed-")
	if err != nil {
		return nil, fmt.Errorf("making a cloud-init seed: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()

	seed, err = build(folder, content)
	if err != nil {
		return nil, fmt.Errorf("making a cloud-init seed: %w", err)
	}
	return seed, nil
}

// contents returns the seed's files by name.
func contents(id string, spec *specv1.VirtualMachineSpec) (map[string]string, error) {
	c := spec.GetCloudInit()
	out := map[string]string{
		"user-data": c.GetUserData(),
		"meta-data": c.GetMetaData(),
	}
	if out["user-data"] == "" {
		// The file must be there for NoCloud to take the volume, and the library
		// writes an empty file over what comes after it.
		out["user-data"] = "#cloud-config\n"
	}
	if out["meta-data"] == "" {
		defaults, err := yaml.Marshal(map[string]string{"instance-id": id, "local-hostname": spec.GetName()})
		if err != nil {
			return nil, fmt.Errorf("writing cloud-init's meta-data: %w", err)
		}
		out["meta-data"] = string(defaults)
	}
	if c.GetNetworkConfig() != "" {
		out["network-config"] = c.GetNetworkConfig()
	}
	return out, nil
}

func build(folder string, content map[string]string) (seed []byte, err error) {
	workspace := filepath.Join(folder, "files")
	image := filepath.Join(folder, SeedName)
	if err := writeFiles(workspace, content); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(image, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	filesystem, err := iso9660.Create(file.New(f, false), 0, 0, sectorSize, workspace)
	if err != nil {
		return nil, err
	}
	// Joliet alone carries the names: '-' is not in ISO 9660's own alphabet, and
	// Rock Ridge would write down inode times, which nobody can set.
	options := iso9660.FinalizeOptions{Joliet: true, VolumeIdentifier: VolumeLabel}
	if err := filesystem.Finalize(options); err != nil {
		return nil, err
	}
	seed, err = os.ReadFile(image)
	if err != nil {
		return nil, err
	}
	// The last file may end anywhere, but a CD-ROM has whole sectors.
	if rest := len(seed) % sectorSize; rest != 0 {
		seed = append(seed, make([]byte, sectorSize-rest)...)
	}
	return seed, finishDescriptors(seed)
}

func writeFiles(workspace string, content map[string]string) error {
	if err := os.Mkdir(workspace, 0o700); err != nil {
		return err
	}
	for name, text := range content {
		path := filepath.Join(workspace, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
		if err := os.Chtimes(path, epoch(), epoch()); err != nil {
			return err
		}
	}
	return os.Chtimes(workspace, epoch(), epoch())
}

// finishDescriptors puts the epoch into every volume descriptor, which the library
// dates with the current time, and spaces where it leaves zeros after the label.
func finishDescriptors(image []byte) error {
	const (
		label      = 40 // ECMA-119, 8.4.7
		labelEnd   = 72
		creation   = 813 // ECMA-119, 8.4.26 to 8.4.29: four dates of 17 bytes
		dates      = 4
		dateLength = 17

		primary       = 1
		supplementary = 2
		terminator    = 255
	)
	stamp := append([]byte(epoch().Format("20060102150405")+"00"), 0)
	for at := systemArea; at+sectorSize <= len(image); at += sectorSize {
		descriptor := image[at : at+sectorSize]
		switch descriptor[0] {
		case terminator:
			return nil
		case primary:
			padLabel(descriptor[label:labelEnd], " ")
		case supplementary:
			padLabel(descriptor[label:labelEnd], "\x00 ") // UCS-2, big-endian
		}
		for i := range dates {
			copy(descriptor[creation+i*dateLength:], stamp)
		}
	}
	return &fs.PathError{Op: "read", Path: SeedName, Err: errors.New("has no volume descriptor set terminator")}
}

// padLabel fills the zeros at the end of a label with spaces.
func padLabel(field []byte, space string) {
	for at := 0; at+len(space) <= len(field); at += len(space) {
		if character := field[at : at+len(space)]; len(bytes.Trim(character, "\x00")) == 0 {
			copy(character, space)
		}
	}
}
