package remote

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/remote/wire"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Bounds on a plan.
const (
	maxFiles     = shim.MaxFiles
	maxArgs      = 4096
	maxArgBytes  = 1 << 20
	maxVariables = 64
)

// identify puts into the file of a disk what is known of it without the driver: what the image
// must be, whether it is written to, and which it must still be when the VM is restored.
func identify(f *plan.File, r vmm.PlanRequest) {
	name, layer := f.DiskName, 0
	if name == "" {
		name, layer = f.PartOf, f.Layer
	}
	f.Identity, f.Disk = nil, nil
	at := slices.IndexFunc(r.Spec.GetDisks(), func(d *specv1.Disk) bool { return d.GetName() == name })
	if name == "" || at < 0 {
		return
	}
	d := r.Spec.GetDisks()[at]
	chain := chainOf(d)
	if layer < 0 || layer >= len(chain) || f.Path != chain[layer].Path {
		return // which judge refuses
	}
	f.Field = fmt.Sprintf("disks[%d].path", at)
	if layer > 0 {
		f.Field = fmt.Sprintf("disks[%d].backingFiles[%d].path", at, layer-1)
	}
	f.Write, f.Shared = layer == 0 && !d.GetReadOnly(), layer == 0 && d.GetShareable()
	f.DiskName, f.PartOf, f.Layer = "", "", 0
	f.Disk = &disk.Expectation{Field: f.Field, Image: chain[layer], Backing: chain[layer+1:]}
	r.Image.Watch(f, name, layer)
}

// chainOf are a disk's image and its backing files.
func chainOf(d *specv1.Disk) []disk.Image {
	chain := []disk.Image{{Path: d.GetPath(), Format: disk.Format(d.GetFormat())}}
	for _, b := range d.GetBackingFiles() {
		chain = append(chain, disk.Image{Path: b.GetPath(), Format: disk.Format(b.GetFormat())})
	}
	return chain
}

// judge refuses a plan that has the shim, which has rights that the driver has not, open or
// make something that the specification doesn't ask for.
func judge(p *plan.Plan, r vmm.PlanRequest) error {
	var errs []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	fault(!filepath.IsAbs(p.Program) || filepath.Clean(p.Program) != p.Program, "the program %.200q is no absolute, clean path", p.Program)
	bytes := 0
	for _, a := range p.Args {
		bytes += len(a)
	}
	fault(len(p.Args) > maxArgs || bytes > maxArgBytes, "%d arguments with %d bytes", len(p.Args), bytes)
	fault(len(p.Env) > maxVariables, "%d variables", len(p.Env))
	size, err := spec.ParseQuantity(r.Spec.GetMemory().GetSize())
	fault(err != nil || p.Memory.Size != size, "%d bytes of memory, and the VM is to have %d", p.Memory.Size, size)
	fault(p.Memory.Path != "" && p.Memory.Path != r.MemoryPath, "memory at %.200q, and it is to be at %s", p.Memory.Path, r.MemoryPath)
	fault(p.Memory.PageSize != 0 && r.Spec.GetMemory().GetHugePages() == nil, "huge pages of %d bytes, for which the VM does not ask", p.Memory.PageSize)
	fault((len(p.Memory.Bindings) > 0 || len(p.Memory.Near) > 0) && r.Spec.GetNuma() == nil, "memory bound to NUMA nodes, and the VM has none")
	fault(p.LockedMemory > 0 && len(r.Spec.GetHostDevices()) == 0, "%d bytes of locked memory, and the VM has no devices of the host", p.LockedMemory)
	errs = append(errs, judgeFiles(p.Files, r))
	return errors.Join(errs...)
}

