package guest

import (
	"bytes"
	"fmt"
)

// File types and permissions of a cpio archive, as stat(2) has them.
const (
	modeDir  = 0o040755
	modeExec = 0o100755
	modeFile = 0o100644
	modeChar = 0o020600
)

// archive writes a cpio archive in the "newc" format, which is what Linux
// unpacks as its initramfs (Documentation/driver-api/early-userspace/
// buffer-format.rst of the kernel). Everything in it belongs to root and has no
// time, so that the same content makes the same archive.
type archive struct {
	buf   bytes.Buffer
	inode int
}

// add appends a file; the folder that it is in has to come before it. Major and
// minor are those of a device, else 0.
func (a *archive) add(name string, mode, major, minor int, content []byte) {
	a.inode++
	fmt.Fprintf(&a.buf, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.inode, mode, 0, 0, 1, 0, len(content), 0, 0, major, minor, len(name)+1, 0, name)
	a.pad()
	a.buf.Write(content)
	a.pad()
}

// close ends the archive and returns it.
func (a *archive) close() []byte {
	a.inode = -1 // the last entry has the inode 0
	a.add("TRAILER!!!", 0, 0, 0, nil)
	return a.buf.Bytes()
}

// pad aligns to four bytes, as every part has to be.
func (a *archive) pad() {
	for a.buf.Len()%4 != 0 {
		a.buf.WriteByte(0)
	}
}
