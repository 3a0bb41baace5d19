package sysfs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"unicode"

	"github.com/vmlet/vmlet/sysfs/notation"
	"golang.org/x/sys/unix"
)

// maxFile bounds what is read of one file, in bytes. A file of /sys has at most
// a page, a list of CPUs a few; the longest that is read of /proc, cpuinfo, is
// read by its head.
const maxFile = 256 << 10

// maxEntries bounds what is listed of one folder.
const maxEntries = notation.MaxID

// maxNotes bounds the notes: who gets a thousand has read enough.
const maxNotes = 1000

// maxListed bounds the numbers of all the different lists of a tree together.
// The lists of one kind divide the CPUs among them, so real machines stay below
// some ten times notation.MaxID.
const maxListed = 16 * notation.MaxID

// reader reads files and keeps the notes. It is not safe for concurrent use.
// One that has its roots is ready; close it after use.
type reader struct {
	roots Roots
	notes []Note
	trees []tree
	// buffer is for the files' content, one after the other.
	buffer []byte
	// lists are those read so far, by their text: most lists are said many times.
	lists  map[string]IDList
	listed int
	// walked are the numbers of the lists that were gone through.
	walked int
}

func (r *reader) note(path, format string, args ...any) {
	if len(r.notes) <= maxNotes {
		r.addNotes([]Note{{Path: path, Message: fmt.Sprintf(format, args...)}})
	}
}

// addNotes keeps the first maxNotes and says so if there are more.
func (r *reader) addNotes(notes []Note) {
	for _, note := range notes {
		if len(r.notes) == maxNotes {
			note.Message = fmt.Sprintf("and more: only %d notes are kept", maxNotes)
		}
		if len(r.notes) <= maxNotes {
			r.notes = append(r.notes, note)
		}
	}
}

// failed notes an error, unless it says that there is no such file: what isn't
// there on a machine is no fault of it. ENODEV and ENXIO are what sysfs answers
// for a fact that its device doesn't have; EINVAL what some drivers do.
func (r *reader) failed(path string, err error) {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) ||
		errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.EINVAL) {
		return
	}
	if errors.Is(err, syscall.EXDEV) {
		r.note(path, "a link leads out of the root; it is not followed")
		return
	}
	var perr *fs.PathError
	if errors.As(err, &perr) {
		err = perr.Err
	}
	r.note(path, "%v", err)
}

// text returns a file's content without the white space around it; false if
// there is none. Some kernels end a list in a NUL: old ones that of the nodes
// online, those from 5.16 on every list of a CPU and of a node
// (bitmap_print_to_buf); or have it in place of an empty one (nohz_full).
func (r *reader) text(path string) (string, bool) {
	content, err := r.read(path, maxFile)
	if err != nil {
		r.failed(path, err)
		return "", false
	}
	if len(content) == maxFile {
		r.note(path, "it has %d bytes or more, which is too long to make sense", maxFile)
		return "", false
	}
	return string(bytes.TrimSpace(bytes.TrimRightFunc(content, blank))), true
}

// blank is white space, and the NUL.
func blank(r rune) bool { return r == 0 || unicode.IsSpace(r) }

// head returns at most the first size bytes of a file; false if there is none.
func (r *reader) head(path string, size int) (string, bool) {
	content, err := r.read(path, size)
	if err != nil {
		r.failed(path, err)
		return "", false
	}
	return string(content), true
}

// read reads at most limit bytes of a file; what it returns is good until the
// next read. It makes as few system calls as it can, which is what reading
// thousands of small files costs, and none through the runtime's poller, which
// would wait for a pipe's other end.
func (r *reader) read(path string, limit int) ([]byte, error) {
	fd, whole, err := r.open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	r.scratch()
	for length := 0; ; {
		if length == len(r.buffer) {
			r.buffer = append(r.buffer, make([]byte, length)...)
		}
		n, err := unix.Read(fd, r.buffer[length:min(limit, len(r.buffer))])
		if err == unix.EINTR {
			continue
		}
		if err != nil || length+n == 0 {
			return nil, cmp.Or(irregular(fd), err)
		}
		if length += n; n == 0 || length == limit || (whole && n < pageSize) {
			return r.buffer[:length], nil
		}
	}
}

// scratch is the buffer, which has room for any path (PATH_MAX).
func (r *reader) scratch() []byte {
	if r.buffer == nil {
		r.buffer = make([]byte, 2*pageSize)
	}
	return r.buffer
}

// pageSize is the least that a read of a file of /sys gives if there is more.
const pageSize = 4096

// irregular tells why nothing can be read of what isn't a file.
func irregular(fd int) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return syscall.EISDIR
	}
	return errors.New("it is a pipe or a device, not a file")
}

// number reads a whole number; "0x" before it is taken too.
func (r *reader) number(path string) (int64, bool) {
	text, ok := r.text(path)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 0, 64)
	if err != nil {
		r.note(path, "%.40q is not a number", text)
		return 0, false
	}
	return n, true
}

