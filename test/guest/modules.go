package guest

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// guestModules are the drivers for the devices that vmlet gives a guest. One
// that a kernel doesn't have as a module is built in there, or not to be had.
func guestModules() []string {
	return []string{
		"button", "evdev", // first: a guest can be stopped as early as possible
		"virtio_pci", "virtio_mmio", "virtio_blk", "virtio_net", "virtio_console", "virtio_balloon", "virtio_rng",
		"virtio_scsi", "sd_mod", "sr_mod", "isofs", "ahci", "vmw_vsock_virtio_transport", "i6300esb",
		"iTCO_wdt", "pvpanic_mmio", "pvpanic_pci", "vmgenid", "rtc_cmos", "virtio_input",
	}
}

// module is a kernel module, unpacked.
type module struct {
	name    string // with underscores, as the kernel has it
	content []byte
}

// modulesWith returns the named modules and what they depend on, each after its
// own dependencies. Names that a kernel has no module for are left out.
func modulesWith(dir string, names []string) ([]module, error) {
	paths, err := modulePaths(dir)
	if err != nil {
		return nil, err
	}
	var ordered []module
	done := make(map[string]bool)
	var visit func(name string) error
	visit = func(name string) error {
		name = moduleName(name)
		path, ok := paths[name]
		if !ok || done[name] {
			return nil
		}
		done[name] = true
		content, err := readModule(path)
		if err != nil {
			return err
		}
		needs, err := moduleDependencies(content)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, need := range needs {
			if err := visit(need); err != nil {
				return err
			}
		}
		ordered = append(ordered, module{name, content})
		return nil
	}
	for _, name := range names {
		if err := visit(name); err != nil {
			return nil, err
		}
	}
	return ordered, nil
}

// moduleName is the name that the kernel gives a module: file names may have
// dashes where it has underscores.
func moduleName(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

func modulePaths(dir string) (map[string]string, error) {
	paths := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && strings.Contains(entry.Name(), ".ko") {
			paths[moduleName(path)] = path
		}
		return err
	})
	return paths, err
}

// readModule reads a module and unpacks it: Debian 12 has them plain, Debian 13
// in xz.
func readModule(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var unpacked io.Reader = f
	switch filepath.Ext(path) {
	case ".xz":
		unpacked, err = xz.NewReader(f)
	case ".zst":
		unpacked, err = zstd.NewReader(f)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	content, err := io.ReadAll(unpacked)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return content, nil
}

// moduleDependencies reads what a module needs from its section .modinfo: a
// Debian package has no modules.dep, which is made when it is installed.
func moduleDependencies(content []byte) ([]string, error) {
	object, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	section := object.Section(".modinfo")
	if section == nil {
		return nil, errors.New("no section .modinfo: not a kernel module")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for field := range bytes.SplitSeq(info, []byte{0}) {
		if needs, ok := bytes.CutPrefix(field, []byte("depends=")); ok && len(needs) > 0 {
			return strings.Split(string(needs), ","), nil
		}
	}
	return nil, nil
}
