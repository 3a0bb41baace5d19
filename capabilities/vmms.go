package capabilities

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	vmletv1 "github.com/vmlet/vmlet/proto/vmlet/v1"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/protobuf/proto"
)

// States of a VMM.
const (
	StateWorks    = "works"
	StateUnusable = "unusable"
)

// inFolders is the pattern of what matters in a folder among those files:
// firmware descriptors.
const inFolders = "*.json"

// filesOf are the files and folders that a VMM's answers hang on. One that
// doesn't say is asked every time.
func filesOf(v vmm.Program) []string {
	if f, ok := v.(interface{ Files() []string }); ok {
		return f.Files()
	}
	return nil
}

// askVMM asks one VMM. One that can't be asked is in the document all the same,
// with what to do about it.
func askVMM(ctx context.Context, v vmm.Program) (*vmletv1.VmmCapabilities, vmm.Info, error) {
	info, err := v.Info(ctx)
	if err != nil {
		return &vmletv1.VmmCapabilities{
			Name: v.Name(), Binary: binaryIn(err), State: StateUnusable, Reason: err.Error(), Remedy: vmmRemedy(v.Name(), err),
		}, info, err
	}
	out := new(vmletv1.VmmCapabilities)
	if info.Capabilities != nil {
		out = proto.CloneOf(info.Capabilities)
	}
	// What the agent goes by counts. The reason of one that works is for what it can't do.
	out.Name, out.Version, out.Binary, out.LazyRestore = v.Name(), info.Version, info.Binary, info.LazyRestore
	out.State, out.Remedy = StateWorks, ""
	return out, info, nil
}

// binaryIn is the file that an error is about; empty: none.
func binaryIn(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Path
	}
	return ""
}

// vmmRemedy says what to do about a VMM that can't be asked.
func vmmRemedy(name string, err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return installRemedy(name, binaryIn(err))
	case errors.Is(err, fs.ErrPermission):
		return "let this user execute it, or run as root"
	case errors.Is(err, context.DeadlineExceeded):
		return "the machine may be busy: ask again (vmlet probe --refresh)"
	case errors.Is(err, context.Canceled):
		return ""
	}
	return "run it by hand with --version to see what is wrong with it; reinstall its package"
}

// installRemedy names the package of a program of this name.
func installRemedy(name, binary string) string {
	if name != "qemu" {
		return "install " + name + ", or set its path in the agent's configuration"
	}
	debian, red := "qemu-system", "qemu-kvm"
	switch strings.TrimPrefix(filepath.Base(binary), "qemu-system-") {
	case "x86_64":
		debian = "qemu-system-x86"
	case "aarch64":
		debian = "qemu-system-arm"
	case "s390x", "ppc64":
		debian = "qemu-system-misc"
	}
	return fmt.Sprintf("install QEMU (Debian, Ubuntu: apt install %s; Fedora, RHEL: dnf install %s), or set qemu.binary in the agent's configuration to its path", debian, red)
}
