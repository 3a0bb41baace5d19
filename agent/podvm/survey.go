package podvm

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/pods"
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/described"
	"google.golang.org/grpc/codes"
)

const (
	// surveyEvery is how often a stack's image is asked: its devices may have come meanwhile.
	surveyEvery = 10 * time.Minute
	// surveyTime bounds what all VMMs of an image may take to answer.
	surveyTime = 2 * time.Minute
)

// errSurveyed: a pod is there for no VM, and its image's VMMs have been asked.
var errSurveyed = errors.New("the VMMs of a stack's image have been asked")

// stack is what is known of the virtualisation stack's image on this node.
type stack struct {
	// namespace is vmlet's own: others' pods say nothing of the node.
	namespace string
	report    func(*described.Report) // nil: nobody wants to know

	mu sync.Mutex
	of pods.Volume // of the pod that said it last
}

// survey asks the VMMs in a stack's image, in a pod of it without rights but the devices that it was given. The
// error is errSurveyed, or why that pod is not to be asked.
func (p *Runner) survey(ctx context.Context, v pods.Volume, h *placement, want *wanted) error {
	if h.pod.Namespace != p.stack.namespace || p.stack.report == nil {
		return fault.Errorf(codes.PermissionDenied, "pods of namespace %s alone say what a virtualisation stack can do", p.stack.namespace)
	}
	ctx, cancel := context.WithTimeout(ctx, surveyTime)
	defer cancel()
	r := &described.Report{Profile: want.stack, Image: h.container.Image, Error: want.stackError}
	for _, name := range h.drivers {
		r.VMMs = append(r.VMMs, p.ask(ctx, h.told[name], true))
	}
	for _, v := range p.node.VMMs {
		switch told, why := h.told[v.Name()], h.broken[v.Name()]; {
		case isDriver(h, v.Name()):
		case told != nil:
			r.VMMs = append(r.VMMs, p.ask(ctx, told, false))
		case why != "":
			r.VMMs = append(r.VMMs, described.Found{VMM: described.VMM{ID: v.Name()}, Error: why})
		}
	}
	if len(r.VMMs) == 0 && r.Error == "" {
		r.Error = "there is no VMM in the image that vmlet drives, and no driver of one"
	}
	p.stack.mu.Lock()
	defer p.stack.mu.Unlock()
	p.stack.of = v
	p.stack.report(r)
	return errSurveyed
}

func isDriver(h *placement, name string) bool {
	for _, d := range h.drivers {
		if d == name {
			return true
		}
	}
	return false
}

// ask describes a VMM, and says under which of the node's hypervisors it runs guests.
func (p *Runner) ask(ctx context.Context, v vmm.VMM, driver bool) described.Found {
	out := described.Found{VMM: described.VMM{ID: v.Name()}, Driver: driver}
	info, err := v.Info(ctx)
	if err == nil && driver {
		out.VMM, err = described.Of(v, info.Version, runtime.GOARCH)
	}
	if err != nil {
		out.Error = fault.Clip(err.Error(), fault.MaxMessage)
		return out
	}
	out.VMM.Version = fault.Clip(info.Version, maxName)
	out.Hypervisors = make(map[string]string)
	for _, h := range p.node.Hypervisors.All() {
		if h.Check(ctx).Level == hypervisor.Unusable {
			continue // the node's own affair
		}
		out.Hypervisors[h.Name()] = ""
		if why := vmm.RunsUnder(info.Capabilities, h.Name()); why != nil {
			out.Hypervisors[h.Name()] = fault.Clip(why.Error(), fault.MaxMessage)
		}
	}
	return out
}

// surveyEnds forgets what a pod said that has gone.
func (p *Runner) surveyEnds(v pods.Volume) {
	p.stack.mu.Lock()
	defer p.stack.mu.Unlock()
	if p.stack.report != nil && p.stack.of == v {
		p.stack.of = pods.Volume{}
		p.stack.report(nil)
	}
}
