package virtualmachines_test

import (
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"
)

// deed is what a client does with its VM. Afterwards that is to run, but the next deed need not wait for it.
type deed string

const (
	awaited    deed = "awaited"
	restarted  deed = "stopped and started"
	hibernated deed = "hibernated and resumed"
	moved      deed = "moved"
	drained    deed = "drained"
	recreated  deed = "deleted and created"
	forced     deed = "deprived of its pod"
)

// deeds are those of clients; what is more likely is there more than once.
var deeds = []deed{awaited, awaited, restarted, hibernated, hibernated, hibernated, moved, moved, drained, recreated, forced}

// chaosRound is what is done in one round.
type chaosRound struct {
	deeds [][]deed // by VM
	fault string   // by which it is found
	// after is how long after the clients' beginning there is the fault, lasts how long it lasts if it is
	// of those that do.
	after, lasts time.Duration
	// target is the VM or the node that it is about, of as many as there are.
	target int
}

// everyDays is the round of make test: guests are hibernated, and one moves, while a node is cut off. None may boot.
var everyDays = chaosRound{deeds: [][]deed{{hibernated}, {moved}, {hibernated}}, fault: "cut off", after: time.Second, lasts: 5 * time.Second}

// What make chaos-cluster sets: how many rounds there are, and what they are chosen by.
const (
	roundsVariable = "VMLET_CHAOS_ROUNDS"
	seedVariable   = "VMLET_CHAOS_SEED"
)

// chaosRounds are those that are asked for.
func chaosRounds(t *testing.T) (rounds []chaosRound) {
	t.Helper()
	if os.Getenv(roundsVariable) == "" {
		return []chaosRound{everyDays}
	}
	many, err := strconv.Atoi(os.Getenv(roundsVariable))
	must(t, err)
	seed, err := strconv.ParseUint(os.Getenv(seedVariable), 10, 64)
	must(t, err)
	t.Logf("%s=%d", seedVariable, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range many {
		rounds = append(rounds, chooseRound(random, len(chaosVMs), faultNames()))
	}
	return rounds
}

// deedsARound is how many a client does in a round.
const deedsARound = 4

// chooseRound follows from what is random alone.
func chooseRound(random *rand.Rand, vms int, faults []string) chaosRound {
	r := chaosRound{
		fault:  faults[random.IntN(len(faults))],
		after:  time.Duration(random.IntN(8_000)) * time.Millisecond,
		lasts:  time.Duration(1+random.IntN(15)) * time.Second,
		target: random.IntN(1 << 16),
	}
	if random.IntN(4) == 0 { // long enough for what gives up, and short enough for many rounds
		r.lasts *= 4
	}
	for range vms {
		var own []deed
		for range deedsARound {
			own = append(own, deeds[random.IntN(len(deeds))])
		}
		r.deeds = append(r.deeds, own)
	}
	return r
}

// TestChaosRounds: a seed repeats its rounds, and enough of them have every deed and every fault.
func TestChaosRounds(t *testing.T) {
	faults := []string{"one", "two", "three"}
	rounds := func(seed uint64) (all []chaosRound) {
		random := rand.New(rand.NewPCG(seed, 0))
		for range 200 {
			all = append(all, chooseRound(random, 2, faults))
		}
		return all
	}
	first := rounds(1)
	if !reflect.DeepEqual(first, rounds(1)) {
		t.Error("the same seed has other rounds")
	}
	if reflect.DeepEqual(first, rounds(2)) {
		t.Error("another seed has the same rounds")
	}
	for _, d := range deeds {
		if !slices.ContainsFunc(first, func(r chaosRound) bool { return slices.Contains(r.deeds[0], d) && !slices.Contains(r.deeds[1], d) }) {
			t.Errorf("no VM is %s while the other one is not", d)
		}
	}
	for _, f := range faults {
		if !slices.ContainsFunc(first, func(r chaosRound) bool { return r.fault == f }) {
			t.Errorf("in 200 rounds there is no fault %s", f)
		}
	}
}
