// Package importer fills a claim with a disk, as package launch describes it: an empty one, a file
// of a web server, a file of a container image, or a copy of another claim. It knows of no
// cluster. Start reading at Importer.Run.
//
// What a server sends and what an image has is hostile: all of it is bounded by the claim's size,
// headers are checked before qemu-img sees them, and nothing that an image names is opened. On a
// filesystem the disk gets its name when it is whole, so that a run that is killed anywhere leaves
// nothing that could be taken for a disk; the next one goes on, or begins again.
package importer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/internal/filesocket"
	"github.com/vmlet/vmlet/launch"
)

// socketPatience is how long a container may take to hand out its file. It was started before.
const socketPatience = time.Minute

// diskName is a disk's file on a claim with a filesystem: KubeVirt's and CDI's.
const diskName = "disk.img"

// Importer fills one claim.
type Importer struct {
	launch.Import
	// QEMUImg is the program that converts images.
	QEMUImg string
	// Progress gets how far the import is.
	Progress *Progress
	// Pace is the pauses between tries to reach a server; zero: seconds.
	Pace time.Duration
	// Step is after how many bytes it is written down how far a download is; zero: 64 MiB.
	Step int64
}

// Run fills the claim. An error is the sentence that the VM's owner is shown. Run may be called
// again after it failed, or was killed.
func (i *Importer) Run(ctx context.Context) error {
	t, err := i.open()
	if err != nil {
		return err
	}
	defer t.close()
	switch {
	case i.HTTP != nil:
		err = i.download(ctx, t)
	case i.File != nil:
		err = i.fromImage(ctx, t)
	case i.Copy != nil:
		err = i.fromClaim(ctx, t)
	default:
		err = t.begin()
	}
	if err == nil {
		err = t.finish(i.Preallocate)
	}
	return t.explain(err)
}

// fromImage copies or converts the file that another container hands out.
func (i *Importer) fromImage(ctx context.Context, t *target) error {
	wait, cancel := context.WithTimeoutCause(ctx, socketPatience, fmt.Errorf("its container has not handed out a disk within %v: see that container's log", socketPatience))
	defer cancel()
	f, err := filesocket.Receive(wait, i.File.Socket)
	var said *filesocket.Fault
	switch {
	case errors.As(err, &said):
		return fmt.Errorf("image %s %w", i.File.Image, said)
	case err != nil:
		return fmt.Errorf("image %s can't be used: %w", i.File.Image, err)
	}
	defer f.Close()
	if err := i.receiveImage(ctx, t, f); err != nil {
		return fmt.Errorf("image %s: %w", i.File.Image, err)
	}
	return nil
}

// receiveImage makes the disk of an image's file, also of one that is compressed or an archive.
func (i *Importer) receiveImage(ctx context.Context, t *target, f *os.File) error {
	info, err := disk.Probe(f)
	if err != nil {
		return err
	}
	if info.Foreign == nil {
		return i.take(ctx, t, f, 0)
	}
	d := &download{Importer: i, target: t, stream: &stream{ctx: ctx}}
	defer d.close()
	if err := d.unpack(io.NewSectionReader(f, 0, info.FileSize)); err != nil {
		return err
	}
	return d.finish(ctx)
}

// take makes the disk of a whole image. begin is the progress that was made until here.
func (i *Importer) take(ctx context.Context, t *target, f *os.File, begin float64) error {
	info, err := disk.Probe(f)
	if err != nil {
		return err
	}
	if info.Format != disk.Raw && info.Format != disk.LUKS {
		return i.convert(ctx, t, f, info, begin)
	}
	if info.Foreign != nil {
		return info.Foreign
	}
	if info.FileSize == 0 {
		return errors.New("it is empty: name one that has a disk")
	}
	if err := t.fits(info.FileSize); err != nil {
		return err
	}
	if err := t.begin(); err != nil {
		return err
	}
	return i.copyRaw(ctx, t, f, info.FileSize)
}

// fromClaim copies another claim's disk, raw as it is.
func (i *Importer) fromClaim(ctx context.Context, t *target) error {
	path := i.Copy.Path
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		path = filepath.Join(path, diskName)
	}
	fault := func(err error) error { return fmt.Errorf("claim %s: %w", i.Copy.Claim, err) }
	f, err := os.OpenFile(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return fault(fmt.Errorf("there is no %s on it to copy", diskName))
	}
	if err != nil {
		return fault(err)
	}
	defer f.Close()
	// The copy is of a disk at rest. A file's lock also keeps off a VM that comes to write to it meanwhile.
	if err := errors.Join(disk.CheckFree(f), disk.Lock(f, false)); err != nil {
		return fault(err)
	}
	size, err := f.Seek(0, io.SeekEnd) // of devices, too
	if err == nil {
		err = t.fits(size)
	}
	if err != nil {
		return fault(err)
	}
	if err := t.begin(); err != nil {
		return err
	}
	if err := i.copyRaw(ctx, t, f, size); err != nil {
		return fault(err)
	}
	return nil
}

// copyRaw copies a raw image, without its holes.
func (i *Importer) copyRaw(ctx context.Context, t *target, f *os.File, size int64) error {
	w := t.writer(0)
	for at := int64(0); at < size; {
		data, err := f.Seek(at, unix.SEEK_DATA)
		switch {
		case errors.Is(err, unix.ENXIO):
			data = size // nothing but a hole follows
		case err != nil:
			data = at // a filesystem without holes
		}
		data = min(data, size)
		if err := w.skip(data - at); err != nil {
			return err
		}
		hole, err := f.Seek(data, unix.SEEK_HOLE)
		if err != nil || hole <= data || hole > size {
			hole = size
		}
		part := &counted{ctx: ctx, from: io.NewSectionReader(f, data, hole-data), told: func(n int64) { i.Progress.set(float64(data+n) / float64(size)) }}
		n, err := io.Copy(w, part)
		if err == nil && n < hole-data {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		at = hole
	}
	return w.flush()
}

// counted is a reader that ends with a context, and tells how much was read.
type counted struct {
	ctx  context.Context
	from io.Reader
	n    int64
	told func(int64)
}

func (c *counted) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.from.Read(p)
	c.n += int64(n)
	c.told(c.n)
	return n, err
}
