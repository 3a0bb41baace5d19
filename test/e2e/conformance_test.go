package e2e

import (
	"os"
	"slices"
	"testing"
)

// TestConformance has every VMM, under every hypervisor that this machine has, do
// the same. docs/adding-a-vmm.md says how another one gets here.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, g := range targets(t) {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			s := &suite{newNode(t, g.options), g}
			before := s.leftovers()
			for _, c := range cases() {
				t.Run(c.name, func(t *testing.T) {
					if c.heavy && g.crawls && g.firmware && os.Getenv(everything) == "" {
						t.Skipf("a minute of firmware where %s emulates each instruction: %s=1 runs it all the same", g.hypervisor, everything)
					}
					s.in(t)
					t.Cleanup(func() { s.asBefore(before) })
					c.run(s)
				})
			}
		})
	}
}

// everything is the variable that has all cases run everywhere.
const everything = "VMLET_E2E_EVERYTHING"

// conformance is a case: what it is about, and how it is seen. It has the node to
// itself, and leaves an agent that runs.
type conformance struct {
	name string
	run  func(s *suite)
	// heavy: it takes too long where a boot takes seconds, and finds nothing there
	// that it would not find elsewhere.
	heavy bool
}

func cases() []conformance {
	return []conformance{
		{name: "life", run: (*suite).life},
		{name: "the guest ends by itself", run: (*suite).guestEnds, heavy: true},
		{name: "a guest that does not shut down", run: (*suite).stubborn},
		{name: "operations and states", run: (*suite).states, heavy: true},
		{name: "a VMM that does not answer", run: (*suite).hangs, heavy: true},
		{name: "save and restore", run: (*suite).savesAndRestores},
		{name: "clones side by side", run: (*suite).clones},
		{name: "images refused", run: (*suite).imagesRefused, heavy: true},
		{name: "damage under a lazily restored VM", run: (*suite).damagedLater, heavy: true},
		{name: "saves refused", run: (*suite).savesRefused, heavy: true},
		{name: "saves interrupted", run: (*suite).savesInterrupted, heavy: true},
		{name: "restores interrupted", run: (*suite).restoresInterrupted, heavy: true},
		{name: "crash", run: (*suite).crashes, heavy: true},
		{name: "isolation", run: (*suite).isolated, heavy: true},
		{name: "agent killed", run: (*suite).agentKilled, heavy: true},
		{name: "agent stopped", run: (*suite).agentStopped, heavy: true},
		{name: "reboot", run: (*suite).rebooted, heavy: true},
	}
}

// asBefore ends a case's VMs and sees that nothing of them is left.
func (s *suite) asBefore(before []string) {
	s.t.Helper()
	if !s.alive() {
		s.t.Errorf("the case leaves an agent that has ended: %v", s.cmd.ProcessState)
		s.start()
	}
	s.endVMs()
	for _, left := range s.leftovers() {
		if !slices.Contains(before, left) {
			s.t.Errorf("left behind: %s", left)
		}
	}
	if s.t.Failed() {
		s.t.Logf("the agent's log:\n%s", tail(s.log(), 16<<10))
	}
}
