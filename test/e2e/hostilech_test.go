package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/vmlet/vmlet/test/chtest"
)

// TestHostileCloudHypervisor has the stand-in misbehave, also where there is a real
// cloud-hypervisor: that one can't be told to.
func TestHostileCloudHypervisor(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("not in short mode")
	}
	if why := unfit(); why != "" {
		t.Skip(why)
	}
	if !slices.Contains(hypervisors(t), "kvm") {
		t.Skip("cloud-hypervisor needs KVM, and there is none")
	}
	dir := filepath.Join(bin, "hostile-cloud-hypervisor")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	program, err := chtest.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	g := target{vmm: "cloud-hypervisor", hypervisor: "kvm", options: nodeOptions{config: fmt.Sprintf("cloudHypervisor: {binary: %s}\n", program)}}
	withHostile(t, g, hostileCloudHypervisor(program), false, func(h *misled) { h.must(chtest.Knobs{}.Write(program)) })
}

func hostileCloudHypervisor(program string) []hostile {
	turn := func(knobs chtest.Knobs) func(*misled) {
		return func(h *misled) { h.must(knobs.Write(program)) }
	}
	fails := func(knobs chtest.Knobs, words ...string) func(*misled) {
		return func(h *misled) {
			turn(knobs)(h)
			h.refuses(h.vm.start(false), codes.Internal, words...)
			says(h.t, h.is(created), append(words, "start failed")...)
			h.well()
		}
	}
	type answers = map[string]chtest.Answer
	type refusals = map[string][]string
	many := strings.Repeat("no, ", 256<<10)
	return []hostile{
		{name: "answers without end", start: fails(chtest.Knobs{Answer: answers{"vm.create": {Status: 500, Body: `["x"]`, Size: 64 << 20}}}, "too long")},
		{name: "exits with many words", start: fails(chtest.Knobs{
			Spill: map[string]int{"vm.boot": 10 << 20}, Die: map[string]chtest.Death{"vm.boot": {Code: 7, Words: "out of luck"}},
		}, "exit status 7", "out of luck")},
		{name: "floods events", later: turn(chtest.Knobs{Flood: 100_000}), do: func(h *misled) {
			h.pause()
			h.well()
			h.resume()
			h.goesOn()
		}},
		{name: "sends what is no event", later: turn(chtest.Knobs{Junk: map[string]int{"vm.pause": 8 << 20}}), do: func(h *misled) {
			h.pause()
			h.resume()
			h.goesOn()
		}},
		{name: "refuses in many words", later: turn(chtest.Knobs{Refuse: refusals{"vm.pause": {many, many}}}), do: func(h *misled) {
			h.refuses(h.tryPause(h.ctx), codes.Unavailable, "too long")
			h.refuses(h.trySave(h.ctx, true), codes.Internal, "too long")
			h.goesOn()
		}},
		{name: "always says that it is paused", later: turn(chtest.Knobs{Answer: answers{"vm.info": {Body: `{"state":"Paused"}`}}}), do: func(h *misled) {
			h.refuses(h.trySave(h.ctx, true), codes.Internal, "vm.snapshot")
			h.goesOn()
		}},
		{name: "saves nothing", later: turn(chtest.Knobs{Answer: answers{"vm.snapshot": {Status: 204}}}), do: func(h *misled) {
			h.refuses(h.trySave(h.ctx, false), codes.FailedPrecondition, "no such file")
			h.goesOn()
		}},
		{name: "never saves", later: turn(chtest.Knobs{Answer: answers{"vm.snapshot": {Hang: true}}}), do: func(h *misled) {
			h.givesUp()
			h.goesOn()
		}},
		{name: "hangs up and lives on", later: turn(chtest.Knobs{Hangup: map[string]bool{"vm.pause": true}}), do: func(h *misled) {
			h.refuses(h.tryPause(h.ctx), codes.Unavailable, "hung up")
			h.refuses(h.trySave(h.ctx, true), codes.Internal, "kill the VM")
			h.countsOn()
		}},
		{name: "prints without end", later: func(h *misled) {
			h.unfollow() // this test keeps all of it
			turn(chtest.Knobs{Spill: map[string]int{"vm.pause": 48 << 20}})(h)
		}, do: func(h *misled) {
			h.pause()
			h.resume()
		}},
	}
}
