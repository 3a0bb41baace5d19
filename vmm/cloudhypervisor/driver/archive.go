package driver

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/plan"
)

// Files of cloud-hypervisor's snapshot (its docs/snapshot_restore.md). An image's
// state is a tar archive of them.
const (
	configName = "config.json"
	stateName  = "state.json"
	memoryName = "memory-ranges"
)

// maxJSON bounds the files in JSON, in bytes: the state of a VM with a thousand
// vCPUs has some MiB. They are never in memory here.
const maxJSON = 64 << 20

// folder is one in the VMM's own. The VMM's user may put anything there at any time,
// in the place of anything.
type folder struct {
	root *os.Root
	name string
	user *plan.User // nil: the VMM runs as this process's
}

// pack writes the snapshot in the folder to f. The VMM doesn't look at whether its
// writing has succeeded (a disk may have been full), so this does.
//
// ram is the size of the RAM in bytes that must be in it; 0: none may be.
func (d folder) pack(ctx context.Context, f io.Writer, ram uint64) error {
	out := tar.NewWriter(f)
	for _, name := range []string{configName, stateName} {
		if err := d.packJSON(ctx, out, name); err != nil {
			return fmt.Errorf("cloud-hypervisor's snapshot: %s: %w", name, err)
		}
	}
	if err := d.packMemory(ctx, out, ram); err != nil {
		return fmt.Errorf("cloud-hypervisor's snapshot: %s: %w", memoryName, err)
	}
	return out.Close()
}

func (d folder) packJSON(ctx context.Context, out *tar.Writer, name string) error {
	file, size, err := d.open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	if size > maxJSON {
		return fmt.Errorf("it has %d bytes, more than %d", size, int64(maxJSON))
	}
	var seen object
	if err := addFile(ctx, out, name, size, io.TeeReader(file, &seen)); err != nil {
		return err
	}
	if !seen.whole() {
		return errors.New("it is not whole: is there room where the VM's state folder is?")
	}
	return nil
}

// packMemory adds the RAM, where it is not in a file of its own.
func (d folder) packMemory(ctx context.Context, out *tar.Writer, ram uint64) error {
	file, size, err := d.open(memoryName)
	if ram == 0 && errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if uint64(size) != ram {
		return fmt.Errorf("it has %d bytes, and not %d", size, ram)
	}
	return addFile(ctx, out, memoryName, size, file)
}

func addFile(ctx context.Context, out *tar.Writer, name string, size int64, content io.Reader) error {
	if err := out.WriteHeader(&tar.Header{Name: name, Size: size, Mode: 0o600, Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err := io.CopyN(out, reader{ctx, content}, size)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// unpack writes an archive's files to the folder, all but the configuration. It takes
// nothing else, and nothing twice. ram is as in pack.
func (d folder) unpack(ctx context.Context, f io.ReadSeeker, ram uint64) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	in := tar.NewReader(f)
	var seen []string
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("an archive of cloud-hypervisor's snapshot was expected: %w", err)
		}
		if !belongs(header, ram) || slices.Contains(seen, header.Name) {
			return fmt.Errorf("the state has %.80q of %d bytes, which doesn't belong to cloud-hypervisor's snapshot, or belongs there once", header.Name, header.Size)
		}
		seen = append(seen, header.Name)
		if header.Name == configName {
			continue
		}
		if err := d.write(header.Name, reader{ctx, in}); err != nil {
			return fmt.Errorf("cloud-hypervisor's snapshot: %s: %w", header.Name, err)
		}
	}
	for _, name := range []string{stateName, memoryName} {
		if !slices.Contains(seen, name) && (name != memoryName || ram > 0) {
			return fmt.Errorf("the state has no %s of cloud-hypervisor's snapshot", name)
		}
	}
	return nil
}

// belongs goes by the size as well: an archive may say that a file has holes, and then
// be much smaller.
func belongs(h *tar.Header, ram uint64) bool {
	switch {
	case h.Typeflag != tar.TypeReg:
		return false
	case h.Name == configName, h.Name == stateName:
		return h.Size <= maxJSON
	}
	return h.Name == memoryName && ram > 0 && uint64(h.Size) == ram
}

// write makes a file, the VMM's user's; one that is there already is an error. What
// is given away is the file that was made, whatever has its name by then.
func (d folder) write(name string, content io.Reader) error {
	out, err := d.root.OpenFile(path.Join(d.name, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	if err == nil {
		err = d.give(out)
	}
	return errors.Join(err, out.Close())
}

// make makes the folder, the VMM's user's.
func (d folder) make() error {
	if err := d.root.Mkdir(d.name, 0o700); err != nil {
		return err
	}
	// Of directories there are no hard links: what has the name by now, if it isn't
	// the one that was made, is one that the VMM could move here.
	dir, err := d.root.OpenFile(d.name, unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	return d.give(dir)
}

func (d folder) give(f *os.File) error {
	if d.user == nil {
		return nil
	}
	return f.Chown(int(d.user.UID), int(d.user.GID))
}

// open opens a file that the VMM has made, and returns its size. It may be anything:
// a link to a file that the VMM's user may not read is not read for them.
func (d folder) open(name string) (*os.File, int64, error) {
	f, err := d.root.OpenFile(path.Join(d.name, name), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	var st unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &st)
	switch {
	case err != nil:
		err = os.NewSyscallError("fstat", err)
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		err = fmt.Errorf("it is no regular file (mode %#o)", st.Mode)
	case d.user != nil && st.Uid != d.user.UID:
		err = fmt.Errorf("it is user %d's, and the VMM is user %d", st.Uid, d.user.UID)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, st.Size, nil
}

// reader ends with its context.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(p)
}

// object sees, of a text in JSON that is written to it, whether it is one whole
// object, and not the beginning of one. What else is wrong it doesn't see.
type object struct {
	depth           int
	began, over     bool
	quoted, escaped bool
	stray           bool // something that isn't space is before or behind it
}

func (o *object) whole() bool { return o.over && !o.stray }

// Write implements io.Writer; it never fails.
func (o *object) Write(p []byte) (int, error) {
	for _, c := range p {
		o.next(c)
	}
	return len(p), nil
}

func (o *object) next(c byte) {
	space := c == ' ' || c == '\n' || c == '\t' || c == '\r'
	switch {
	case o.over:
		o.stray = o.stray || !space
	case !o.began && c == '{':
		o.began, o.depth = true, 1
	case !o.began:
		o.stray = o.stray || !space
	case o.escaped:
		o.escaped = false
	case o.quoted:
		o.escaped, o.quoted = c == '\\', c != '"'
	case c == '"':
		o.quoted = true
	case c == '{', c == '[':
		o.depth++
	case c == '}', c == ']':
		o.depth--
		o.over = o.depth == 0
	}
}
