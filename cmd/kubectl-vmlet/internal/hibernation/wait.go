package hibernation

import (
	"context"
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cmd/kubectl-vmlet/internal/why"
)

// rewatch is how long to wait until the API server is asked again after it ended a watch.
const rewatch = time.Second

// look says of a VM whether that is what is waited for.
type look func(*kubevirtv1.VirtualMachine) (done bool, err error)

// await waits until look says so of the VM. It says what becomes of the VM meanwhile.
func (c *Commands) await(ctx context.Context, vm *kubevirtv1.VirtualMachine, done look) error {
	said := ""
	for {
		over, err := c.follow(ctx, vm.Name, vm.UID, func(now *kubevirtv1.VirtualMachine) (bool, error) {
			over, err := done(now)
			if words := state(now); words != said && !over && err == nil {
				c.say("%s", words)
				said = words
			}
			return over, err
		})
		if over || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rewatch):
		}
	}
}

// follow looks at the VM, and again each time it changes, until the API server ends the watch.
func (c *Commands) follow(ctx context.Context, name string, uid types.UID, done look) (over bool, err error) {
	// The watch comes first: no change is missed between the two.
	w, err := c.Client.Watch(ctx, &kubevirtv1.VirtualMachineList{}, client.InNamespace(c.Namespace), client.MatchingFields{"metadata.name": name})
	if err != nil {
		return false, err
	}
	defer w.Stop()
	for {
		vm, err := c.machine(ctx, name)
		if err == nil && vm.UID != uid {
			err = &why.NotFoundError{Namespace: c.Namespace, Name: name}
		}
		if err != nil {
			return false, err
		}
		if over, err := done(vm); over || err != nil {
			return over, err
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case _, open := <-w.ResultChan():
			if !open {
				return false, nil
			}
		}
	}
}

// seen: the controller has looked at the VM as it is.
func seen(vm *kubevirtv1.VirtualMachine) bool { return vm.Status.DesiredGeneration >= vm.Generation }

func hibernated(vm *kubevirtv1.VirtualMachine) bool {
	h := vm.Status.HibernationStatus
	return h != nil && h.Phase == kubevirtv1.HibernationCompleted
}

// state is what the VM does, in a line.
func state(vm *kubevirtv1.VirtualMachine) string {
	line := fmt.Sprintf("VM %s: %s", vm.Name, vm.Status.PrintableStatus)
	if h := vm.Status.HibernationStatus; h != nil && !hibernated(vm) {
		line += ", " + h.Phase
	}
	for _, c := range vm.Status.Conditions {
		switch c.Type {
		case kubevirtv1.ConditionHibernationInProgress, kubevirtv1.ConditionHibernationRestoreInProgress:
			if c.Status == metav1.ConditionTrue && c.Reason != "" {
				line += ", " + c.Reason
				if c.Message != "" {
					line += ": " + c.Message
				}
			}
		}
	}
	return line
}

// untilSaved waits for a VM's hibernation. A failed attempt ends the waiting, not the attempts.
func (c *Commands) untilSaved(ctx context.Context, vm *kubevirtv1.VirtualMachine) error {
	err := c.await(ctx, vm, saved)
	if err == nil {
		if vm, err = c.machine(ctx, vm.Name); err == nil {
			c.say("%s", savedAs(vm))
		}
	}
	return interrupted(err, "VM %[1]s is still being hibernated: kubectl vmlet why %[1]s -n %[2]s says how far it is, kubectl vmlet resume %[1]s -n %[2]s cancels it", vm.Name, c.Namespace)
}

func saved(vm *kubevirtv1.VirtualMachine) (bool, error) {
	if !seen(vm) {
		return false, nil
	}
	h := vm.Status.HibernationStatus
	switch {
	case kubevirtv1.RunStrategyOf(&vm.Spec) != kubevirtv1.RunStrategyHibernate:
		return false, fmt.Errorf("somebody else has set runStrategy of VM %s to %s meanwhile", vm.Name, kubevirtv1.RunStrategyOf(&vm.Spec))
	case h == nil && vm.Status.PrintableStatus == kubevirtv1.StatusStopped:
		return false, fmt.Errorf("VM %s has shut down by itself: nothing was saved", vm.Name)
	case h == nil:
		return false, nil
	case h.Phase == kubevirtv1.HibernationFailed:
		return false, failedSave(vm)
	}
	return h.Phase == kubevirtv1.HibernationCompleted, nil
}

// saveError: a VM was not saved.
type saveError struct{ text, again string }

func (e *saveError) Error() string { return e.text + "; " + e.again }

func failedSave(vm *kubevirtv1.VirtualMachine) error {
	h := vm.Status.HibernationStatus
	again := "it is tried again by itself"
	if h.Reason == kubevirtv1.ReasonCannotSave {
		again = "it is not tried again before the VM is changed"
	}
	if t := h.RetryTimestamp; t != nil {
		again = "it is tried again at " + t.UTC().Format(time.RFC3339)
	}
	return &saveError{fmt.Sprintf("VM %s was not hibernated, and its guest goes on: %s: %s", vm.Name, h.Reason, h.Message), again}
}

// savedAs says where a VM's memory is.
func savedAs(vm *kubevirtv1.VirtualMachine) string {
	line := fmt.Sprintf("VM %s is hibernated", vm.Name)
	if h := vm.Status.HibernationStatus; h != nil && h.Image != nil {
		line += fmt.Sprintf(": %d MiB in claim %s", (h.Image.SizeBytes+(1<<20)-1)>>20, h.Image.ClaimName)
	}
	return line + "."
}

// untilRuns waits until a VM's guest goes on. A failure that was there before is no news.
func (c *Commands) untilRuns(ctx context.Context, vm *kubevirtv1.VirtualMachine, before *kubevirtv1.ResumeStatus) error {
	err := c.await(ctx, vm, func(now *kubevirtv1.VirtualMachine) (bool, error) {
		if before != nil && reflect.DeepEqual(before, now.Status.ResumeStatus) && before.Phase == kubevirtv1.ResumeFailed {
			return false, nil
		}
		return runs(now)
	})
	if err == nil {
		c.say("VM %s runs.", vm.Name)
	}
	return interrupted(err, "VM %[1]s is still being resumed: kubectl vmlet why %[1]s -n %[2]s says how far it is", vm.Name, c.Namespace)
}

func runs(vm *kubevirtv1.VirtualMachine) (bool, error) {
	if !seen(vm) {
		return false, nil
	}
	if r := vm.Status.ResumeStatus; r != nil && r.Phase == kubevirtv1.ResumeFailed {
		return false, fmt.Errorf("VM %s was not resumed, and what was saved is kept: %s: %s", vm.Name, r.Reason, r.Message)
	}
	if kubevirtv1.RunStrategyOf(&vm.Spec) == kubevirtv1.RunStrategyHibernate || kubevirtv1.RunStrategyOf(&vm.Spec) == kubevirtv1.RunStrategyHalted {
		return false, fmt.Errorf("somebody else has set runStrategy of VM %s to %s meanwhile", vm.Name, kubevirtv1.RunStrategyOf(&vm.Spec))
	}
	up := vm.Status.PrintableStatus == kubevirtv1.StatusRunning || vm.Status.PrintableStatus == kubevirtv1.StatusPaused
	return up && vm.Status.HibernationStatus == nil, nil
}
