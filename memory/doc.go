// Package memory keeps guest RAM in image folders: it copies RAM out of the
// file that backs it (tmpfs, hugetlbfs or memfd) and fills it in again.
// It knows nothing of virtual machines or of the programs that run them.
//
// # An image is a folder
//
//	manifest.json  what the image is and the sums of its parts; written last
//	memory         guest RAM, laid out as in its file: raw and sparse
//	state          the device state, opaque, as the VMM wrote it
//
// A folder without manifest.json is not an image, whatever else is in it.
// Manifest describes manifest.json. In the layout "stream" there is no memory
// file: RAM is a part of state.
//
// # Writing
//
// A Writer holds an exclusive flock(2) on the folder from Create to Commit or
// Abort. Anyone who runs from an image holds a shared one (Image.LockShared), so
// that Create and Remove refuse a folder in use. The lock belongs to an open
// folder, not to a path, and ends with the process that holds it.
// All files are opened relative to the folder's descriptor, without following
// symbolic links: what happens to the path meanwhile does not matter.
//
// # Direct I/O
//
// Image files are read and written with O_DIRECT, by a few workers that share
// the chunks among them, and through the page cache where the filesystem
// refuses that. RAM is read and written with pread(2) and pwrite(2) into a
// buffer of one chunk a worker rather than mapped: a copy that stays in the
// CPU's cache costs less than the page faults, zeroing and pinning that a
// mapping needs (measured: 30% less CPU time to save, 50% less to fill), does not
// allocate the pages of holes, does not count as resident memory of the copying
// process, and cannot raise SIGBUS when the file is truncated under it. Only
// hugetlbfs, which has no write(2), is filled through a mapping.
package memory