// count reads a number that can't be negative, and is 0 if it is missing.
func (r *reader) count(path string) uint64 {
	n, ok := r.number(path)
	if ok && n < 0 {
		r.note(path, "%d is negative", n)
	}
	return uint64(max(n, 0))
}

// list reads a list of CPUs or nodes, which is not to be changed: others may
// have the same.
func (r *reader) list(path string) (IDList, bool) {
	text, ok := r.text(path)
	if !ok {
		return IDList{}, false
	}
	return r.parseList(path, text)
}

// parseList reads each list that is different once.
func (r *reader) parseList(path, text string) (IDList, bool) {
	return r.parseOnce(path, text, "", notation.ParseIDList)
}

// cpuList reads who is in a group of CPUs from the first of the files that is
// there: from lists, or else from masks, which is all that some trees that were
// captured have. The text tells different ones apart.
func (r *reader) cpuList(folder string, lists, masks []string) (text string, list IDList, ok bool) {
	for _, name := range lists {
		if text, ok := r.text(folder + name); ok {
			if list, ok := r.parseList(folder+name, text); ok {
				return text, list, true
			}
		}
	}
	for _, name := range masks {
		if text, ok := r.text(folder + name); ok {
			if list, ok := r.parseOnce(folder+name, text, "mask ", notation.ParseMask); ok {
				return text, list, true
			}
		}
	}
	return "", IDList{}, false
}

// parseOnce keeps what comes of a text; kind tells the same text in another
// notation apart.
func (r *reader) parseOnce(path, text, kind string, parse func(string) (IDList, error)) (IDList, bool) {
	if list, ok := r.lists[kind+text]; ok {
		return list, true
	}
	list, err := parse(text)
	if err != nil {
		r.note(path, "%v", err)
		return IDList{}, false
	}
	if r.listed += len(list) + len(text)/8; r.listed > maxListed {
		r.note(path, "there are too many different lists of this length to make sense")
		return IDList{}, false
	}
	if r.lists == nil {
		r.lists = map[string]IDList{}
	}
	r.lists[kind+text] = list
	return list, true
}

// worthwhile bounds how many numbers are gone through in the lists of groups of
// CPUs together. Groups don't overlap, so on a real machine that is little.
func (r *reader) worthwhile(path string, list IDList) bool {
	if r.walked += len(list); r.walked > maxListed {
		r.note(path, "the lists together name too many CPUs to make sense")
		return false
	}
	return true
}

// names lists a folder, sorted; nil if there is none.
func (r *reader) names(path string) []string {
	fd, _, err := r.open(path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		r.failed(path, err)
		return nil
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	names, err := f.Readdirnames(maxEntries)
	if err != nil && err != io.EOF {
		r.failed(path, err)
	}
	if len(names) == maxEntries {
		r.note(path, "has more than %d entries; the rest is left out", maxEntries-1)
	}
	slices.Sort(names)
	return names
}

// link returns the last element of what a symbolic link points to, which is how
// sysfs names a driver, a group, a parent; false if there is none.
func (r *reader) link(path string) (string, bool) {
	fd, _, err := r.open(path, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		r.failed(path, err)
		return "", false
	}
	defer unix.Close(fd)
	target := r.scratch()
	n, err := unix.Readlinkat(fd, "", target)
	if err != nil {
		// ENOENT is what a descriptor of something else than a link gives.
		r.failed(path, err)
		return "", false
	}
	return filepath.Base(string(target[:n])), true
}

// exists reports whether there is something of that name, of whatever kind.
func (r *reader) exists(path string) bool {
	fd, _, err := r.open(path, unix.O_PATH)
	if err != nil {
		r.failed(path, err)
		return false
	}
	unix.Close(fd)
	return true
}

// checkRoots notes a root that can't be opened: everything below it will be
// missing without a word. A machine needs no /dev, unless it was asked for.
func (r *reader) checkRoots() {
	r.openTrees()
	for _, t := range r.trees {
		if t.err == nil || (r.roots.Dev == "" && t.root == r.roots.DevPath()) {
			continue
		}
		if errors.Is(t.err, fs.ErrNotExist) {
			r.note(t.root, "there is no such folder, so nothing of it is known")
			continue
		}
		r.note(t.root, "nothing of it is known: %v", t.err)
	}
}

// sys returns the path of a file below /sys that is named in one piece, which
// costs less than joining elements: it is done for every file of every CPU.
func (r *reader) sys(name string) string { return r.roots.SysPath() + "/" + name }

// proc is the same for /proc.
func (r *reader) proc(name string) string { return r.roots.ProcPath() + "/" + name }

// small reads a number that can't be large; 0 if it is missing or makes no sense.
func (r *reader) small(path string) int {
	n := r.count(path)
	if n > 1<<31-1 {
		r.note(path, "%d is too much to make sense", n)
		return 0
	}
	return int(n)
}
