package e2e

import (
	"slices"
	"testing"

	"github.com/vmlet/vmlet/test/everything"
)

// TestConformance has every VMM do the same, under one hypervisor; its other versions,
// and those under others, do what may differ there. docs/adding-a-vmm.md says how another
// VMM gets here.
func TestConformance(t *testing.T) {
	t.Parallel()
	all := targets(t)
	for _, g := range all {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			s := &suite{newNode(t, g.options), g}
			before := s.leftovers()
			for _, c := range cases() {
				t.Run(c.name, func(t *testing.T) {
					if !g.does(c, all) {
						everything.OrSkip(t, "another hypervisor or version goes through it")
					}
					s.in(t)
					t.Cleanup(func() { s.asBefore(before) })
					c.run(s)
				})
			}
		})
	}
}

// does says whether a target has a case in the short form.
func (g target) does(c conformance, all []target) bool {
	switch {
	case g.name == foremost(g.vmm, all).name:
		return true
	case g.crawls && g.firmware: // where each boot takes most of a minute
		return c.slow
	}
	return c.differs
}

// foremost is the one that has all cases of a VMM: the last, which has the newest
// version, of those that don't crawl, if there is one.
func foremost(vmm string, all []target) (found target) {
	for _, g := range all {
		if g.vmm == vmm && !g.driver && (found.name == "" || found.crawls || !g.crawls) {
			found = g
		}
	}
	return found
}

// conformance is a case: what it is about, and how it is seen. It has the node to
// itself, and leaves an agent that runs.
type conformance struct {
	name string
	run  func(s *suite)
	// differs: versions of a VMM, or hypervisors, may differ in it.
	differs bool
	// slow: it is worth its time where a boot takes most of a minute, too.
	slow bool
}

func cases() []conformance {
	return []conformance{
		{name: "life", run: (*suite).life, differs: true},
		{name: "the guest ends by itself", run: (*suite).guestEnds, differs: true},
		{name: "a guest that does not shut down", run: (*suite).stubborn},
		{name: "operations and states", run: (*suite).states},
		{name: "a VMM that does not answer", run: (*suite).hangs},
		{name: "save and restore", run: (*suite).savesAndRestores, differs: true, slow: true},
		{name: "clones side by side", run: (*suite).clones},
		{name: "images refused", run: (*suite).imagesRefused},
		{name: "damage under a lazily restored VM", run: (*suite).damagedLater},
		{name: "saves refused", run: (*suite).savesRefused},
		{name: "saves interrupted", run: (*suite).savesInterrupted, differs: true},
		{name: "restores interrupted", run: (*suite).restoresInterrupted, differs: true},
		{name: "crash", run: (*suite).crashes, differs: true},
		{name: "isolation", run: (*suite).isolated},
		{name: "agent killed", run: (*suite).agentKilled},
		{name: "agent stopped", run: (*suite).agentStopped},
		{name: "reboot", run: (*suite).rebooted},
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
