package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/interrupted"

	"github.com/vmlet/vmlet/internal/faultpoint"
)

// Options are the settings of a Writer; the zero value is good.
type Options struct {
	// Workers copy RAM at the same time; each has a buffer of one chunk, 1 MiB
	// for guests up to 1 TiB. 0: as many as CPUs, from 2 to 4.
	Workers int
	// Buffered writes through the page cache even where direct I/O works.
	Buffered bool
	// Note, if set, writes down what the Writer has made or is about to, at each such
	// step. Once the Writer has come to its end that is void. An error fails the step.
	Note func(Remains) error
}

// Writer makes an image. Its methods are not for concurrent use. Every Writer
// must come to Commit or Abort; Abort after either does nothing, so that it
// can be deferred.
type Writer struct {
	folder  *folder
	opts    Options
	madeDir bool
	made    []string // files but the manifest, to be removed by Abort
	placed  bool     // the manifest has, or may have, its name
	over    bool
	remains Remains

	memory *directFile // nil: layout stream
	saved  SaveStats
	chunk  uint64
	chunks ChunkSums
	files  []File

	state     *os.File
	sealed    bool
	stateSize uint64
	stateSum  Sum32
}

// Create starts an image in a folder that is empty or does not exist; its
// parent must. A folder made here has the mode 0700, files have 0600. The
// errors wrap ErrInUse or ErrNotEmpty, or are the system's. Where the
// filesystem has no locks for folders, creating the files exclusively still
// keeps two writers apart.
func Create(dir string, opts Options) (*Writer, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	return create(nil, dir, opts)
}

// CreateIn is Create of a folder in an open one, which may be open by O_PATH alone and
// must stay open until the Writer has come to its end. Errors name the folder by its name
// there. Options.Note can't be used: nobody could find the folder by what it says.
func CreateIn(parent *os.File, name string, opts Options) (*Writer, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	opts.Note = nil
	return create(parent, name, opts)
}

// checkName refuses what is not the name of a folder in another one.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%.100q: not the name of a folder: %w", name, os.ErrInvalid)
	}
	return nil
}

func create(parent *os.File, dir string, opts Options) (*Writer, error) {
	w := &Writer{opts: opts}
	if w.opts.Workers <= 0 {
		w.opts.Workers = defaultWorkers()
	}
	err := interrupted.Retry(func() error { return unix.Mkdirat(fdOf(parent), dir, 0o700) })
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &os.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	w.madeDir = err == nil
	if w.folder, err = openFolderIn(parent, dir); err != nil {
		if w.madeDir {
			err = errors.Join(err, interrupted.Retry(func() error { return unix.Unlinkat(fdOf(parent), dir, unix.AT_REMOVEDIR) }))
		}
		return nil, err
	}
	if err := w.claim(); err != nil {
		return nil, errors.Join(err, w.Abort())
	}
	return w, nil
}

// claim locks the folder and sees that it is empty.
func (w *Writer) claim() error {
	if err := lock(w.folder.dir, unix.LOCK_EX); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	// Another writer may have removed the folder before the lock was ours.
	if err := w.folder.checkLinked(); err != nil {
		return err
	}
	names, err := w.folder.names()
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return w.claimed()
	}
	what := "it has " + strings.Join(names[:min(len(names), 5)], ", ")
	switch kind := kindOf(names); kind {
	case kindImage:
		what = "it is a memory image"
	case kindUnfinished:
		what = "it has the remains of a save that came to no end"
	}
	return contract.Errorf("%s: %w: %s: remove it or name another folder", contract.ObjectName(w.folder.path), ErrNotEmpty, what)
}

// Path returns the folder's absolute path, or its name in the folder that CreateIn was given.
func (w *Writer) Path() string { return w.folder.path }

