package probe

import (
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"google.golang.org/protobuf/proto"
	"testing"
)

func TestWithoutPlace(t *testing.T) {
	for _, c := range []struct{ asked, want *capabilitiesv1.CpuidLeaf }{
		{&capabilitiesv1.CpuidLeaf{Function: 1, Eax: 7, Ebx: 0x01020800, Edx: 9}, &capabilitiesv1.CpuidLeaf{Function: 1, Eax: 7, Ebx: 0x00020800, Edx: 9}},
		{&capabilitiesv1.CpuidLeaf{Function: 0xB, Ecx: 1, Edx: 3}, &capabilitiesv1.CpuidLeaf{Function: 0xB, Ecx: 1}},
		{&capabilitiesv1.CpuidLeaf{Function: 0x8000001E, Eax: 3, Ebx: 0x101, Ecx: 0x301, Edx: 5}, &capabilitiesv1.CpuidLeaf{Function: 0x8000001E, Ebx: 0x100, Ecx: 0x300, Edx: 5}},
		{&capabilitiesv1.CpuidLeaf{Function: 7, Ebx: 0xFF000000}, &capabilitiesv1.CpuidLeaf{Function: 7, Ebx: 0xFF000000}},
	} {
		if got := withoutPlace([]*capabilitiesv1.CpuidLeaf{c.asked})[0]; !proto.Equal(got, c.want) {
			t.Errorf("%v, not %v", got, c.want)
		}
	}
}
