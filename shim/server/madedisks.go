package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/shim"
)

// savedPrefix begins the names that the cluster half gives to images' folders.
const savedPrefix = "restore-"

// madeDisks are the disks that were made in the pod, and would be lost with it: they belong
// into its VM's images.
func (s *saves) madeDisks(v *vm) []watchedDisk {
	if s.o.Pod == nil || s.o.Pod.Made == "" {
		return nil
	}
	var made []watchedDisk
	for _, d := range v.disks {
		listed := slices.ContainsFunc(made, func(m watchedDisk) bool { return m.path == d.path })
		if filepath.Dir(d.path) == filepath.Clean(s.o.Pod.Made) && !listed {
			made = append(made, d)
		}
	}
	return made
}

// madeBytes is what they take, as far as it is known while the guest runs.
func (s *saves) madeBytes(v *vm) (bytes uint64, err error) {
	for _, d := range s.madeDisks(v) {
		touched, err := memory.TouchedBytes(d.file)
		if err != nil {
			return 0, contract.Errorf("%s: %w", contract.ObjectName(d.path), err)
		}
		bytes += touched
	}
	return bytes, nil
}

// copyMade takes them into the image. The guest is paused, and its disks are settled.
func (s *saves) copyMade(ctx context.Context, p *prepared, v *vm, progress func(shim.Progress)) error {
	made := s.madeDisks(v)
	total, err := s.madeBytes(v)
	if err != nil {
		return err
	}
	for _, d := range made {
		err := p.image.CopyFile(ctx, d.file, d.path, func(bytes uint64) {
			p.filesBytes += bytes
			progress(shim.Progress{Step: "saving disks", Done: min(p.filesBytes, total), Total: total})
		})
		if err != nil {
			return fmt.Errorf("disk %s: %w", d.name, err)
		}
	}
	return nil
}

// earlierSaves says which folders are of the same VM as one that is named restore-VM-TIME;
// nil if it is not named so: then its neighbours may be anybody's.
func earlierSaves(name string) func(name string) bool {
	stem := func(name string) string { return name[:max(0, strings.LastIndexByte(name, '-'))] }
	if !strings.HasPrefix(stem(name), savedPrefix) {
		return nil
	}
	return func(other string) bool { return stem(other) == stem(name) }
}

// clearUsed makes room in the volume that a pod's VM is saved to: its restore may have been
// killed before it removed the image that it went on from. What fails here costs room alone.
func (s *saves) clearUsed(p *prepared) {
	own := earlierSaves(filepath.Base(p.directory))
	if s.o.Pod == nil || own == nil {
		return
	}
	parent := p.parent
	if parent == nil {
		var err error
		if parent, err = os.Open(filepath.Dir(p.directory)); err != nil {
			return // the save's own error says more
		}
		defer parent.Close()
	}
	removed, err := memory.Clear(parent, own)
	if len(removed) > 0 {
		s.log.Info("removed what earlier saves had left in the volume", "folders", removed)
	}
	if err != nil {
		s.log.Warn("failed to remove what earlier saves have left in the volume", "error", err)
	}
}
