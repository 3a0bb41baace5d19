package server

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/fault"
)

// keptFile is a file that a VMM was given and the next one gets as well: the same open file description, with its locks. A
// device or a disk could not be opened twice, and what a path leads to may be another file by now.
type keptFile struct {
	plan   plan.File
	device string // that it came with while the VMM ran; empty: it was there from the beginning
	file   *os.File
}

// covers says whether it is a plan's file.
func (k *keptFile) covers(f *plan.File) bool {
	if k.plan.Kind != f.Kind {
		return false
	}
	if f.Kind == plan.FileReceived {
		return f.Keep != "" && k.plan.Keep == f.Keep
	}
	return k.plan.Path == f.Path && k.plan.Write == f.Write && k.plan.Direct == f.Direct
}

// keep duplicates those of a plan's files that the VM's next VMM gets, too.
func keep(files []plan.File, opened []*os.File, device string) (kept []keptFile, err error) {
	for i, f := range files {
		if f.Kind != plan.FilePath && (f.Kind != plan.FileReceived || f.Keep == "") {
			continue
		}
		dup, err := duplicate(opened[i])
		if err != nil {
			closeKept(kept)
			return nil, err
		}
		kept = append(kept, keptFile{f, device, dup})
	}
	return kept, nil
}

func closeKept(kept []keptFile) {
	for _, k := range kept {
		k.file.Close()
	}
}

// dropKept closes all of them: the VMM has ended.
func (s *session) dropKept(v *vm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	closeKept(v.kept)
	v.kept = nil
}

// dropKeptOf closes those of a device that is gone; s.mu is held.
func (v *vm) dropKeptOf(device, disk string) {
	v.kept = slices.DeleteFunc(v.kept, func(k keptFile) bool {
		gone := k.device == device || strings.HasPrefix(k.plan.Keep, device+"/") || disk != "" && cmp.Or(k.plan.DiskName, k.plan.PartOf) == disk
		if gone {
			k.file.Close()
		}
		return gone
	})
}

// inherited is what a VMM gets that takes another one's place.
type inherited struct {
	kept []keptFile // each is given once
	used []bool
}

// renewedPrefix begins the names of a VMM's sockets until it has the guest.
const renewedPrefix = "renewed-"

// socket is the name that one of the VMM's sockets has at first.
func (h *inherited) socket(name string) string {
	if h == nil {
		return name
	}
	return renewedPrefix + name
}

// inherit returns what the VM's first VMM was given in a file's place; nil: the file is opened.
func (o *opener) inherit(f *plan.File) (*os.File, error) {
	h := o.renewal
	for i := range h.kept {
		if h.used[i] || !h.kept[i].covers(f) {
			continue
		}
		h.used[i] = true
		file, err := duplicate(h.kept[i].file)
		if err != nil {
			return nil, err
		}
		o.own = append(o.own, file)
		if f.Direct && !isDirect(file) {
			o.buffered = append(o.buffered, len(o.files))
		}
		return file, nil
	}
	switch {
	case f.Kind == plan.FileReceived && f.Keep != "", f.DiskName != "", f.PartOf != "":
		return nil, fault.New(shim.CodePrecondition, f.Field, "%s: the VMM that runs has no such file to hand over: stop the VM and start it", contract.ObjectName(cmp.Or(f.Path, f.Keep)))
	case slices.Contains([]plan.FileKind{plan.FileConnect, plan.FileSocket, plan.FileFolder, plan.FileEvents, plan.FilePair, plan.FileReady}, f.Kind):
		return nil, fault.New(shim.CodePrecondition, f.Field, "a VMM with a file of kind %q can't hand its guest over: stop the VM and start it", f.Kind)
	}
	return nil, nil
}

func isDirect(f *os.File) bool {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_DIRECT != 0
}

// nameSockets gives the VMM's sockets the names by which agents find them, in the place of those of the VMM before it.
func (o *opener) nameSockets() error {
	var errs []error
	for _, f := range o.plan.Files {
		if f.Kind == plan.FileListen {
			errs = append(errs, o.run.Rename(o.renewal.socket(f.Path), f.Path))
		}
	}
	return errors.Join(errs...)
}
