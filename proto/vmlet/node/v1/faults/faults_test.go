package faults

import (
	"errors"
	"reflect"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// TestOfError: what an agent puts into an error arrives, and an error without it has none.
func TestOfError(t *testing.T) {
	whole := []contract.Fault{
		{Reason: "R", Field: "disks[0].path", Object: "/dev/x", Text: "in use", UseVMM: "qemu", Advice: "fuser names it", OtherVM: "a/b", Fields: []string{"memory.size"}},
		{Text: "no room"},
	}
	with, err := status.New(codes.InvalidArgument, "x").WithDetails(Detail(whole))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		err  error
		want []contract.Fault
	}{
		"faults":           {with.Err(), whole},
		"an older agent's": {status.Error(codes.InvalidArgument, "disks[0].path: in use"), nil},
		"no agent's":       {errors.New("no"), nil},
		"nothing is wrong": {nil, nil},
	} {
		if got := OfError(c.err); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestBounds: a list has bounds, both ways.
func TestBounds(t *testing.T) {
	all := make([]contract.Fault, 1000)
	if n := len(ToProto(all)); n != maxFaults {
		t.Errorf("%d faults are sent, want %d", n, maxFaults)
	}
	if n := len(FromProto(make([]*nodev1.Fault, 1000))); n != maxFaults {
		t.Errorf("%d faults are read, want %d", n, maxFaults)
	}
}

// maxFaults is contract's.
const maxFaults = 32
