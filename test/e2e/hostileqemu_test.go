package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/relay"
	"google.golang.org/grpc/codes"
)

// TestHostileQEMU has QEMU misbehave in all ways that its monitors, its output and its
// end allow.
func TestHostileQEMU(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("not in short mode")
	}
	g := emulated(t)
	dir := filepath.Join(bin, "hostile")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	program, err := relay.Build(t.Context(), dir, g.options.qemu.binary)
	if err != nil {
		t.Fatal(err)
	}
	g.options.qemu.binary = program
	withHostile(t, g, hostileQEMU(program), true, func(h *misled) { h.must(relay.Knobs{}.Write(program, h.name)) })
}

// saying is a text without repetition.
func saying(text string) relay.Text { return relay.Text{Head: text} }

func hostileQEMU(program string) []hostile {
	turn := func(knobs relay.Knobs) func(*misled) {
		return func(h *misled) { h.must(knobs.Write(program, h.name)) }
	}
	// fails is a start that does.
	fails := func(knobs relay.Knobs, code codes.Code, words ...string) func(*misled) {
		return func(h *misled) {
			turn(knobs)(h)
			err := h.vm.start(false)
			h.refuses(err, code, words...)
			says(h.t, h.is(created), append(words, "start failed")...)
		}
	}
	const runs = `{"return":{"status":"running","singlestep":false,"running":true},"id":"$ID"}` + "\r\n"
	const completed = `{"return":{},"id":"$ID"}` + "\r\n" +
		`{"timestamp":{"seconds":1,"microseconds":1},"event":"MIGRATION","data":{"status":"completed"}}` + "\r\n"
	const stands = `{"return":{"status":"paused","singlestep":false,"running":false},"id":"$ID"}` + "\r\n"
	flood := func(event string, times int) relay.Deed {
		return relay.Deed{Pass: true, Say: relay.Text{Body: event, Times: times}}
	}
	// refusal is one in 400 KiB of words: a message may have 512.
	refusal := relay.Deed{Say: relay.Text{
		Head: `{"id":"$ID","error":{"class":"GenericError","desc":"`, Body: "no, ", Times: 100 << 10, Tail: `"}}` + "\n",
	}}
	pause := func(h *misled) {
		h.must(h.tryPause(h.ctx))
		h.is(paused)
		h.resume()
	}
	return []hostile{
		{name: "exits at once", start: fails(relay.Knobs{relay.AtStart: {Exit: 3}}, codes.Internal, "exit status 3", "without a word")},
		{name: "exits with words", start: fails(relay.Knobs{relay.AtStart: {Exit: 3, Errors: saying("not today\n")}}, codes.Internal, "exit status 3", "not today")},
		{name: "exits with many words", start: fails(relay.Knobs{relay.AtStart: {Exit: 3, Errors: relay.Text{Body: "not today\n", Times: 1 << 20}}}, codes.Internal, "exit status 3", "not today")},
		{name: "greets without end", start: fails(relay.Knobs{relay.AtGreeting: {Say: relay.Text{Head: `{"QMP":"`, Body: "x", Times: 4 << 30}}}, codes.Internal, "too long")},
		{name: "greets with garbage", start: fails(relay.Knobs{relay.AtGreeting: {Say: saying("}{\n")}}, codes.Internal, "}{")},
		{name: "greets with a deep nest", start: fails(relay.Knobs{relay.AtGreeting: {Say: relay.Text{Head: `{"QMP":`, Body: "[", Times: 1 << 19, Tail: "\n"}}}, codes.Internal, "depth")},
		{name: "closes its monitors", start: fails(relay.Knobs{relay.AtGreeting: {Hangup: true}}, codes.Internal, "closed its monitor")},
		{name: "refuses in many words", start: fails(relay.Knobs{"cont": refusal}, codes.Internal, "no, no")},
		{name: "stands still", start: fails(relay.Knobs{"query-status": {Say: saying(stands)}}, codes.Internal, "paused", "after cont")},
		{name: "says nothing", start: func(h *misled) {
			turn(relay.Knobs{relay.AtGreeting: {}})(h)
			_, err := last(h.api.StartVM(h.impatient(), &nodev1.StartVMRequest{Name: h.name}))
			h.refuses(err, codes.DeadlineExceeded)
		}},

		{name: "floods events", later: turn(relay.Knobs{"stop": flood(`{"event":"X","data":{}}`+"\n", 300_000)}), do: func(h *misled) {
			pause(h)
			h.must(h.trySave(h.ctx, true))
			h.goesOn()
		}},
		{name: "floods events of weight", later: turn(relay.Knobs{"stop": flood(`{"event":"X","data":"`+strings.Repeat("x", 256<<10)+`"}`+"\n", 128)}), do: func(h *misled) {
			pause(h)
			h.must(h.trySave(h.ctx, true))
			h.goesOn()
		}},
		{name: "flaps", later: turn(relay.Knobs{"stop": flood(`{"event":"STOP"}`+"\n"+`{"event":"RESUME"}`+"\n", 100_000)}), do: func(h *misled) {
			h.must(h.tryPause(h.ctx))
			h.well()
			from := h.now()
			_, err := h.api.ResumeVM(h.ctx, &nodev1.ResumeVMRequest{Name: h.name})
			h.must(err)
			if h.get().GetStatus().GetState() != running { // by an event of long ago
				h.becomes(from, running)
			}
			h.countsOn()
		}},
		{name: "answers garbage", later: turn(relay.Knobs{"stop": {Say: saying("}{\n")}}), do: func(h *misled) {
			h.refuses(h.tryPause(h.ctx), codes.Unavailable, "}{")
			h.well()
			h.countsOn()
		}},
		{name: "answers garbage in a save", later: turn(relay.Knobs{"migrate": {Say: saying("}{\n")}}), do: func(h *misled) {
			h.refuses(h.trySave(h.ctx, true), codes.Internal, "}{")
		}},
		{name: "answers another", later: turn(relay.Knobs{"stop": {Say: saying(`{"return":{},"id":"another"}` + "\n")}}), do: func(h *misled) {
			h.refuses(h.tryPause(h.impatient()), codes.DeadlineExceeded)
			h.goesOn()
		}},
		{name: "answers twice", later: turn(relay.Knobs{"stop": {Pass: true, Twice: true}, "query-status": {Pass: true, Twice: true}, "cont": {Pass: true, Twice: true}}), do: func(h *misled) {
			pause(h)
			h.must(h.trySave(h.ctx, true))
			h.goesOn()
		}},
		{name: "refuses to stop in many words", later: turn(relay.Knobs{"stop": refusal}), do: func(h *misled) {
			h.refuses(h.tryPause(h.ctx), codes.Unavailable, "no, no")
			h.refuses(h.trySave(h.ctx, true), codes.Internal, "no, no")
			h.goesOn()
		}},
		{name: "always says that it runs", later: turn(relay.Knobs{"query-status": {Say: saying(runs)}}), do: func(h *misled) {
			h.refuses(h.tryPause(h.ctx), codes.Unavailable, "try again")
			h.refuses(h.trySave(h.ctx, true), codes.Internal, "running", "after stop")
			h.goesOn()
		}},
		{name: "saves nothing", later: turn(relay.Knobs{"migrate": {Say: saying(completed)}}), do: func(h *misled) {
			h.refuses(h.trySave(h.ctx, false), codes.Internal, "device state", "empty")
			h.goesOn()
		}},
		{name: "saves zeroes", later: turn(relay.Knobs{"migrate": {Say: saying(completed), Write: relay.Text{Body: "\x00", Times: 1 << 20}}}), do: func(h *misled) {
			h.refuses(h.trySave(h.ctx, false), codes.Internal, "device state")
			h.goesOn()
		}},
		{name: "never saves", later: turn(relay.Knobs{"migrate": {}}), do: func(h *misled) {
			h.givesUp()
			h.goesOn()
		}},
		{name: "dies in a save", later: turn(relay.Knobs{"migrate": {Exit: 7, Errors: saying("out of luck\n")}}), do: func(h *misled) {
			from := h.now()
			h.refuses(h.trySave(h.ctx, false), codes.Internal, "out of luck")
			says(h.t, h.becomes(from, crashed), "out of luck", "7")
		}},
		{name: "hangs up and lives on", later: turn(relay.Knobs{"stop": {Hangup: true}}), do: func(h *misled) {
			h.refuses(h.tryPause(h.ctx), codes.Unavailable)
			h.refuses(h.trySave(h.ctx, true), codes.Internal)
			h.refuses(h.tryPause(h.ctx), codes.Unavailable, "kill the VM")
			h.remarks("monitor", "kill the VM")
			h.countsOn()
		}},
		{name: "prints without end", later: func(h *misled) {
			h.unfollow() // this test keeps all of it
			turn(relay.Knobs{"stop": {Pass: true, Errors: relay.Text{Body: "oh no\n", Times: 8 << 20}, Console: relay.Text{Body: "x", Times: 48 << 20}}})(h)
		}, do: pause},
	}
}
