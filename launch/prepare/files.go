package prepare

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/internal/atomicfile"
	"github.com/vmlet/vmlet/internal/iso9660"
	"github.com/vmlet/vmlet/launch"
)

const (
	// maxFile bounds each file that is read, in bytes: the kubelet writes none larger than
	// an object of the API server, 1.5 MiB.
	maxFile = 2 << 20
	// dataFolder is where the kubelet has the files of a volume that it writes: beside it
	// are links into it, by which all of them change at once.
	dataFolder = "..data"
)

// files makes an image of a folder's files.
func files(f launch.Files, path string) (result, error) {
	all, err := readFolder(f.Folder)
	if err != nil {
		return result{}, err
	}
	made, err := image(f.Label, all, path)
	if errors.Is(err, iso9660.ErrLongName) {
		err = fmt.Errorf("%w: choose a shorter key in the volume's ConfigMap or Secret", err)
	}
	return made, err
}

// image writes an ISO 9660 image, again each time: what it was made of may have changed.
func image(label string, all []iso9660.File, path string) (result, error) {
	content, err := iso9660.Image(label, all)
	if err != nil {
		return result{}, err
	}
	if err := atomicfile.Replace(path, content, 0o600); err != nil {
		return result{}, err
	}
	made := result{Path: path, Format: string(disk.Raw), ReadOnly: true}
	return made, made.lookAt(path)
}

// readFolder reads all files of a volume that the kubelet has written. Links that lead out of
// it are faults.
func readFolder(folder string) ([]iso9660.File, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if data, err := root.OpenRoot(dataFolder); err == nil {
		defer data.Close()
		root = data
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var all []iso9660.File
	size := 0
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := readFile(root, name)
		if err != nil {
			return err
		}
		all, size = append(all, iso9660.File{Path: name, Content: content}), size+len(content)
		if len(all) > iso9660.MaxFiles || size > iso9660.MaxSize {
			return contract.Errorf("%s has more than %d files or %d bytes: a disk of files has at most so many", contract.ObjectName(folder), iso9660.MaxFiles, iso9660.MaxSize)
		}
		return nil
	})
	return all, err
}

// readFile reads a regular file that is not too large.
func readFile(root *os.Root, name string) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO would make the open wait
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, contract.Errorf("%s is no regular file (%v)", contract.ObjectName(path.Join(root.Name(), name)), st.Mode())
	}
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = contract.Errorf("%s has more than %d bytes", contract.ObjectName(path.Join(root.Name(), name)), maxFile)
	}
	return content, err
}
