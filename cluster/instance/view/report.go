package view

import nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"

// Started: the guest runs, or has been paused while it ran.
func Started(vm *nodev1.VirtualMachine) bool {
	switch vm.GetStatus().GetState() {
	case nodev1.State_STATE_RUNNING, nodev1.State_STATE_PAUSED, nodev1.State_STATE_SAVING, nodev1.State_STATE_STOPPING:
		return true
	}
	return false
}

// MayRun: the agent has the VM, in a state in which it may run. States of a newer agent are among
// them. A VM whose start failed is only created, for as long as its pod is there.
func MayRun(vm *nodev1.VirtualMachine) bool {
	return vm != nil && !Stopped(vm) && vm.GetStatus().GetState() != nodev1.State_STATE_CREATED
}

// Stopped: the VM has ended.
func Stopped(vm *nodev1.VirtualMachine) bool {
	switch vm.GetStatus().GetState() {
	case nodev1.State_STATE_STOPPED, nodev1.State_STATE_CRASHED, nodev1.State_STATE_SAVED:
		return true
	}
	return false
}
