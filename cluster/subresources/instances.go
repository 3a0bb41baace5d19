package subresources

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// freezeTimeout is how long a guest stays frozen if nobody says.
const freezeTimeout = 5 * time.Minute

// plainOptions are of requests that have none but these.
type plainOptions struct {
	DryRun []string `json:"dryRun,omitempty"`
}

// asked reads a request about a guest that runs.
func (s *Server) asked(c *call, options any) (*kubevirtv1.VirtualMachineInstance, error) {
	if err := decode(c.Request, options); err != nil {
		return nil, err
	}
	vmi, err := s.instance(c)
	if err != nil {
		return nil, err
	}
	return vmi, running(vmi)
}

// order asks the agent to do something with an instance's guest, and answers.
func (s *Server) order(c *call, vmi *kubevirtv1.VirtualMachineInstance, dryRun []string, do func(ctx context.Context, g *guest) error) error {
	if err := checkDryRun(dryRun); err != nil {
		return err
	}
	if len(dryRun) == 0 {
		g, err := s.guest(c.Context(), vmi)
		if err != nil {
			return err
		}
		defer g.done()
		if err := do(c.Context(), g); err != nil {
			return agentError(vmi.Name, err)
		}
	}
	c.w.WriteHeader(200)
	return nil
}

func (s *Server) pause(c *call) error {
	var o plainOptions
	vmi, err := s.asked(c, &o)
	if err != nil {
		return err
	}
	if probe := vmi.Spec.LivenessProbe; probe != nil && probe.GuestAgentPing == nil {
		return apierrors.NewForbidden(resource(instances), vmi.Name, errPausedProbe)
	}
	if isTrue(vmi.Status.Conditions, kubevirtv1.ConditionPaused) {
		return instanceConflict(vmi.Name, "VMI is already paused")
	}
	return s.order(c, vmi, o.DryRun, func(ctx context.Context, g *guest) error {
		_, err := g.agent.PauseVM(ctx, &nodev1.PauseVMRequest{Name: g.name})
		return err
	})
}

func (s *Server) unpause(c *call) error {
	var o plainOptions
	vmi, err := s.asked(c, &o)
	if err != nil {
		return err
	}
	if owned(vmi) {
		vm, err := s.machine(c)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err == nil && vm.Status.SnapshotInProgress != nil {
			return conflict(vm.Name, "a snapshot is being taken: wait for its end")
		}
	}
	return s.order(c, vmi, o.DryRun, func(ctx context.Context, g *guest) error {
		if !isTrue(vmi.Status.Conditions, kubevirtv1.ConditionPaused) {
			// It may be paused since a moment ago.
			now, err := g.agent.GetVM(ctx, &nodev1.GetVMRequest{Name: g.name})
			if err != nil {
				return err
			}
			if now.GetVm().GetStatus().GetState() != nodev1.State_STATE_PAUSED {
				return instanceConflict(vmi.Name, "VMI is not paused")
			}
		}
		_, err := g.agent.ResumeVM(ctx, &nodev1.ResumeVMRequest{Name: g.name})
		return err
	})
}

func (s *Server) reset(c *call) error {
	var o plainOptions
	vmi, err := s.asked(c, &o)
	if err != nil {
		return err
	}
	return s.order(c, vmi, o.DryRun, func(ctx context.Context, g *guest) error {
		_, err := g.agent.ResetVM(ctx, &nodev1.ResetVMRequest{Name: g.name})
		return err
	})
}

func (s *Server) softReboot(c *call) error {
	var o plainOptions
	vmi, err := s.asked(c, &o)
	switch {
	case err != nil:
		return err
	case isTrue(vmi.Status.Conditions, kubevirtv1.ConditionPaused):
		return instanceConflict(vmi.Name, "VMI is paused: unpause it first")
	case !isTrue(vmi.Status.Conditions, kubevirtv1.ConditionAgentConnected) && !hasACPI(vmi):
		return instanceConflict(vmi.Name, "VMI has neither the agent connected nor the ACPI feature enabled")
	}
	return s.order(c, vmi, o.DryRun, func(ctx context.Context, g *guest) error {
		_, err := g.agent.RebootVM(ctx, &nodev1.RebootVMRequest{Name: g.name})
		return err
	})
}

func hasACPI(vmi *kubevirtv1.VirtualMachineInstance) bool {
	f := vmi.Spec.Domain.Features
	return f == nil || f.ACPI.Enabled == nil || *f.ACPI.Enabled
}

// freezeOptions are of freeze.
type freezeOptions struct {
	UnfreezeTimeout *metav1.Duration `json:"unfreezeTimeout,omitempty"`
	DryRun          []string         `json:"dryRun,omitempty"`
}

func (s *Server) freeze(c *call) error {
	var o freezeOptions
	vmi, err := s.asked(c, &o)
	if err != nil {
		return err
	}
	timeout := freezeTimeout
	if o.UnfreezeTimeout != nil {
		timeout = o.UnfreezeTimeout.Duration
	}
	if timeout < 0 {
		return badRequest("unfreezeTimeout: %v is negative", timeout)
	}
	return s.order(c, vmi, o.DryRun, func(ctx context.Context, g *guest) error {
		_, err := g.agent.FreezeGuest(ctx, &nodev1.FreezeGuestRequest{Name: g.name, TimeoutMs: timeout.Milliseconds()})
		return withoutAgent(err)
	})
}

func (s *Server) unfreeze(c *call) error {
	var o plainOptions
	vmi, err := s.asked(c, &o)
	if err != nil {
		return err
	}
	return s.order(c, vmi, o.DryRun, func(ctx context.Context, g *guest) error {
		_, err := g.agent.ThawGuest(ctx, &nodev1.ThawGuestRequest{Name: g.name})
		return withoutAgent(err)
	})
}

// clearEvacuation patches the instance's status, if it is as it was read. The next eviction is a
// first one again.
func (s *Server) clearEvacuation(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance, dryRun []string) error {
	conditions := slices.DeleteFunc(slices.Clone(vmi.Status.Conditions), func(c kubevirtv1.Condition) bool {
		return c.Type == kubevirtv1.ConditionEvictionRequested
	})
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": vmi.ResourceVersion},
		"status":   map[string]any{"evacuationNodeName": nil, "conditions": conditions},
	})
	if err != nil {
		return err
	}
	return s.writer(dryRun).Status().Patch(ctx, vmi.DeepCopy(), client.RawPatch(types.MergePatchType, body))
}
