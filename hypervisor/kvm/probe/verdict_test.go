package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/hypervisor"
)

func TestVerdict(t *testing.T) {
	broke := errors.New("it broke off")
	at := func(perSecond int) time.Duration { return time.Second * trialInstructions / time.Duration(perSecond) }
	some := []time.Duration{at(1_000_000)}
	tests := []struct {
		name   string
		o      outcome
		want   hypervisor.Level
		reason string
		limits []string
	}{
		{"healthy", outcome{protected: some, long: []time.Duration{at(1_000_000_000)}, atomic: true}, hypervisor.Works, "", nil},
		{"one round disturbed", outcome{protected: some, long: []time.Duration{at(1_000_000), at(60_000_000)}, atomic: true}, hypervisor.Works, "", nil},
		{"faster than the clock", outcome{protected: some, long: []time.Duration{0}, atomic: true}, hypervisor.Works, "", nil},
		{"just too slow", outcome{protected: some, long: []time.Duration{at(49_000_000)}, atomic: true}, hypervisor.Degraded, "fewer than 50 million a second", []string{"slower"}},
		{"very slow", outcome{protected: some, long: []time.Duration{at(400_000)}, atomic: true}, hypervisor.Degraded, "fewer than 50 million a second", []string{"slower"}},
		{"slow and no atomic", outcome{protected: some, long: some, failure: broke}, hypervisor.Degraded, "fewer than 50 million a second", []string{"slower", "64-bit Linux doesn't boot"}},
		{"no atomic", outcome{protected: some, long: []time.Duration{at(1_000_000_000)}, failure: broke}, hypervisor.Degraded, "doesn't run 64-bit Linux", []string{"it broke off"}},
		{"32 bits only", outcome{protected: some, failure: broke}, hypervisor.Degraded, "32-bit guests only", []string{"no 64-bit guests"}},
		{"no end", outcome{protected: some, failure: fmt.Errorf("it didn't end in time (%w)", context.DeadlineExceeded)}, hypervisor.Unusable, "had no end within 4s", nil},
		{"nothing", outcome{failure: broke}, hypervisor.Unusable, "doesn't run a trial guest: it broke off", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := verdict(tt.o)
			if s.Level != tt.want || !strings.Contains(s.Reason, tt.reason) || (s.Reason == "") != (tt.want == hypervisor.Works) {
				t.Errorf("%v, %q, want %v, %q", s.Level, s.Reason, tt.want, tt.reason)
			}
			if len(s.Limits) != len(tt.limits) {
				t.Fatalf("limits %q, want %q", s.Limits, tt.limits)
			}
			for i, l := range tt.limits {
				if !strings.Contains(s.Limits[i], l) {
					t.Errorf("limit %q doesn't say %q", s.Limits[i], l)
				}
			}
		})
	}
}

func TestEnough(t *testing.T) {
	slow, fast := 30*time.Millisecond, 10*time.Microsecond
	for _, tt := range []struct {
		o    outcome
		want bool
	}{
		{outcome{}, false},
		{outcome{long: []time.Duration{fast}}, false}, // the atomic instruction is still to come
		{outcome{long: []time.Duration{fast}, atomic: true}, true},
		{outcome{long: []time.Duration{slow, slow}, atomic: true}, false},
		{outcome{long: []time.Duration{slow, slow, slow}, atomic: true}, true},
	} {
		if got := tt.o.enough(); got != tt.want {
			t.Errorf("%+v: %v", tt.o, got)
		}
	}
}