func judgeFiles(files []plan.File, r vmm.PlanRequest) error {
	if len(files) > maxFiles {
		return fmt.Errorf("%d files, at most %d are allowed", len(files), maxFiles)
	}
	named := paths(r.Spec)
	var errs []error
	for i, f := range files {
		if err := judgeFile(f, r, named); err != nil {
			errs = append(errs, fmt.Errorf("file %d, %s %.200q: %w", i, f.Kind, f.Path, err))
		}
	}
	return errors.Join(errs...)
}

var errNotAsked = errors.New("the specification names no such file")

func judgeFile(f plan.File, r vmm.PlanRequest, named []string) error {
	switch f.Kind {
	case plan.FileMemory, plan.FileConsole, plan.FileEvents:
		return nil
	case plan.FileListen:
		return wire.SocketOf(f.Path)
	case plan.FileFolder:
		if f.Path != shim.VMMFolderName {
			return fmt.Errorf("a VMM's folder is named %q", shim.VMMFolderName)
		}
		return nil
	case plan.FileReceived:
		if f.Index < 0 || f.Index >= maxFiles {
			return errors.New("no descriptor has that number")
		}
		return nil
	case plan.FileConnect, plan.FileSocket:
		if !slices.Contains(named, f.Path) {
			return errNotAsked
		}
		return nil
	case plan.FilePath:
		return judgePath(f, r, named)
	}
	return errors.New("this agent knows no files of that kind")
}

// public has what every user of a machine can read.
func public(path string) bool {
	return slices.ContainsFunc([]string{"/usr/share/", "/usr/lib/", "/usr/local/share/", "/usr/local/lib/"}, func(folder string) bool { return strings.HasPrefix(path, folder) })
}

// judgePath is about a file that the shim opens by its path.
func judgePath(f plan.File, r vmm.PlanRequest, named []string) error {
	switch {
	case f.Path == "" || filepath.Clean(f.Path) != f.Path || !filepath.IsAbs(f.Path):
		return errors.New("it is no absolute, clean path")
	case f.Template != "" && (!public(filepath.Clean(f.Template)) || !within(f.Path, r.StateDir)):
		return fmt.Errorf("%.200q is no template for it: want a file below /usr/share, and a path in the VM's own folder", f.Template)
	case within(f.Path, r.StateDir):
		return nil
	case f.Path == r.HypervisorDevice, f.Path == "/dev/vhost-vsock" && r.Spec.GetDevices().GetVsock() != nil:
		return nil
	case f.Disk != nil:
		return nil // identify has seen to it
	case isDisk(f.Path, r.Spec):
		return errors.New("it is a disk, and the plan names none by diskName or partOf: nothing would keep others off it")
	case f.Write:
		return errors.New("it is to be written to, and the specification names no such disk")
	case public(f.Path), slices.Contains(named, f.Path):
		return nil
	}
	return errNotAsked
}

func within(path, folder string) bool {
	return folder != "" && strings.HasPrefix(path, filepath.Clean(folder)+"/")
}

func isDisk(path string, s *specv1.VirtualMachineSpec) bool {
	return slices.ContainsFunc(s.GetDisks(), func(d *specv1.Disk) bool {
		return slices.ContainsFunc(chainOf(d), func(i disk.Image) bool { return i.Path == path })
	})
}

// paths are all absolute paths that a specification has anywhere.
func paths(s *specv1.VirtualMachineSpec) (all []string) {
	var walk func(m protoreflect.Message)
	take := func(field protoreflect.FieldDescriptor, v protoreflect.Value) {
		switch field.Kind() {
		case protoreflect.StringKind:
			if strings.HasPrefix(v.String(), "/") {
				all = append(all, v.String())
			}
		case protoreflect.MessageKind:
			walk(v.Message())
		}
	}
	walk = func(m protoreflect.Message) {
		m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			switch {
			case field.IsMap(): // keys and values are words
			case field.IsList():
				for i := range v.List().Len() {
					take(field, v.List().Get(i))
				}
			default:
				take(field, v)
			}
			return true
		})
	}
	walk(s.ProtoReflect())
	return all
}
