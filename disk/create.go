package disk

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/interrupted"
)

// Sizes of the images that are made here: QEMU's own defaults.
const (
	madeClusterBits   = 16
	madeCluster       = 1 << madeClusterBits
	madeRefcountOrder = 4 // 16 bits each
	// mappedByL1Entry is how much of the disk one entry of the L1 table stands for: an L2
	// table is one cluster, of 8 bytes for each cluster of data.
	mappedByL1Entry = madeCluster / 8 * madeCluster
	sectorSize      = 512
)

// MaxVirtualSize is the size of the largest disk for which CreateOverlay makes an image, in
// bytes: QEMU opens no longer L1 table.
const MaxVirtualSize = maxL1Bytes / 8 * mappedByL1Entry

// Clusters of a new image. The L1 table may take several.
const (
	clusterHeader = iota
	clusterRefcountTable
	clusterRefcountBlock
	clusterL1
)

// CreateOverlay writes an empty qcow2 image over a base into an empty file. The base is
// only named in its header, and nothing is read of it; size is the new disk's, in bytes,
// and is rounded up to a sector of 512.
func CreateOverlay(f *os.File, base Image, size int64) error {
	switch {
	case size < 0 || size > MaxVirtualSize:
		return fmt.Errorf("a disk of %d bytes: a qcow2 image holds one of at most %d", size, int64(MaxVirtualSize))
	case len(base.Path) == 0 || len(base.Path) > maxBackingName:
		return fmt.Errorf("the base's path has %d bytes: a qcow2 image names one of 1 to %d", len(base.Path), maxBackingName)
	case base.Format != Raw && base.Format != QCOW2:
		return fmt.Errorf("the base is %s: only raw and qcow2 images can lie under another", base.Format)
	}
	size = roundUp(size, sectorSize)
	entries := roundUp(size, mappedByL1Entry) / mappedByL1Entry
	clusters := int64(clusterL1) + roundUp(entries*8, madeCluster)/madeCluster
	if err := f.Truncate(clusters * madeCluster); err != nil {
		return fmt.Errorf("making a qcow2 image: %w", err)
	}
	for _, part := range []struct {
		cluster int64
		content []byte
	}{
		{clusterHeader, overlayHeader(base, size, entries)},
		{clusterRefcountTable, binary.BigEndian.AppendUint64(nil, clusterRefcountBlock*madeCluster)},
		{clusterRefcountBlock, ones(clusters)},
	} {
		if _, err := f.WriteAt(part.content, part.cluster*madeCluster); err != nil {
			return fmt.Errorf("making a qcow2 image: %w", err)
		}
	}
	return nil
}

// overlayHeader is the first cluster of an image of version 3: the header, its extensions,
// the base's name.
func overlayHeader(base Image, size, l1Entries int64) []byte {
	be := binary.BigEndian
	extensions := be.AppendUint32(nil, extensionBackingFormat)
	extensions = be.AppendUint32(extensions, uint32(len(base.Format)))
	extensions = append(extensions, base.Format...)
	extensions = append(extensions, make([]byte, roundUp(int64(len(extensions)), 8)-int64(len(extensions))+8)...) // and the end's
	h := make([]byte, headerLengthV3)
	copy(h, qcowMagic)
	be.PutUint32(h[4:], 3)                                         // version
	be.PutUint64(h[8:], uint64(len(h)+len(extensions)))            // backing_file_offset
	be.PutUint32(h[16:], uint32(len(base.Path)))                   // backing_file_size
	be.PutUint32(h[20:], madeClusterBits)                          // cluster_bits
	be.PutUint64(h[24:], uint64(size))                             // size
	be.PutUint32(h[36:], uint32(l1Entries))                        // l1_size
	be.PutUint64(h[40:], clusterL1*madeCluster)                    // l1_table_offset
	be.PutUint64(h[48:], uint64(clusterRefcountTable*madeCluster)) // refcount_table_offset
	be.PutUint32(h[56:], 1)                                        // refcount_table_clusters
	be.PutUint32(h[96:], madeRefcountOrder)                        // refcount_order
	be.PutUint32(h[100:], headerLengthV3)                          // header_length
	h = append(h, extensions...)
	return append(h, base.Path...)
}

// ones says of each cluster that it is used once.
func ones(clusters int64) []byte {
	var out []byte
	for range clusters {
		out = binary.BigEndian.AppendUint16(out, 1)
	}
	return out
}

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// Room is how many bytes the file could have if its filesystem gave it all that is free for
// this user, beside those that the file has already taken there.
func Room(f *os.File) (int64, error) {
	var fs unix.Statfs_t
	var st unix.Stat_t
	err := control(f, func(fd int) error {
		return errors.Join(
			interrupted.Retry(func() error { return unix.Fstatfs(fd, &fs) }),
			interrupted.Retry(func() error { return unix.Fstat(fd, &st) }),
		)
	})
	if err != nil {
		return 0, fmt.Errorf("asking how much room there is: %w", err)
	}
	unit := uint64(cmp.Or(fs.Frsize, fs.Bsize, sectorSize))
	if fs.Bavail > (math.MaxInt64-uint64(st.Blocks)*sectorSize)/unit {
		return math.MaxInt64, nil
	}
	return int64(fs.Bavail*unit) + st.Blocks*sectorSize, nil
}
