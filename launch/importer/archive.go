package importer

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/vmlet/vmlet/disk"
)

const (
	// maxArchived is how many files an archive may have.
	maxArchived = 1000
	// leastDisk is the least size of a raw disk in an archive, in bytes: firmware variables and signatures
	// that lie beside one are smaller.
	leastDisk = 1 << 20
)

// fromTar writes the one disk of a tar archive. Which of its files that is their content says; their names
// are for messages alone.
func (d *download) fromTar(content io.Reader) error {
	bounded := &bounds{from: content, room: d.room + excess}
	archive := tar.NewReader(bounded)
	found := ""
	for n := 0; ; n++ {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && n == maxArchived {
			err = fatal{fmt.Errorf("it has more than %d files: unpack it and offer its disk", maxArchived)}
		}
		if err != nil {
			return inArchive(err)
		}
		file := bufio.NewReaderSize(archive, disk.ForeignLength)
		head, err := file.Peek(disk.ForeignLength)
		if err != nil && !errors.Is(err, io.EOF) {
			return inArchive(err)
		}
		if !isDisk(head, h.Size) {
			continue
		}
		if found != "" {
			return inArchive(fatal{fmt.Errorf("it has more than one disk, %.100q and %.100q: unpack it and offer one of them", found, h.Name)})
		}
		found = h.Name
		if err := d.choose(head); err != nil {
			return err
		}
		if err := d.write(file, true, 0); err != nil {
			return inArchive(err)
		}
	}
	if found == "" {
		return inArchive(fatal{fmt.Errorf("it has no disk that is not compressed, raw ones of at least %d bytes: unpack it and offer its disk", leastDisk)})
	}
	_, err := io.Copy(io.Discard, bounded) // the decompressor's sum is of all
	return err
}

func inArchive(err error) error { return fmt.Errorf("the tar archive can't be used: %w", err) }

// isDisk tells the disk in an archive from what lies beside it.
func isDisk(head []byte, size int64) bool {
	if disk.Recognise(head) != disk.Raw {
		return true
	}
	return size >= leastDisk && size%sector == 0 && disk.RecogniseForeign(head) == nil
}
