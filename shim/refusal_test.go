package shim

import (
	"encoding/json"
	"testing"

	"github.com/vmlet/vmlet/contract"
)

// TestRefusal: a shim takes what an agent says in parts, and the sentence of an older one, which has the reason in front.
func TestRefusal(t *testing.T) {
	for body, want := range map[string]contract.Ending{
		`{"reason":"ImageUnfit: no avx512"}`: {Reason: contract.RestoreImageUnfit, Message: "no avx512"},
		`{"reason":"no KVM"}`:                {Message: "no KVM"},
		`{"reason":"ImageUnfit: no avx512","ending":{"reason":"ImageUnfit","message":"no avx512"}}`: {Reason: contract.RestoreImageUnfit, Message: "no avx512"},
	} {
		var k Kill
		var r Release
		for _, into := range []any{&k, &r} {
			if err := json.Unmarshal([]byte(body), into); err != nil {
				t.Fatal(err)
			}
		}
		for _, got := range []*contract.Ending{k.Refusal(), r.Refusal()} {
			if got == nil || got.Reason != want.Reason || got.Message != want.Message {
				t.Errorf("%s: %+v, want %+v", body, got, want)
			}
		}
	}
	if got := new(Release).Refusal(); got != nil {
		t.Errorf("nothing is wrong: %+v", got)
	}
}
