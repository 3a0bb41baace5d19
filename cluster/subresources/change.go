package subresources

import (
	"context"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// tries are how often something is decided again because its object has changed meanwhile.
const tries = 5

// change is what follows from a request, decided by what the VM and its instance are: the fields
// that are written. It holds if nobody has changed the VM meanwhile.
type change struct {
	// spec and status are parts of the VM's; nil: nothing is changed there. annotations change
	// with the spec. The status is written before.
	spec, status, annotations map[string]any
	// grace is the instance's new grace period, in seconds, which comes first; nil: as it is.
	grace *int64
}

// decision follows from the objects. vmi is nil if the VM has no instance.
type decision func(vm *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) (change, error)

// carryOut decides and writes, again where something else has changed the VM in between, and
// answers.
func (s *Server) carryOut(c *call, dryRun []string, decide decision) error {
	if err := checkDryRun(dryRun); err != nil {
		return err
	}
	var err error
	for range tries {
		if err = s.tryOut(c, dryRun, decide); !apierrors.IsConflict(err) || isRefusal(err) {
			break
		}
	}
	if err != nil {
		return err
	}
	c.w.WriteHeader(202)
	return nil
}

// refusal is an error of a decision: to decide again would change nothing.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

func isRefusal(err error) bool {
	_, is := err.(refusal)
	return is
}

func (s *Server) tryOut(c *call, dryRun []string, decide decision) error {
	vm, err := s.machine(c)
	if err != nil {
		return err
	}
	vmi, err := s.instanceOf(c.Context(), vm)
	if err != nil {
		return err
	}
	to, err := decide(vm, vmi)
	if err != nil {
		return refusal{err}
	}
	undo := func() {}
	if to.grace != nil && vmi != nil {
		if undo, err = s.setGrace(c.Context(), vmi, to.grace, dryRun); err != nil {
			return err
		}
	}
	if err := s.patch(c.Context(), vm, to, dryRun); err != nil {
		undo()
		return err
	}
	return nil
}

// setGrace changes an instance's grace period; undo puts the one before back.
func (s *Server) setGrace(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance, grace *int64, dryRun []string) (undo func(), err error) {
	before := vmi.Spec.TerminationGracePeriodSeconds
	set := func(ctx context.Context, to *int64) error {
		body, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": vmi.UID},
			"spec":     map[string]any{"terminationGracePeriodSeconds": to},
		})
		if err != nil {
			return err
		}
		return s.writer(dryRun).Patch(ctx, vmi.DeepCopy(), client.RawPatch(types.MergePatchType, body))
	}
	if before != nil && *before == *grace {
		return func() {}, nil
	}
	return func() { _ = set(context.WithoutCancel(ctx), before) }, set(ctx, grace)
}

// patch writes the parts of a VM that change, if nobody has written the VM since it was read.
func (s *Server) patch(ctx context.Context, vm *kubevirtv1.VirtualMachine, to change, dryRun []string) error {
	at := vm.DeepCopy()
	metadata := func() map[string]any {
		return map[string]any{"resourceVersion": at.ResourceVersion, "uid": at.UID}
	}
	if to.status != nil {
		body, err := json.Marshal(map[string]any{"metadata": metadata(), "status": to.status})
		if err != nil {
			return err
		}
		if err := s.writer(dryRun).Status().Patch(ctx, at, client.RawPatch(types.MergePatchType, body)); err != nil {
			return err
		}
		if len(dryRun) > 0 {
			at.ResourceVersion = vm.ResourceVersion // nothing was stored
		}
	}
	if to.spec == nil {
		return nil
	}
	m := metadata()
	if to.annotations != nil {
		m["annotations"] = to.annotations
	}
	body, err := json.Marshal(map[string]any{"metadata": m, "spec": to.spec})
	if err != nil {
		return err
	}
	return s.writer(dryRun).Patch(ctx, at, client.RawPatch(types.MergePatchType, body))
}

// writer writes, or lets the API server check and write nothing.
func (s *Server) writer(dryRun []string) client.Client {
	if len(dryRun) > 0 {
		return client.NewDryRunClient(s.o.Client)
	}
	return s.o.Client
}

// checkDryRun refuses what is neither nothing nor everything.
func checkDryRun(dryRun []string) error {
	for _, d := range dryRun {
		if d != metav1.DryRunAll {
			return badRequest("dryRun: %q: the only value is %s", d, metav1.DryRunAll)
		}
	}
	return nil
}
