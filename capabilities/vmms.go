package capabilities

import (
	"context"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/protobuf/proto"
)

// inFolders is the pattern of what matters in a folder among those files:
// firmware descriptors.
const inFolders = "*.json"

// filesOf are the files and folders that a VMM's answers depend on. One that
// doesn't say is asked every time.
func filesOf(v vmm.Program) []string {
	if f, ok := v.(interface{ Files() []string }); ok {
		return f.Files()
	}
	return nil
}

// strangeRemedy is for a VMM that is there and can't be asked.
const strangeRemedy = "run it by hand with --version to see what is wrong with it; reinstall its package"

// askVMM asks one VMM. One that can't be asked is in the document all the same,
// with what to do about it.
func askVMM(ctx context.Context, v vmm.Program) (*capabilitiesv1.VmmCapabilities, vmm.Info, error) {
	info, err := v.Info(ctx)
	if err != nil {
		return &capabilitiesv1.VmmCapabilities{
			Name: v.Name(), Binary: vmm.BinaryIn(err), State: capabilitiesv1.State_STATE_UNUSABLE, Reason: err.Error(), Remedy: remedyOf(v.Name(), err),
		}, info, err
	}
	out := new(capabilitiesv1.VmmCapabilities)
	if info.Capabilities != nil {
		out = proto.CloneOf(info.Capabilities)
	}
	// What the agent goes by counts. The reason of one that works is for what it can't do.
	out.Name, out.Version, out.Binary, out.LazyRestore = v.Name(), info.Version, info.Binary, info.LazyRestore
	out.State, out.Remedy = capabilitiesv1.State_STATE_WORKS, ""
	return out, info, nil
}

// remedyOf is what to do about a VMM that can't be asked, for who works on the node.
func remedyOf(name string, err error) string {
	remedy, advice := vmm.Remedy(name, err)
	if remedy == "" {
		return strangeRemedy
	}
	return remedy + advice.String()
}