func (w *Writer) create(name string) (*os.File, error) {
	f, err := w.folder.open(name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
	// It may have been made and the answer lost, or what came next have failed.
	if !errors.Is(err, unix.EEXIST) {
		w.made = append(w.made, name)
	}
	if err == nil {
		if err = w.created(name); err != nil {
			f.Close()
			return nil, err
		}
	}
	return f, err
}

// StateFile returns the file that takes the VMM's device state, empty, open for
// reading and writing; the same at every call. It belongs to the Writer.
func (w *Writer) StateFile() (*os.File, error) {
	if w.over {
		return nil, os.ErrClosed
	}
	if w.state == nil {
		f, err := w.create(StateName)
		if err != nil {
			return nil, err
		}
		w.state = f
	}
	return w.state, nil
}

// Seal makes memory and state durable, and sums the state; neither must change any more.
func (w *Writer) Seal(ctx context.Context) error {
	if w.over || w.state == nil {
		return contract.Errorf("%s: no device state to seal", contract.ObjectName(w.folder.path))
	}
	var syncs errgroup.Group // at a time: a journal takes both in one write
	if w.memory != nil {
		syncs.Go(w.memory.Sync)
	}
	syncs.Go(w.state.Sync)
	if err := syncs.Wait(); err != nil {
		return err
	}
	st, err := w.state.Stat()
	if err != nil {
		return err
	}
	w.stateSize = uint64(st.Size())
	if w.stateSum, err = sumFile(ctx, w.state, w.stateSize, func(uint64) {}); err != nil {
		return err
	}
	w.sealed = true
	return nil
}

// Commit makes the image whole: it seals what was not sealed, and puts manifest.json
// in place, durably. It fills in m, see
// Manifest, and refuses an m that could not be read back. After an error the
// folder is no image, and Abort is still to be called.
func (w *Writer) Commit(ctx context.Context, m *Manifest) error {
	if w.over {
		return os.ErrClosed
	}
	if !w.sealed {
		if err := w.Seal(ctx); err != nil {
			return err
		}
	}
	if err := w.complete(m); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := w.publish(m); err != nil {
		return err
	}
	w.close()
	return nil
}

// complete sets what the Writer knows better than its caller.
func (w *Writer) complete(m *Manifest) error {
	m.FormatVersion, m.Sum = FormatVersion, SumCRC32C
	m.StateSize, m.StateSum = w.stateSize, w.stateSum
	if m.ID == "" {
		m.ID = NewID()
	}
	if m.CreatedAt.IsZero() {
		m.CreatedAt = time.Now().UTC()
	}
	if m.Layout == "" {
		m.Layout = LayoutRaw
	}
	if m.Layout == LayoutRaw != (w.memory != nil) {
		return contract.Errorf("%s: layout %s, but memory was copied: %t", contract.ObjectName(w.folder.path), m.Layout, w.memory != nil)
	}
	m.Chunks, m.ChunkSize, m.DataBytes, m.Files = w.chunks, w.chunk, w.saved.DataBytes, w.files
	if w.memory != nil {
		m.MemorySize = w.saved.Size
	}
	return nil
}

// publish writes the manifest beside its place and then puts it there, durably.
func (w *Writer) publish(m *Manifest) error {
	b, err := m.encode()
	if err != nil {
		return err
	}
	// What could not be read back would be lost: see that it can.
	if _, err := ReadManifest(bytes.NewReader(b), w.folder.join(ManifestName)); err != nil {
		return err
	}
	f, err := w.create(manifestTemp)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(b); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	faultpoint.Reach("image.manifest.written")
	// The names of the files before that of the manifest: not every filesystem keeps
	// changes of a folder in order when the power goes.
	if err := w.folder.dir.Sync(); err != nil {
		return err
	}
	w.placed = true
	if err := w.place(); err != nil {
		return errors.Join(err, w.unplace())
	}
	return nil
}

// place gives the manifest its name, durably.
func (w *Writer) place() error {
	err := interrupted.Retry(func() error {
		return unix.Renameat(w.folder.fd(), manifestTemp, w.folder.fd(), ManifestName)
	})
	if err != nil {
		return &os.PathError{Op: "rename", Path: w.folder.join(manifestTemp), Err: err}
	}
	faultpoint.Reach("image.manifest.named")
	if err := w.folder.dir.Sync(); err != nil {
		return err
	}
	if w.madeDir {
		return w.folder.syncParent()
	}
	return nil
}

// unplace takes the manifest away again, durably.
func (w *Writer) unplace() error {
	if err := w.folder.removeManifest(); err != nil {
		return err
	}
	w.placed = false
	return w.folder.dir.Sync()
}

// Abort removes all that the Writer made, and the folder if it made that. It returns
// what could not be removed.
func (w *Writer) Abort() error {
	if w.over {
		return nil
	}
	defer w.close()
	var errs []error
	if w.placed {
		errs = append(errs, w.unplace())
	}
	if w.placed {
		return errs[0] // better a whole image than half of one
	}
	for i := len(w.made) - 1; i >= 0; i-- {
		errs = append(errs, w.folder.remove(w.made[i]))
	}
	if w.madeDir {
		errs = append(errs, w.folder.rmdir())
	}
	return errors.Join(errs...)
}

// close releases the files and the lock.
func (w *Writer) close() {
	w.over = true
	if w.memory != nil {
		w.memory.Close()
	}
	if w.state != nil {
		w.state.Close()
	}
	w.folder.dir.Close()
}
