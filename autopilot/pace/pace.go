// Package pace bounds how often one object is written, and finds those that somebody else writes
// against the autopilot: fast, by a bucket that runs empty again and again, and slowly, by a long
// supply. It must not know a cluster; the time is given to it. Start reading at Pace.Take.
package pace

import (
	"sync"
	"time"
)

// The bucket: Capacity writes at once, and one more each Refill.
const (
	Capacity = 10
	Refill   = 6 * time.Second
)

// The long supply: a change that comes back each half minute never empties the bucket, and uses
// this up within the hour. An object that is put back twelve times an hour never does.
const (
	LongCapacity = 60
	LongRefill   = 5 * time.Minute
)

// MaxWaits is how many waits in a row are taken for an edit war. The waits double: 6, 12 and 24 s.
const MaxWaits = 3

// Doubt is how long a pause has to be on an object before somebody who takes it away resumes: an
// opponent who replaces the whole object does so at once.
const Doubt = time.Minute

// Verdict is whether an object may be written.
type Verdict int

// Verdicts.
const (
	Go Verdict = iota
	// Wait is for later; Answer.After says when.
	Wait
	// War is never, until somebody resumes.
	War
)

// Answer is Take's.
type Answer struct {
	Verdict Verdict
	After   time.Duration
	// First is set when a wait or a war has just begun.
	First bool
}

// Pace is that of all objects, by a key. It may be used concurrently. Nothing outlives the process.
type Pace struct {
	Now func() time.Time

	mu  sync.Mutex
	all map[string]*entry
}

type entry struct {
	short, long supply
	waits       int
	until       time.Time // no token is given before, once one was refused
	war         bool
	noted       bool      // the pause has been seen where it is written down
	doubted     time.Time // until when a pause that is gone from the object was taken away by no human
	lost        bool      // the pause was taken away from the object so soon
}

type supply struct {
	left int
	at   time.Time // when the last token came back
}

func (s *supply) fill(now time.Time, capacity int, each time.Duration) {
	if n := int(now.Sub(s.at) / each); n > 0 {
		s.left, s.at = min(capacity, s.left+n), s.at.Add(time.Duration(n)*each)
	}
	if s.left >= capacity {
		s.at = now
	}
}

// Take asks for one write of an object.
func (p *Pace) Take(key string) Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.Now()
	e := p.entry(key, now)
	e.short.fill(now, Capacity, Refill)
	e.long.fill(now, LongCapacity, LongRefill)
	switch {
	case e.war:
		return Answer{Verdict: War}
	case now.Before(e.until):
		return Answer{Verdict: Wait, After: e.until.Sub(now)}
	case e.long.left == 0, e.short.left == 0 && e.waits >= MaxWaits:
		e.war, e.noted = true, false
		return Answer{Verdict: War, First: true}
	case e.short.left == 0:
		after := Refill << e.waits
		e.waits++
		e.until = now.Add(after)
		return Answer{Verdict: Wait, After: after, First: true}
	}
	if e.short.left == Capacity {
		e.waits = 0 // it was quiet for a minute
	}
	if e.waits > 0 {
		// After a wait each write takes what has come back: a war goes on as fast as before, and
		// has to end in the next wait.
		e.short.left = 0
	} else {
		e.short.left--
	}
	e.long.left--
	return Answer{Verdict: Go}
}

// Return gives back what Take has given last: the write failed, and no other manager can have answered it.
func (p *Pace) Return(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.all[key]; e != nil {
		e.short.left++
		e.long.left++
	}
}

func (p *Pace) entry(key string, now time.Time) *entry {
	if p.all == nil {
		p.all = make(map[string]*entry)
	}
	e := p.all[key]
	if e == nil {
		p.forget(now)
		e = &entry{short: supply{Capacity, now}, long: supply{LongCapacity, now}}
		p.all[key] = e
	}
	return e
}

// forget drops what is as good as new.
func (p *Pace) forget(now time.Time) {
	for key, e := range p.all {
		e.short.fill(now, Capacity, Refill)
		e.long.fill(now, LongCapacity, LongRefill)
		if !e.war && e.short.left == Capacity && e.long.left == LongCapacity {
			delete(p.all, key)
		}
	}
}

// Paused takes note of whether the pause is written down where somebody can take it away. It
// reports whether the object is paused: because that says so, or because it has still to be written.
func (p *Pace) Paused(key string, written bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.all[key]
	switch {
	case e == nil || !e.war:
		return written
	case written:
		e.noted = true
	case p.Now().Before(e.doubted): // it was there and is gone with all that was written
		e.noted, e.lost = false, true
	case e.noted: // it was there and is gone: somebody has resumed
		delete(p.all, key)
		return false
	}
	return true
}

// Noted takes note that the pause has been written down, and that Paused will not hear of the
// time before. If it is on the object itself, one who replaces that takes the note away, too: for a
// while nobody is taken to have resumed.
func (p *Pace) Noted(key string, onObject bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.all[key]; e != nil {
		e.noted, e.doubted = true, time.Time{}
		if onObject {
			e.doubted = p.Now().Add(Doubt)
		}
	}
}

// Lost reports whether the pause does not stay on the object, and has to be written elsewhere.
func (p *Pace) Lost(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.all[key]
	return e != nil && e.lost
}
