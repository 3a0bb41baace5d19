package guest

import (
	"bytes"
	"fmt"
	"io"
)

// Witness is what a guest booted with vmlet.witness=DEVICE has last written to that disk.
type Witness struct {
	// Boot is the guest's boot ID.
	Boot string
	// Count grows with each record, over boots, too.
	Count int
	// Intrusion says that a boot found a record that it had not written; empty: none did.
	Intrusion string
}

// witnessBlock is the size of both blocks that test/guest/init writes.
const witnessBlock = 4096

// ReadWitness reads the beginning of such a disk. The error is io.ErrUnexpectedEOF if no record is there yet.
func ReadWitness(disk io.ReaderAt) (Witness, error) {
	blocks := make([]byte, 2*witnessBlock)
	if _, err := disk.ReadAt(blocks, 0); err != nil {
		return Witness{}, err
	}
	record, intrusion := bytes.TrimRight(blocks[:witnessBlock], "\x00"), bytes.TrimRight(blocks[witnessBlock:], "\x00")
	w := Witness{Intrusion: string(bytes.TrimSpace(intrusion))}
	if len(record) == 0 {
		return w, io.ErrUnexpectedEOF
	}
	if _, err := fmt.Sscanf(string(record), "witness %s %d end\n", &w.Boot, &w.Count); err != nil {
		return w, fmt.Errorf("the record %q: %w", record, err)
	}
	return w, nil
}
