package metrics

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/vmlet/vmlet/vmm"
	"k8s.io/apimachinery/pkg/util/wait"
)

// How VMMs are asked.
const (
	// sampleAge is how old an answer may be before it is asked for again.
	sampleAge = 5 * time.Second
	// samplePatience is how long a VMM may take to answer.
	samplePatience = 3 * time.Second
	// sampleBelief is how long the last answer is shown of a VMM that gives none
	// any more: longer than anybody's time between two scrapes.
	sampleBelief = 10 * time.Minute
	// maxBackoff is how long one that does not answer is left alone, at most.
	maxBackoff = 5 * time.Minute
	// restAfter is how long after the last scrape guests are still asked.
	restAfter = 5 * time.Minute

	// samplesAtOnce is how many VMMs are asked at a time, and retriesAtOnce how
	// many of those that did not answer the last time: they hold up no others.
	samplesAtOnce = 16
	retriesAtOnce = 2
)

// sampled is what a VMM has said, and when.
type sampled struct {
	vmm.Sample
	at time.Time
}

// sampleEntry is what is known of one VMM.
type sampleEntry struct {
	sampler  vmm.Sampler
	last     *sampled
	asking   bool
	failures int          // in a row
	backoff  wait.Backoff // of those failures
	next     time.Time    // when it may be asked again
}

// samplers asks VMMs in the background. No caller waits for it.
type samplers struct {
	ctx context.Context
	log *slog.Logger
	now func() time.Time

	asking  sync.WaitGroup
	first   chan struct{} // a place for each that is asked
	retries chan struct{}

	mu       sync.Mutex
	entries  map[string]*sampleEntry // by VM id
	rest     *time.Timer
	ok, fail uint64
}

// newSamplers makes one that asks nothing until refresh is called. When ctx has
// ended it asks no more; see wait.
func newSamplers(ctx context.Context, log *slog.Logger) *samplers {
	return &samplers{
		ctx: ctx, log: log, now: time.Now, entries: make(map[string]*sampleEntry),
		first: make(chan struct{}, samplesAtOnce), retries: make(chan struct{}, retriesAtOnce),
	}
}

// wait returns when nobody is asked any more. The context must have ended.
func (s *samplers) wait() {
	s.mu.Lock()
	if s.rest != nil {
		s.rest.Stop()
	}
	s.mu.Unlock()
	s.asking.Wait()
}

// refresh has those asked whose answer is old, forgets those that are gone, and
// returns at once.
func (s *samplers) refresh(vms []VM) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	now := s.now()
	there := make(map[string]bool, len(vms))
	for _, vm := range vms {
		if vm.Sampler == nil {
			continue
		}
		id := vm.Record.GetId()
		there[id] = true
		e := s.entries[id]
		if e == nil || e.sampler != vm.Sampler {
			e = &sampleEntry{sampler: vm.Sampler}
			s.entries[id] = e
		}
		if e.asking || now.Before(e.next) {
			continue
		}
		e.asking = true
		s.asking.Go(func() { s.ask(e) })
	}
	for id := range s.entries {
		if !there[id] {
			delete(s.entries, id)
		}
	}
	s.postpone()
}

// postpone has the guests left alone if this was the last scrape for long.
func (s *samplers) postpone() {
	if s.rest == nil {
		s.rest = time.AfterFunc(restAfter, s.restAll)
		return
	}
	s.rest.Reset(restAfter)
}

// ask asks one VMM, in its turn.
func (s *samplers) ask(e *sampleEntry) {
	s.mu.Lock()
	turn := s.first
	if e.failures > 0 {
		turn = s.retries
	}
	s.mu.Unlock()
	var answer vmm.Sample
	var err error
	select {
	case turn <- struct{}{}:
		ctx, cancel := context.WithTimeout(s.ctx, samplePatience)
		answer, err = e.sampler.Sample(ctx)
		cancel()
		<-turn
	case <-s.ctx.Done():
		err = s.ctx.Err()
	}
	s.note(e, answer, err)
}

// note keeps an answer, or that there was none.
func (s *samplers) note(e *sampleEntry, answer vmm.Sample, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.asking = false
	now := s.now()
	if err != nil {
		s.fail++
		if e.failures == 0 {
			e.backoff = wait.Backoff{Duration: sampleAge, Factor: 2, Steps: 64, Cap: maxBackoff}
		}
		e.next = now.Add(e.backoff.Step())
		e.failures++
		s.log.Debug("a VMM does not say what it has counted", "failures", e.failures, "error", err)
		return
	}
	s.ok++
	e.failures, e.next = 0, now.Add(sampleAge)
	e.last = &sampled{Sample: answer, at: now}
}

// latest is the last answer of a VM's VMM, if it is of the one that runs now.
func (s *samplers) latest(vm VM) (sampled, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[vm.Record.GetId()]
	if e == nil || e.last == nil || e.sampler != vm.Sampler || s.now().Sub(e.last.at) > sampleBelief {
		return sampled{}, false
	}
	return *e.last, true
}

// counts is how often VMMs have answered, and how often not.
func (s *samplers) counts() (ok, failed uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ok, s.fail
}

// restAll has those that have answered switch off what that needed.
func (s *samplers) restAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	for id, e := range s.entries {
		delete(s.entries, id)
		if e.last == nil {
			continue
		}
		s.asking.Go(func() {
			s.first <- struct{}{}
			defer func() { <-s.first }()
			ctx, cancel := context.WithTimeout(s.ctx, samplePatience)
			defer cancel()
			if err := e.sampler.Rest(ctx); err != nil {
				s.log.Debug("a VMM goes on asking its guest", "error", err)
			}
		})
	}
}
