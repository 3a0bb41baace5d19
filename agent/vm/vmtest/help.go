package vmtest

import (
	"testing"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Spec is a VM with a tap.
func Spec(name string) *specv1.VirtualMachineSpec {
	return &specv1.VirtualMachineSpec{
		Name: name, Labels: map[string]string{"app": "web"},
		Boot: &specv1.Boot{Kernel: &specv1.KernelBoot{Path: "/kernel"}},
		Networks: []*specv1.NetworkInterface{
			{Backend: &specv1.NetworkInterface_Tap{Tap: &specv1.TapNetwork{Bridge: "br0"}}},
		},
	}
}

// WantCode wants the code that a caller gets of an error.
func WantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(fault.ToStatus(err)); got != want {
		t.Errorf("%s: %v (%v), want %v", what, got, err, want)
	}
}

// Eventually polls for what no event tells.
func Eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s: it does not come about", what)
		}
	}
}
