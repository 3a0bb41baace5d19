package probe

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm/qemu"
	"golang.org/x/sys/unix"
)

// maxDescriptor bounds a firmware descriptor, in bytes; real ones have one or two
// thousand.
const maxDescriptor = 64 << 10

// descriptorFiles is the pattern of descriptors' names.
const descriptorFiles = "*.json"

// descriptor is what is read of a firmware descriptor.
type descriptor struct {
	InterfaceTypes []string `json:"interface-types"`
	Mapping        struct {
		Device     string `json:"device"`
		Mode       string `json:"mode"`
		Executable struct {
			Filename string `json:"filename"`
			Format   string `json:"format"`
		} `json:"executable"`
		Template struct {
			Filename string `json:"filename"`
			Format   string `json:"format"`
		} `json:"nvram-template"`
	} `json:"mapping"`
	Targets []struct {
		Architecture string   `json:"architecture"`
		Machines     []string `json:"machines"`
	} `json:"targets"`
	Features []string `json:"features"`
}

// firmware returns the UEFI builds for an architecture, the most preferred first:
// that is by the descriptors' file names, which begin with a number.
func (q *Program) firmware(arch string) []qemu.Firmware {
	paths := make(map[string]string)
	for _, dir := range slices.Backward(q.config.FirmwareDirs) {
		found, err := filepath.Glob(filepath.Join(dir, descriptorFiles))
		if err != nil {
			q.config.Log.Warn("firmware descriptors can't be listed", "folder", dir, "error", err)
		}
		for _, path := range found {
			paths[filepath.Base(path)] = path
		}
	}
	names := make([]string, 0, len(paths))
	for name := range paths {
		names = append(names, name)
	}
	slices.Sort(names)
	var out []qemu.Firmware
	for _, name := range names {
		d, err := readDescriptor(paths[name])
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				q.config.Log.Warn("a firmware descriptor can't be read", "file", paths[name], "error", err)
			}
			continue
		}
		if f, fits := d.firmware(arch); fits {
			out = append(out, f)
		}
	}
	return out
}

func readDescriptor(path string) (descriptor, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe's other end is not waited for
	if err != nil {
		return descriptor{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxDescriptor))
	if err != nil || len(strings.TrimSpace(string(text))) == 0 {
		return descriptor{}, err // an empty file hides one of the distribution's
	}
	var d descriptor
	return d, json.Unmarshal(text, &d)
}

// firmware tells whether this is one that vmlet can use: UEFI in flash, in two
// raw files, and without what needs System Management Mode.
func (d descriptor) firmware(arch string) (qemu.Firmware, bool) {
	m := d.Mapping
	if !slices.Contains(d.InterfaceTypes, "uefi") || m.Device != "flash" || m.Mode != "" && m.Mode != "split" ||
		m.Executable.Format != "raw" || m.Template.Format != "raw" ||
		!filepath.IsAbs(m.Executable.Filename) || !filepath.IsAbs(m.Template.Filename) {
		return qemu.Firmware{}, false
	}
	for _, unwanted := range []string{"requires-smm", "secure-boot", "enrolled-keys"} {
		if slices.Contains(d.Features, unwanted) {
			return qemu.Firmware{}, false
		}
	}
	for _, target := range d.Targets {
		if target.Architecture == qemuArch(arch) {
			return qemu.Firmware{Code: m.Executable.Filename, Vars: m.Template.Filename, Machines: target.Machines}, true
		}
	}
	return qemu.Firmware{}, false
}

func qemuArch(arch string) string {
	if arch == spec.ArchARM64 {
		return "aarch64"
	}
	return "x86_64"
}
