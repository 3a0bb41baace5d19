package main

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
)

// beyondGuest is where in its memory the tiny guest has nothing, in bytes.
const beyondGuest = 64 << 20

// touch fills size bytes of the running guest's memory with random pages from its
// RAM file, behind its back: under emulation the guest itself would take minutes,
// and no page differs by who has written it.
func (v *vmlet) touch(size uint64) error {
	path, err := v.ramFile()
	if err != nil {
		return err
	}
	ram, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer ram.Close()
	const piece = 4 << 20
	var group errgroup.Group
	group.SetLimit(2)
	for off := uint64(0); off < size; off += piece {
		group.Go(func() error {
			b := make([]byte, min(piece, size-off))
			randomWords(b)
			_, err := ram.WriteAt(b, int64(beyondGuest+off))
			return err
		})
	}
	return group.Wait()
}

// ramFile is the file that the one VM's memory is in.
func (v *vmlet) ramFile() (string, error) {
	files, err := filepath.Glob(v.path("run/ram/*"))
	if err != nil || len(files) != 1 {
		return "", fmt.Errorf("the guest's RAM file is one of %v: %v", files, err)
	}
	return files[0], nil
}

// randomWords fills b, a multiple of eight bytes, with what no disk can compress.
func randomWords(b []byte) {
	var seed [16]byte
	rand.Read(seed[:]) // never fails, by its documentation
	source := mathrand.NewPCG(binary.LittleEndian.Uint64(seed[:8]), binary.LittleEndian.Uint64(seed[8:]))
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], source.Uint64())
	}
}
