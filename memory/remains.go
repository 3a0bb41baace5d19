package memory

import (
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/interrupted"
)

// Remains is what a Writer has made, to be written down by its owner: should the owner
// be killed, somebody else can remove just that.
type Remains struct {
	Directory string `json:"directory"`
	// Made: the folder, too.
	Made   bool   `json:"made,omitempty"`
	Folder FileID `json:"folder"`
	// Files by their names; zero: the Writer was about to make it, and it is empty.
	Files map[string]FileID `json:"files"`
}

// FileID is a file, whatever its name is.
type FileID struct {
	DeviceMajor uint32 `json:"deviceMajor"`
	DeviceMinor uint32 `json:"deviceMinor"`
	Inode       uint64 `json:"inode"`
	// Born is when it was made, in nanoseconds since 1970: a file that is made later may
	// get the inode of one that was removed. 0: the filesystem doesn't know.
	Born int64 `json:"born,omitempty"`
}

func idOf(st *unix.Statx_t) FileID {
	id := FileID{DeviceMajor: st.Dev_major, DeviceMinor: st.Dev_minor, Inode: st.Ino}
	if st.Mask&unix.STATX_BTIME != 0 {
		id.Born = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return id
}

// look is about a file of the folder, or with an empty name the folder.
func (d *folder) look(name string) (*unix.Statx_t, error) {
	var st unix.Statx_t
	err := interrupted.Retry(func() error {
		return unix.Statx(d.fd(), name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)
	})
	if err != nil {
		return nil, &os.PathError{Op: "stat", Path: d.join(name), Err: err}
	}
	return &st, nil
}

// claimed notes the folder and what is going to be made there.
func (w *Writer) claimed() error {
	if w.opts.Note == nil {
		return nil
	}
	st, err := w.folder.look("")
	if err != nil {
		return err
	}
	w.remains = Remains{Directory: w.folder.path, Made: w.madeDir, Folder: idOf(st),
		Files: map[string]FileID{MemoryName: {}, StateName: {}, manifestTemp: {}}}
	return w.opts.Note(w.remains)
}

// planned notes a file that is about to be made.
func (w *Writer) planned(name string) error {
	if w.opts.Note == nil {
		return nil
	}
	w.remains.Files[name] = FileID{}
	return w.opts.Note(w.remains)
}

// created notes a file that is there, before anything is in it.
func (w *Writer) created(name string) error {
	if w.opts.Note == nil {
		return nil
	}
	st, err := w.folder.look(name)
	if err != nil {
		return err
	}
	w.remains.Files[name] = idOf(st)
	return w.opts.Note(w.remains)
}

// Remove removes what is left of a save that came to no end, and nothing else: not from
// another folder of that name, no file in the place of one that was noted, and nothing at
// all where there is a manifest, or where something is under way.
func (r *Remains) Remove() error {
	d, err := openFolder(r.Directory)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.dir.Close()
	st, err := d.look("")
	if err != nil {
		return err
	}
	if idOf(st) != r.Folder {
		return nil // it is gone, and what has its name now is somebody else's
	}
	if err := lock(d.dir, unix.LOCK_EX); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	names, err := d.names()
	if err != nil || slices.Contains(names, ManifestName) {
		return err
	}
	var errs []error
	for _, name := range names {
		if want, noted := r.Files[name]; noted && isPart(name) {
			errs = append(errs, d.removeThat(name, want))
		}
	}
	if err := errors.Join(errs...); err != nil || !r.Made {
		return err
	}
	if err := d.rmdir(); !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EBUSY) {
		return err
	}
	return nil
}

// removeThat removes a file if it is the one that was noted.
func (d *folder) removeThat(name string, want FileID) error {
	st, err := d.look(name)
	if err != nil {
		return err
	}
	same := idOf(st) == want
	if want == (FileID{}) { // killed between the two: there is nothing in it
		same = st.Size == 0 && st.Nlink == 1 && st.Uid == uint32(os.Geteuid())
	}
	if !same || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return contract.Errorf("%s: not the file that the save had made there: left", contract.ObjectName(d.join(name)))
	}
	return d.remove(name)
}
