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
