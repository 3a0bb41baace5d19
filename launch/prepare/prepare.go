// Package prepare carries out what package launch describes: it makes a pod's disks before
// the VM starts, and says in the specification what became of them. It knows of no VMM and
// of no agent. Start with Preparer.Run.
//
// What it reads comes from users' images, volumes and secrets: all of it is bounded, and
// nothing that an image's header names is opened. An error is the sentence that the user is
// shown: it names the image or the volume, and says what to do.
package prepare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/launch"
)

const (
	// maxDisks bounds the disks of one VM.
	maxDisks = 256
	// atOnce is how many disks are made at the same time: most of that time is waiting.
	atOnce = 8
	// socketPatience is how long a container may take to hand out its file. It was started
	// before this one.
	socketPatience = time.Minute
)

// Preparer has the folders of a pod.
type Preparer struct {
	// Made is where overlays and generated images go; it is there.
	Made string
	// Sockets has the sockets of files that other containers hand out.
	Sockets string
}

// Run makes all disks and returns the specification with them, as JSON. An error joins one
// for each disk that can't be made. Run again, it keeps what guests have written.
func (p Preparer) Run(ctx context.Context, what launch.Preparation, specification []byte) ([]byte, error) {
	if len(what.Disks) > maxDisks {
		return nil, fmt.Errorf("%d disks to prepare: a VM has at most %d", len(what.Disks), maxDisks)
	}
	s, err := parse(specification)
	if err != nil {
		return nil, err
	}
	paths := make([]string, len(what.Disks))
	for i, d := range what.Disks {
		if paths[i], err = p.where(s, what.Disks[:i], d); err != nil {
			return nil, err
		}
	}
	results, faults := make([]result, len(what.Disks)), make([]error, len(what.Disks))
	var all sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for i, d := range what.Disks {
		all.Go(func() {
			free <- struct{}{}
			results[i], faults[i] = p.disk(ctx, d, paths[i])
			<-free
		})
	}
	all.Wait()
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	for i, d := range what.Disks {
		faults[i] = s.fill(d.Name, results[i])
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return s.text()
}

// where says where a disk is made.
func (p Preparer) where(s *specification, before []launch.Disk, d launch.Disk) (string, error) {
	path, err := s.path(d.Name)
	switch {
	case err != nil:
		return "", err
	case d.Name != filepath.Base(d.Name):
		return "", fmt.Errorf("volume %.100q: this is no name of a volume", d.Name)
	case slices.ContainsFunc(before, func(other launch.Disk) bool { return other.Name == d.Name }):
		return "", fmt.Errorf("volume %s is listed twice in the preparation", d.Name)
	}
	extension := ".iso"
	switch {
	case d.Overlay != nil:
		extension = ".qcow2"
	case d.Raw != nil:
		extension = ".img"
	}
	return cmp.Or(path, filepath.Join(p.Made, d.Name+extension)), nil
}

// disk makes one disk.
func (p Preparer) disk(ctx context.Context, d launch.Disk, path string) (r result, err error) {
	switch {
	case d.Overlay != nil:
		r, err = p.overlay(ctx, *d.Overlay, path)
	case d.Raw != nil:
		r, err = p.raw(*d.Raw, path)
	case d.Files != nil:
		r, err = files(*d.Files, path)
	case d.CloudInit != nil:
		r, err = seed(*d.CloudInit, path)
	default:
		err = errors.New("the preparation says nothing of what it is made of")
	}
	var known *imageFault
	if err != nil && !errors.As(err, &known) {
		err = &volumeFault{d.Name, err}
	}
	return r, err
}

// volumeFault is a fault of a volume of the pod's.
type volumeFault struct {
	name string
	err  error
}

func (f *volumeFault) Error() string { return fmt.Sprintf("volume %s: %v", f.name, f.err) }
func (f *volumeFault) Unwrap() error { return f.err }

// Faults are the error in parts (contract.FaultsOf): about the volume, where no file is known.
func (f *volumeFault) Faults() []contract.Fault {
	all := contract.FaultsOf(f.err)
	for i := range all {
		if all[i].Object == "" {
			all[i].Object = filepath.Join(contract.DisksFolder, f.name)
		} else {
			all[i].Text = "volume " + f.name + ": " + all[i].Text
		}
	}
	return all
}

// imageFault is one whose subject is a container image, which says more than the volume.
type imageFault struct {
	image string
	err   error
}

func (f *imageFault) Error() string { return fmt.Sprintf("image %s %v", f.image, f.err) }
func (f *imageFault) Unwrap() error { return f.err }
