// Package capabilitiesv1 is the document of what a node can give a guest, and the service
// that answers from it. All but this file is generated from capabilities.proto.
package capabilitiesv1

import "strings"

// Word returns the state as people and Kubernetes labels have it: "works",
// "degraded", "unusable" or "absent"; empty for one that was not asked.
func (s State) Word() string {
	if s == State_STATE_UNSPECIFIED {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(s.String(), "STATE_"))
}
