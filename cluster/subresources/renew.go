package subresources

import (
	"context"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// renewed answers renew, an action of vmlet's own.
type renewed struct {
	VersionBefore string `json:"versionBefore"`
	Version       string `json:"version"`
	// StoppedMicroseconds is how long the guest was stopped.
	StoppedMicroseconds int64 `json:"stoppedMicroseconds"`
	// Warning is what went wrong when the guest ran again already.
	Warning string `json:"warning,omitempty"`
}

// renew has a new process of the VMM, of the pod's image, take the place of the one that runs.
func (s *Server) renew(c *call) error {
	var o plainOptions
	vmi, err := s.asked(c, &o)
	switch {
	case err != nil:
		return err
	case isTrue(vmi.Status.Conditions, kubevirtv1.ConditionPaused):
		return instanceConflict(vmi.Name, "VMI is paused: unpause it first")
	case vmi.Spec.StopStrategy != "":
		return instanceConflict(vmi.Name, "VMI is being hibernated")
	}
	if err := checkDryRun(o.DryRun); err != nil {
		return err
	}
	if len(o.DryRun) > 0 {
		writeJSON(c.w, 200, renewed{})
		return nil
	}
	var answer renewed
	g, err := s.guest(c.Context(), vmi)
	if err != nil {
		return err
	}
	defer g.done()
	if err := renewGuest(c.Context(), g, &answer); err != nil {
		return agentError(vmi.Name, err)
	}
	writeJSON(c.w, 200, answer)
	return nil
}

func renewGuest(ctx context.Context, g *guest, answer *renewed) error {
	r, err := g.agent.RenewVM(ctx, &nodev1.RenewVMRequest{Name: g.name})
	if err != nil {
		return err
	}
	result := r.GetResult()
	*answer = renewed{result.GetVersionBefore(), result.GetVersion(), result.GetStoppedUs(), result.GetWarning()}
	return nil
}
