package subresources

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instancetype"
	"github.com/vmlet/vmlet/cluster/instancetype/lookup"
)

// Options of requests, as virtctl sends them.
type (
	startOptions struct {
		Paused bool     `json:"paused,omitempty"`
		DryRun []string `json:"dryRun,omitempty"`
	}
	stopOptions struct {
		GracePeriod *int64   `json:"gracePeriod,omitempty"`
		DryRun      []string `json:"dryRun,omitempty"`
	}
	restartOptions struct {
		GracePeriodSeconds *int64   `json:"gracePeriodSeconds,omitempty"`
		DryRun             []string `json:"dryRun,omitempty"`
	}
)

func (s *Server) start(c *call) error {
	var o startOptions
	if err := decode(c.Request, &o); err != nil {
		return err
	}
	return s.carryOut(c, o.DryRun, func(vm *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) (change, error) {
		return startChange(vm, vmi, o.Paused)
	})
}

func (s *Server) stop(c *call) error {
	var o stopOptions
	if err := decode(c.Request, &o); err != nil {
		return err
	}
	if o.GracePeriod != nil && *o.GracePeriod < 0 {
		return badRequest("gracePeriod: %d is negative", *o.GracePeriod)
	}
	return s.carryOut(c, o.DryRun, func(vm *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) (change, error) {
		return stopChange(vm, vmi, o.GracePeriod)
	})
}

func (s *Server) restart(c *call) error {
	var o restartOptions
	if err := decode(c.Request, &o); err != nil {
		return err
	}
	if g := o.GracePeriodSeconds; g != nil && *g != 0 {
		return badRequest("gracePeriodSeconds: %d: the only value is 0, which restarts at once", *g)
	}
	return s.carryOut(c, o.DryRun, func(vm *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) (change, error) {
		return restartChange(vm, vmi, o.GracePeriodSeconds != nil)
	})
}

// startChange says what starts a VM.
func startChange(vm *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance, paused bool) (change, error) {
	strategy := kubevirtv1.RunStrategyOf(&vm.Spec)
	switch {
	case isTrue(vm.Status.Conditions, kubevirtv1.ConditionManualRecoveryRequired):
		return change{}, conflict(vm.Name, "VM needs to be recovered by hand: see its condition %s", kubevirtv1.ConditionManualRecoveryRequired)
	case strategy == kubevirtv1.RunStrategyHibernate:
		return resumeChange(vm, vmi, paused), nil
	case vmi != nil && !ended(vmi) && vmi.Status.Phase != "" && vmi.Status.Phase != kubevirtv1.PhaseUnknown:
		return change{}, conflict(vm.Name, "VM is already running")
	}
	if now, waits := startNow(vm, vmi); waits && !paused {
		return now, nil
	}
	start := kubevirtv1.StateChangeRequest{Action: kubevirtv1.StateChangeStart}
	if paused {
		start.Data = map[string]string{"paused": "true"}
	}
	switch strategy {
	case kubevirtv1.RunStrategyHalted:
		if paused {
			return enqueue(vm, start)
		}
		return change{spec: strategyFields(vm, true)}, nil
	case kubevirtv1.RunStrategyRerunOnFailure, kubevirtv1.RunStrategyManual:
		if vmi != nil && strategy == kubevirtv1.RunStrategyRerunOnFailure && vmi.Status.Phase == kubevirtv1.PhaseFailed {
			return change{}, conflict(vm.Name, "%v restarts a VM that has failed by itself", strategy)
		}
		if vmi != nil && ended(vmi) {
			return enqueue(vm, stopOf(vmi), start)
		}
		return enqueue(vm, start)
	case kubevirtv1.RunStrategyAlways:
		if notResumed(vm) {
			return enqueue(vm, start) // it is tried again now
		}
	}
	return change{}, conflict(vm.Name, "%v does not support manual start requests", strategy)
}

