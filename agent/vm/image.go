package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"

	"github.com/google/uuid"
	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/memory"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/grpc/codes"
)

// RestoreOptions say what is restored, and as what.
type RestoreOptions struct {
	Directory         string // of the image
	Name              string // empty: the image's
	Lazy              bool   // map the image instead of reading it first
	Paused            bool   // leave the guest paused
	AllowChangedDisks bool   // restore although disks differ from those of the save
	NewIdentity       bool   // new id and MAC addresses, for a clone
	Once              bool   // the shim marks the image as used; an error after that is a *RunsError
	entered           bool   // by this restore: no record is on disk yet
}

// Image is what the agent reads of an image before it restores it.
type Image struct {
	manifest *memory.Manifest
	Spec     *specv1.VirtualMachineSpec // complete, as it ran
	ID       string
}

// readImage reads an image's manifest and sees that its files are there.
func readImage(dir string) (*Image, error) {
	if !filepath.IsAbs(dir) {
		return nil, fault.Invalid("directory", "%q is not an absolute path", dir)
	}
	opened, err := memory.Open(dir)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	return ImageOf(opened.Manifest(), filepath.Join(dir, memory.ManifestName))
}

// ParseImage is readImage of a manifest that somebody else has read.
func ParseImage(content []byte, source string) (*Image, error) {
	m, err := memory.ReadManifest(bytes.NewReader(content), source)
	if err != nil {
		return nil, err
	}
	return ImageOf(m, source)
}

// ImageOf takes from a manifest what the agent wants to know.
func ImageOf(m *memory.Manifest, source string) (i *Image, err error) {
	i = &Image{manifest: m}
	if i.Spec, err = spec.Parse(i.manifest.Specification, source); err != nil {
		return nil, fault.Errorf(codes.DataLoss, "%s: specification: %w", contract.ObjectName(source), err)
	}
	var extras imageExtras
	if err := json.Unmarshal(i.manifest.PlanExtras, &extras); err != nil {
		return nil, fault.Errorf(codes.DataLoss, "%s: planExtras: %w", contract.ObjectName(source), err)
	}
	if _, err := uuid.Parse(extras.ID); err != nil {
		return nil, fault.Errorf(codes.DataLoss, "%s: planExtras.id: %.80q is not a UUID", contract.ObjectName(source), extras.ID)
	}
	i.ID = extras.ID
	// What the guest sees is what it saw, whatever the defaults are by now.
	i.Spec.MachineType = i.manifest.MachineType
	i.Spec.Hypervisor = i.manifest.Accelerator
	i.Spec.Vmm = i.manifest.VMM.Name
	return i, nil
}

// UnfitError says that an image can't be restored at its VM's place: another
// VMM, hypervisor or CPU is needed.
type UnfitError struct{ Err error }

// Error returns the message of Err.
func (e *UnfitError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *UnfitError) Unwrap() error { return e.Err }

func unfit(format string, args ...any) error {
	return &UnfitError{fault.Errorf(codes.FailedPrecondition, format, args...)}
}

func checkLazy(ctx context.Context, v vmm.VMM, i *Image, o RestoreOptions) error {
	if !o.Lazy {
		return nil
	}
	if i.manifest.Layout == memory.LayoutStream {
		return fault.Errorf(codes.FailedPrecondition, "%s: its memory is inside the VMM's own stream, as that of a VM which was restored lazily itself: restore it eagerly",
			contract.ObjectName(o.Directory))
	}
	info, err := v.Info(ctx)
	if err != nil {
		return fault.Errorf(codes.FailedPrecondition, "VMM %s: %w", v.Name(), err)
	}
	if !info.LazyRestore {
		return fault.Errorf(codes.FailedPrecondition, "%s %s at %s can't map an image read-only, which a lazy restore needs: restore eagerly%s, or use a newer %s",
			info.Name, info.Version, info.Binary, contract.Advice("without --lazy"), info.Name)
	}
	return nil
}

// imageExtras is what an image says of a VM beside its specification.
type imageExtras struct {
	ID string `json:"id"`
}
