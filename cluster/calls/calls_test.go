package calls

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// world is calls whose time the test makes pass.
type world struct {
	t *testing.T
	*Calls[string]

	mu     sync.Mutex
	now    time.Time
	timers []func() // of the calls in the order of their beginning
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: time.Unix(1000, 0)}
	w.Calls = New[string](Options{
		Now: func() time.Time { w.mu.Lock(); defer w.mu.Unlock(); return w.now },
		After: func(_ time.Duration, f func()) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.timers = append(w.timers, f)
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return w
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// late has the call that was the nth to begin be set aside.
func (w *world) late(n int) {
	w.mu.Lock()
	f := w.timers[n]
	w.mu.Unlock()
	f()
}

// begun is how many calls have begun.
func (w *world) begun() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.timers)
}

// told waits for the end of an object's call.
func (w *world) told(want string) {
	w.t.Helper()
	select {
	case got := <-w.Changed():
		if got.String() != want {
			w.t.Fatalf("told of %s, want %s", got, want)
		}
	case <-w.t.Context().Done():
		w.t.Fatalf("never told of %s", want)
	}
}

func key(namespace, name string) Key {
	return Key{Object: types.NamespacedName{Namespace: namespace, Name: name}, Node: "node", Pod: types.UID(name), What: "kill"}
}

// TestAnswer: who asks again is told how the call has ended, once, and the same call is not made again
// at once, though it is asked for at each message of an agent.
func TestAnswer(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	made := 0
	do := func(context.Context) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		made++
		return fmt.Sprint(made), errors.New("it runs")
	}
	wait := firstAgain
	for i := 1; i <= 9; i++ {
		if a := w.Make(key("shop", "a"), do); a.Ended || a.Again != 0 {
			t.Fatalf("call %d is answered at once: %+v", i, a)
		}
		w.told("shop/a")
		if a := w.Make(key("shop", "a"), do); !a.Ended || a.Result != fmt.Sprint(i) || a.Err == nil {
			t.Fatalf("call %d has ended as %+v", i, a)
		}
		for range 100 {
			if a := w.Make(key("shop", "a"), do); a.Ended || a.Again != wait {
				t.Fatalf("after call %d: %+v, want that it is made again in %v", i, a, wait)
			}
		}
		w.pass(wait)
		wait = min(2*wait, lastAgain)
	}
	if made != 9 {
		t.Errorf("it was made %d times, want 9", made)
	}
}

// TestOld: an answer that nobody took in time is none about the present.
func TestOld(t *testing.T) {
	w := newWorld(t)
	do := func(context.Context) (string, error) { return "", nil }
	w.Make(key("shop", "a"), do)
	w.told("shop/a")
	w.pass(keepAnswer)
	if a := w.Make(key("shop", "a"), do); a.Ended {
		t.Errorf("an old answer is given: %+v", a)
	}
	w.told("shop/a")
	w.pass(2 * forgetAfter)
	w.Make(key("shop", "b"), do)
	if w.told("shop/b"); len(w.known) != 1 {
		t.Errorf("%d calls are known, want the last one", len(w.known))
	}
}

// TestHangs: calls that hang keep nobody waiting, whoever asks and however many they are; a namespace
// has a bounded number of them on a node.
func TestHangs(t *testing.T) {
	w := newWorld(t)
	hang := func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}
	w.Make(key("first", "a"), func(context.Context) (string, error) { return "", nil })
	w.told("first/a") // Run has begun
	const many = 3 * (perNode + aside)
	for i := range many {
		w.Make(key("hogs", fmt.Sprint(i)), hang)
	}
	w.Make(key("shop", "a"), func(context.Context) (string, error) { return "promised", nil })
	w.late(1)
	w.told("shop/a")
	n := 2
	for ; w.begun() > n; n++ {
		w.late(n)
	}
	if a := w.Make(key("shop", "a"), hang); a.Result != "promised" {
		t.Errorf("it has ended as %+v", a)
	}
	if hanging := n - 2; hanging < aside || hanging >= perNode+aside {
		t.Errorf("%d calls of a namespace hang, want %d to %d", hanging, aside, perNode+aside-1)
	}
}

// TestOneAtATime: a call that is under way is not made again, however long it takes.
func TestOneAtATime(t *testing.T) {
	w := newWorld(t)
	quick := func(context.Context) (string, error) { return "", nil }
	hang := func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}
	w.Make(key("first", "a"), quick)
	w.told("first/a") // Run has begun
	w.Make(key("shop", "a"), hang)
	w.pass(2 * forgetAfter)
	w.Make(key("shop", "b"), quick) // those that are old are forgotten
	w.told("shop/b")
	for range 3 {
		if a := w.Make(key("shop", "a"), hang); a.Ended || a.Again != 0 {
			t.Errorf("a call that is under way is answered: %+v", a)
		}
	}
	if n := w.begun(); n != 3 {
		t.Errorf("%d calls have begun, want 3: one is made twice at once", n)
	}
}

// TestOver: when Run has ended no call begins.
func TestOver(t *testing.T) {
	begun := 0
	c := New[string](Options{Now: time.Now, After: func(time.Duration, func()) { begun++ }})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Run(ctx); err != nil {
		t.Fatal(err)
	}
	c.Make(key("shop", "a"), func(context.Context) (string, error) { return "", nil })
	if begun > 0 {
		t.Error("a call has begun")
	}
}