// stopChange says what stops a VM. grace is how long its guest has, in seconds; nil: as its
// instance says.
func stopChange(vm *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance, grace *int64) (change, error) {
	strategy := kubevirtv1.RunStrategyOf(&vm.Spec)
	off := vmi == nil || ended(vmi)
	if !vm.DeletionTimestamp.IsZero() {
		return stopDeleted(vm, vmi, grace)
	}
	switch strategy {
	case kubevirtv1.RunStrategyHibernate:
		if off {
			return change{}, notRunning(vm)
		}
		// The save is cancelled, and the guest shuts down.
		return change{spec: strategyFields(vm, false), annotations: forgotten(), grace: grace}, nil
	case kubevirtv1.RunStrategyHalted:
		if off {
			return change{}, notRunning(vm)
		}
		if grace == nil || !shorter(*grace, vmi.Spec.TerminationGracePeriodSeconds) {
			return change{}, conflict(vm.Name, "%v only supports manual stop requests with a shorter graceperiod", strategy)
		}
		return stopRequests(vmi, grace), nil
	case kubevirtv1.RunStrategyManual, kubevirtv1.RunStrategyRerunOnFailure:
		if off {
			return change{}, notRunning(vm)
		}
		return stopRequests(vmi, grace), nil
	case kubevirtv1.RunStrategyAlways, kubevirtv1.RunStrategyOnce:
		return change{spec: strategyFields(vm, false), grace: grace}, nil
	}
	return change{}, conflict(vm.Name, "%v does not support manual stop requests", strategy)
}

// stopDeleted says what stops a VM that is being deleted, and so stops anyhow, whatever its run strategy:
// its guest may get less time.
func stopDeleted(vm *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance, grace *int64) (change, error) {
	switch {
	case vmi == nil || ended(vmi):
		return change{}, notRunning(vm)
	case grace == nil || !shorter(*grace, vmi.Spec.TerminationGracePeriodSeconds):
		return change{}, nil
	}
	return change{grace: grace}, nil
}

// restartChange says what ends a VM's instance and starts the next one.
func restartChange(vm *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance, atOnce bool) (change, error) {
	strategy := kubevirtv1.RunStrategyOf(&vm.Spec)
	switch strategy {
	case kubevirtv1.RunStrategyAlways, kubevirtv1.RunStrategyManual, kubevirtv1.RunStrategyRerunOnFailure:
	default:
		return change{}, conflict(vm.Name, "%v does not support manual restart requests", strategy)
	}
	if now, waits := startNow(vm, vmi); waits {
		return now, nil
	}
	switch {
	case vmi == nil:
		return change{}, conflict(vm.Name, "VM is not running: start it")
	case vmi.Spec.StopStrategy != "":
		return change{}, conflict(vm.Name, "VM is being hibernated: wait for its end, or cancel the hibernation before")
	case isTrue(vm.Status.Conditions, kubevirtv1.ConditionVolumesChange):
		return change{}, conflict(vm.Name, "volumes are being exchanged: wait for its end")
	}
	to, err := enqueue(vm, stopOf(vmi), kubevirtv1.StateChangeRequest{Action: kubevirtv1.StateChangeStart})
	if atOnce {
		to.grace = new(int64(1))
	}
	return to, err
}

// startNow has a VM that waits for its next start, because others have failed, start now.
func startNow(vm *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) (_ change, waits bool) {
	f := vm.Status.StartFailure
	switch {
	case f == nil || f.RetryAfterTimestamp == nil || vmi != nil && !ended(vmi):
		return change{}, false
	case vmi == nil:
		return change{status: map[string]any{"startFailure": nil}}, true
	}
	// What has failed is there yet: it is not to be counted once more.
	return change{status: map[string]any{"startFailure": map[string]any{"lastFailedVMIUID": vmi.UID, "retryAfterTimestamp": nil}}}, true
}

// enqueue has the controller carry requests out. There may be none before.
func enqueue(vm *kubevirtv1.VirtualMachine, requests ...kubevirtv1.StateChangeRequest) (change, error) {
	if len(vm.Status.StateChangeRequests) > 0 {
		return change{}, internal("unable to complete request: stop/start already underway")
	}
	return change{status: map[string]any{"stateChangeRequests": requests, "startFailure": nil}}, nil
}

// stopRequests replaces what was requested before.
func stopRequests(vmi *kubevirtv1.VirtualMachineInstance, grace *int64) change {
	return change{grace: grace, status: map[string]any{"stateChangeRequests": []kubevirtv1.StateChangeRequest{stopOf(vmi)}}}
}

func stopOf(vmi *kubevirtv1.VirtualMachineInstance) kubevirtv1.StateChangeRequest {
	return kubevirtv1.StateChangeRequest{Action: kubevirtv1.StateChangeStop, UID: new(types.UID(vmi.UID))}
}

