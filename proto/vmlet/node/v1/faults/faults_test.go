package faults

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vmlet/vmlet/contract"
)

// TestOfError: what an agent puts into an error arrives, and an error without it has none.
func TestOfError(t *testing.T) {
	whole := []contract.Fault{
		{Reason: "R", Field: "disks[0].path", Object: "/dev/x", Text: "in use", UseVMM: "qemu", Advice: "fuser names it"},
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

// TestBounds: a list and its texts have bounds, both ways, and are text.
func TestBounds(t *testing.T) {
	var all []contract.Fault
	for range 2 * maxFaults {
		all = append(all, contract.Fault{Text: strings.Repeat("ü", maxText), Field: "\xff"})
	}
	for _, f := range FromProto(ToProto(all)) {
		if len(f.Text) > maxText || !utf8.ValidString(f.Text) {
			t.Errorf("%d bytes, valid %t", len(f.Text), utf8.ValidString(f.Text))
		}
		if f.Field != "" {
			t.Errorf("field %q", f.Field)
		}
	}
	if n := len(ToProto(all)); n != maxFaults {
		t.Errorf("%d faults are sent, want %d", n, maxFaults)
	}
}
