package e2e

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// killer kills processes at random, or has them stand still for a while. It is the only
// one who starts agents.
type killer struct {
	*storm
	random *rand.Rand
	kills  map[string]int
}

// strike does so once.
func (k *killer) strike() {
	k.t.Helper()
	who := []string{theAgent, theShim, theVMM}[k.random.IntN(3)]
	pids := k.victims(who)
	if len(pids) == 0 {
		return
	}
	slices.Sort(pids) // else the seed repeats nothing
	pid := pids[k.random.IntN(len(pids))]
	if k.random.IntN(4) == 0 {
		k.kills[who+" stood still"]++
		_ = unix.Kill(pid, unix.SIGSTOP)
		time.Sleep(time.Duration(k.random.IntN(300)) * time.Millisecond)
		_ = unix.Kill(pid, unix.SIGCONT)
		return
	}
	k.kills[who]++
	k.must(slay(pid))
	if who == theAgent {
		<-k.ended
		k.conn.Close()
		k.start()
	}
}

// TestChaosKills kills agents, shims and VMMs at random while clients are at VMs.
func TestChaosKills(t *testing.T) {
	duration, err := time.ParseDuration(os.Getenv(chaos))
	if err != nil {
		t.Skipf("%s is no duration, as make chaos sets it: %v", chaos, err)
	}
	for _, g := range targets(t) {
		if g.crawls && g.firmware {
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			s := newStorm(t, g, 4)
			s.kills = true
			k := &killer{storm: s, random: rand.New(rand.NewPCG(s.seed, 1<<32)), kills: make(map[string]int)}
			end := time.Now().Add(duration)
			more := func() bool { return time.Now().Before(end) }
			done := make(chan struct{})
			go func() { s.run(8, more); close(done) }()
			for more() {
				time.Sleep(time.Duration(k.random.IntN(1500)) * time.Millisecond)
				k.strike()
			}
			<-done
			t.Logf("killed: %v", k.kills)
			s.calm()
		})
	}
}
