package driver

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

// Files of cloud-hypervisor's snapshot (its docs/snapshot_restore.md). An image's
// state is a tar archive of them.
const (
	configName = "config.json"
	stateName  = "state.json"
	memoryName = "memory-ranges"
)

// maxJSON bounds the files in JSON, in bytes: the state of a VM with a thousand
// vCPUs has some MiB.
const maxJSON = 64 << 20

// pack writes the snapshot in a folder to f, and returns its configuration. The VMM
// doesn't look at whether its writing has succeeded (a disk may have been full), so
// what it wrote is read.
//
// ram is the size of the RAM in bytes that must be in it; 0: none may be.
func pack(f io.Writer, root *os.Root, folder string, ram uint64) (*chapi.VMConfig, error) {
	out := tar.NewWriter(f)
	var config chapi.VMConfig
	for _, name := range []string{configName, stateName} {
		content, err := readFile(root, path.Join(folder, name))
		if err != nil {
			return nil, err
		}
		var into any = new(json.RawMessage)
		if name == configName {
			into = &config
		}
		if err := json.Unmarshal(content, into); err != nil {
			return nil, fmt.Errorf("cloud-hypervisor's snapshot: %s is not whole (is there room where the VM's folder is?): %w", name, err)
		}
		if err := addFile(out, name, int64(len(content)), bytes.NewReader(content)); err != nil {
			return nil, err
		}
	}
	if err := packMemory(out, root, folder, ram); err != nil {
		return nil, err
	}
	return &config, out.Close()
}

// packMemory adds the RAM, where it is not in a file of its own.
func packMemory(out *tar.Writer, root *os.Root, folder string, ram uint64) error {
	memory, err := openFile(root, path.Join(folder, memoryName))
	if ram == 0 && errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer memory.Close()
	st, err := memory.Stat()
	if err != nil {
		return err
	}
	if uint64(st.Size()) != ram {
		return fmt.Errorf("cloud-hypervisor's snapshot: %s has %d bytes, and not %d", memoryName, st.Size(), ram)
	}
	return addFile(out, memoryName, st.Size(), memory)
}

func addFile(out *tar.Writer, name string, size int64, content io.Reader) error {
	if err := out.WriteHeader(&tar.Header{Name: name, Size: size, Mode: 0o600, Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	if _, err := io.CopyN(out, content, size); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// unpack writes an archive's files, but for the configuration, to a folder and
// returns their names. It takes nothing else, and nothing twice.
func unpack(f io.ReadSeeker, root *os.Root, folder string, sharedRAM bool) ([]string, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	in := tar.NewReader(f)
	var names []string
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("an archive of cloud-hypervisor's snapshot was expected: %w", err)
		}
		if err := checkEntry(header, sharedRAM); err != nil {
			return nil, err
		}
		if header.Name == configName {
			continue
		}
		name := path.Join(folder, header.Name)
		if err := writeFile(root, name, in); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	want := 1
	if !sharedRAM {
		want = 2
	}
	if len(names) != want {
		return nil, fmt.Errorf("the state has %d files of cloud-hypervisor's snapshot, want %d", len(names), want)
	}
	return names, nil
}

func checkEntry(h *tar.Header, sharedRAM bool) error {
	switch {
	case h.Typeflag != tar.TypeReg:
	case (h.Name == configName || h.Name == stateName) && h.Size <= maxJSON, h.Name == memoryName && !sharedRAM:
		return nil
	}
	return fmt.Errorf("the state has %.80q of %d bytes, which doesn't belong to cloud-hypervisor's snapshot", h.Name, h.Size)
}

// writeFile makes a file; one that is there already is an error.
func writeFile(root *os.Root, name string, content io.Reader) error {
	out, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return errors.Join(err, out.Close())
}

// openFile opens a file that the VMM has made: it may be anything.
func openFile(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file (%v)", name, st.Mode())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func readFile(root *os.Root, name string) ([]byte, error) {
	f, err := openFile(root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxJSON+1))
	if err == nil && len(content) > maxJSON {
		err = fmt.Errorf("%s: more than %d bytes", name, maxJSON)
	}
	return content, err
}
