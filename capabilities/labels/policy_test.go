package labels

import (
	"os"
	"strings"
	"testing"
)

// TestAdmitted: the admission policy lets the agent write every family. Of some
// domains it has all, of others single keys.
func TestAdmitted(t *testing.T) {
	raw, err := os.ReadFile("../../deploy/base/admission-policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families() {
		domain, _, _ := strings.Cut(f.key, "/")
		if !strings.Contains(string(raw), `"`+f.key+`"`) && !strings.Contains(string(raw), `"`+domain+`/"`) {
			t.Errorf("%s: deploy/base/admission-policy.yaml refuses it", f.key)
		}
	}
}
