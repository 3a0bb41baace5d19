package guest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

// TestSmallDisk: its partition table has the file system where it is. That it boots is tested
// where VMs are.
func TestSmallDisk(t *testing.T) {
	disk, err := SmallDisk(t.Context())
	var missing *MissingError
	if errors.As(err, &missing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	entry := disk[446:462]
	start, size := binary.LittleEndian.Uint32(entry[8:])*sector, binary.LittleEndian.Uint32(entry[12:])*sector
	if int(start+size) != len(disk) {
		t.Errorf("the partition ends at %d, and the disk at %d", start+size, len(disk))
	}
	const superblock = 1024 + 56
	if magic := disk[start+superblock:][:2]; !bytes.Equal(magic, []byte{0x53, 0xef}) {
		t.Errorf("the partition has %x where ext4 has its number", magic)
	}
}
