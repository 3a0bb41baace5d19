package pace

import (
	"testing"
	"time"
)

// clock is a time that tests move.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func newPace() (*Pace, *clock) {
	c := &clock{time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)}
	return &Pace{Now: c.Now}, c
}

// TestBucket: ten at once, one more each six seconds, for each object (A43).
func TestBucket(t *testing.T) {
	p, c := newPace()
	for i := range Capacity {
		if a := p.Take("a"); a.Verdict != Go {
			t.Fatalf("write %d: %+v, want that it goes", i, a)
		}
	}
	if a := p.Take("a"); a.Verdict != Wait || a.After != Refill || !a.First {
		t.Fatalf("%+v, want the first wait, of %s", a, Refill)
	}
	if a := p.Take("a"); a.Verdict != Wait || a.First {
		t.Errorf("%+v, want the same wait", a)
	}
	if a := p.Take("b"); a.Verdict != Go {
		t.Errorf("another object: %+v", a)
	}
	c.now = c.now.Add(2 * Refill)
	if a := p.Take("a"); a.Verdict != Go {
		t.Errorf("after the wait: %+v", a)
	}
	if a := p.Take("a"); a.Verdict != Wait || a.After != 2*Refill {
		t.Errorf("%+v, want twice the wait", a)
	}
}

// TestReturn: a write that has failed does not count, neither before a wait nor after one.
func TestReturn(t *testing.T) {
	p, c := newPace()
	for range 10 * LongCapacity {
		if a := p.Take("a"); a.Verdict != Go {
			t.Fatalf("%+v, want that it goes", a)
		}
		p.Return("a")
	}
	for p.Take("a").Verdict == Go {
	}
	c.now = c.now.Add(Refill)
	for range 10 * LongCapacity {
		if a := p.Take("a"); a.Verdict != Go {
			t.Fatalf("after a wait: %+v, want that it goes", a)
		}
		p.Return("a")
	}
	p.Return("another")
}

// TestWar: after three waits, each at least six seconds, it is a war; after a quiet minute they
// count from the start (A45 to A47).
func TestWar(t *testing.T) {
	p, c := newPace()
	drain := func() Answer {
		for {
			if a := p.Take("a"); a.Verdict != Go {
				return a
			}
		}
	}
	began := c.now
	for i := range MaxWaits {
		a := drain()
		if a.Verdict != Wait || a.After != Refill<<i {
			t.Fatalf("wait %d: %+v, want %s", i, a, Refill<<i)
		}
		c.now = c.now.Add(a.After)
	}
	if a := drain(); a.Verdict != War || !a.First {
		t.Fatalf("%+v, want a war", a)
	}
	if took := c.now.Sub(began); took != 42*time.Second {
		t.Errorf("it took %s, want 42s", took)
	}
	if a := p.Take("a"); a.Verdict != War || a.First {
		t.Errorf("%+v, want the same war", a)
	}

	p, c = newPace()
	for range 2 * MaxWaits {
		if a := drain(); a.Verdict != Wait || a.After != Refill {
			t.Fatalf("after a quiet minute: %+v, want the first wait", a)
		}
		c.now = c.now.Add(Capacity * Refill)
	}
}

// TestSlowWar: a change each half minute never empties the bucket, and is found within the hour;
// one each five minutes never is.
func TestSlowWar(t *testing.T) {
	p, c := newPace()
	n := 0
	for began := c.now; c.now.Sub(began) < time.Hour; c.now = c.now.Add(30 * time.Second) {
		a := p.Take("a")
		if a.Verdict == Wait {
			t.Fatalf("write %d waits", n)
		}
		if a.Verdict == War {
			break
		}
		n++
	}
	if n < LongCapacity || n > LongCapacity+12 {
		t.Errorf("the war was found after %d writes, want a few more than %d", n, LongCapacity)
	}
	p, c = newPace()
	for range 1000 {
		if a := p.Take("a"); a.Verdict != Go {
			t.Fatalf("%+v", a)
		}
		c.now = c.now.Add(LongRefill)
	}
}

// TestPause: a pause holds until it has been seen where it is written, and then until it is gone
// from there; one that somebody else has written counts, too.
func TestPause(t *testing.T) {
	p, c := newPace()
	check := func(step string, written, paused bool) {
		t.Helper()
		if got := p.Paused("a", written); got != paused {
			t.Errorf("%s: paused %v, want %v", step, got, paused)
		}
	}
	war := func() {
		for p.Take("a").Verdict != War {
			c.now = c.now.Add(time.Second)
		}
	}
	check("a stranger's", true, true)
	check("a stranger's, taken away", false, false)
	war()
	check("not written", false, true)
	check("still not", false, true)
	check("written", true, true)
	check("taken away", false, false)
	if a := p.Take("a"); a.Verdict != Go {
		t.Errorf("after that: %+v", a)
	}
	war()
	p.Noted("a", false)
	check("written elsewhere, and taken away before it was seen", false, false)
	war()
	p.Noted("a", true)
	c.now = c.now.Add(Doubt)
	check("written on the object, and taken away later", false, false)
}

// TestLostPause: one who replaces the object has not resumed; what is written elsewhere ends that.
func TestLostPause(t *testing.T) {
	p, c := newPace()
	for p.Take("a").Verdict != War {
		c.now = c.now.Add(time.Second)
	}
	p.Noted("a", true)
	if p.Lost("a") {
		t.Error("lost before it is gone")
	}
	c.now = c.now.Add(Doubt - 1)
	for range 2 {
		if !p.Paused("a", false) || !p.Lost("a") {
			t.Errorf("gone at once: paused %v, lost %v, want both", p.Paused("a", false), p.Lost("a"))
		}
		c.now = c.now.Add(Doubt)
	}
	p.Noted("a", false)
	if p.Paused("a", false) || p.Lost("a") {
		t.Error("gone from elsewhere: still paused, or lost")
	}
}

// TestForgets: what is as good as new takes no room.
func TestForgets(t *testing.T) {
	p, c := newPace()
	p.Take("a")
	c.now = c.now.Add(LongRefill)
	p.Take("b")
	if len(p.all) != 1 {
		t.Errorf("%d objects are remembered, want one", len(p.all))
	}
	for p.Take("b").Verdict != War {
		c.now = c.now.Add(time.Second)
	}
	c.now = c.now.Add(24 * time.Hour)
	if p.Take("c"); !p.Paused("b", false) {
		t.Error("a pause that could not be written is forgotten")
	}
}