// shorter than what an instance has, which is 30 s if it says nothing.
func shorter(grace int64, than *int64) bool {
	const standard = 30
	if than == nil {
		return grace < standard
	}
	return grace < *than
}

// strategyFields are how a VM says that it runs, or does not: in the field that it uses.
func strategyFields(vm *kubevirtv1.VirtualMachine, runs bool) map[string]any {
	if vm.Spec.RunStrategy == nil {
		return map[string]any{"running": runs}
	}
	if runs {
		return map[string]any{"runStrategy": kubevirtv1.RunStrategyAlways}
	}
	return map[string]any{"runStrategy": kubevirtv1.RunStrategyHalted}
}

// evacuateOptions are of evacuate/cancel.
type evacuateOptions struct {
	DryRun             []string `json:"dryRun,omitempty"`
	EvacuationNodeName string   `json:"evacuationNodeName,omitempty"`
}

// cancelEvacuation takes an evacuation back that has not begun.
func (s *Server) cancelEvacuation(c *call) error {
	var o evacuateOptions
	if err := decode(c.Request, &o); err != nil {
		return err
	}
	if err := checkDryRun(o.DryRun); err != nil {
		return err
	}
	if c.info.Resource == machines {
		if _, err := s.machine(c); err != nil {
			return err
		}
	}
	vmi, err := s.instance(c)
	switch {
	case err != nil:
		return err
	case vmi.Status.EvacuationNodeName == "":
		c.w.WriteHeader(200)
		return nil
	case o.EvacuationNodeName != "" && o.EvacuationNodeName != vmi.Status.EvacuationNodeName:
		return instanceConflict(vmi.Name, "it is evacuated from node %s, not from %s", vmi.Status.EvacuationNodeName, o.EvacuationNodeName)
	}
	if err := s.clearEvacuation(c.Context(), vmi, o.DryRun); err != nil {
		return err
	}
	c.w.WriteHeader(200)
	return nil
}

// expandMachine answers with a VM in which nothing is left to be looked up.
func (s *Server) expandMachine(c *call) error {
	vm, err := s.machine(c)
	if err != nil {
		return err
	}
	return s.expand(c, vm)
}

// expandGiven does so with a VM in the body.
func (s *Server) expandGiven(c *call) error {
	leave, err := s.expansions.enter(c.user())
	if err != nil {
		return err
	}
	defer leave()
	vm := &kubevirtv1.VirtualMachine{}
	if err := decodeUpTo(maxMachine, c.Request, vm); err != nil {
		return err
	}
	if vm.Spec.Template == nil {
		return badRequest("the body is no VirtualMachine: it has no spec.template")
	}
	if vm.Namespace != "" && vm.Namespace != c.namespace() {
		return badRequest("metadata.namespace: the VM is of namespace %q, the request of %q", vm.Namespace, c.namespace())
	}
	return s.expand(c, vm)
}

// expand answers with a VM that has what its instancetype and preference say, and does not name
// them any more.
func (s *Server) expand(c *call, vm *kubevirtv1.VirtualMachine) error {
	here := *vm // one in the body may leave its namespace out
	here.Namespace = c.namespace()
	found, err := lookup.Types(c.Context(), s.o.Client, &here)
	switch {
	case err != nil:
		return err
	case slices.ContainsFunc(found.Faults, func(f *field.Error) bool { return f.Type == field.ErrorTypeNotFound }):
		return notFound("%v", found.Faults.ToAggregate())
	case len(found.Faults) > 0:
		return badRequest("%v", found.Faults.ToAggregate())
	}
	vm, conflicts := instancetype.Expand(vm, found.Types)
	if len(conflicts) > 0 {
		return badRequest("%v", conflicts.ToAggregate())
	}
	vm.Spec.Instancetype, vm.Spec.Preference = nil, nil
	vm.Status.InstancetypeRef, vm.Status.PreferenceRef = nil, nil
	vm.TypeMeta = metav1.TypeMeta{APIVersion: kubevirtv1.Group + "/" + kubevirtv1.Version, Kind: "VirtualMachine"}
	vm.ManagedFields = nil
	writeJSON(c.w, 200, vm)
	return nil
}

// owned reports whether an instance is a VM's.
func owned(vmi *kubevirtv1.VirtualMachineInstance) bool {
	return slices.ContainsFunc(vmi.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == "VirtualMachine" })
}
