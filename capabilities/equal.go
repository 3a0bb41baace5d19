package capabilities

import (
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"google.golang.org/protobuf/proto"
)

// Equal says whether two documents say the same, but for how fast trial guests
// ran, which no two trials agree on.
func Equal(a, b *capabilitiesv1.Capabilities) bool {
	if a == nil || b == nil {
		return a == b
	}
	return proto.Equal(withoutSpeed(a), withoutSpeed(b))
}

func withoutSpeed(doc *capabilitiesv1.Capabilities) *capabilitiesv1.Capabilities {
	out := proto.CloneOf(doc)
	for _, h := range out.GetHypervisors() {
		h.InstructionsPerSecond = 0
	}
	return out
}
