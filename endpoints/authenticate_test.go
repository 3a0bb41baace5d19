package endpoints

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// reviewer is an API server that knows two users.
type reviewer struct {
	asked atomic.Int32
	err   error
}

func (r *reviewer) MayGet(ctx context.Context, token, path string) (Access, error) {
	r.asked.Add(1)
	switch {
	case r.err != nil:
		return AccessGranted, r.err
	case token == "prometheus" && path == "/metrics":
		return AccessGranted, ctx.Err()
	case token == "guest":
		return AccessForbidden, ctx.Err()
	}
	return AccessUnknown, ctx.Err()
}

func ask(h http.Handler, authorization string) int { return askFor(h, "/metrics", authorization) }

func askFor(h http.Handler, path, authorization string) int {
	r := httptest.NewRequest("GET", path, nil)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code == 401 && w.Header().Get("WWW-Authenticate") != "Bearer" {
		return -1
	}
	return w.Code
}

func TestAuthenticated(t *testing.T) {
	h := Authenticated(says("metrics"), new(reviewer), quiet())
	for authorization, want := range map[string]int{
		"": 401, "Bearer": 401, "Bearer  ": 401, "Basic prometheus": 401, "prometheus": 401, "Bearer other": 401, "Bearer prometheus x": 401,
		"Bearer guest": 403, "Bearer prometheus": 200, "bearer  prometheus": 200,
	} {
		if got := ask(h, authorization); got != want {
			t.Errorf("%q: %d, want %d", authorization, got, want)
		}
	}
	// Who may get one path may not therefore get another.
	if got := askFor(h, "/other", "Bearer prometheus"); got != 401 {
		t.Errorf("another path: %d, want 401", got)
	}
}

func TestAnswersAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := new(reviewer)
		h := Authenticated(says("metrics"), r, quiet())
		expect := func(what, authorization string, code, asked int) {
			t.Helper()
			if got := ask(h, authorization); got != code || int(r.asked.Load()) != asked {
				t.Errorf("%s: %d after %d questions, want %d after %d", what, got, r.asked.Load(), code, asked)
			}
		}
		expect("at first", "Bearer prometheus", 200, 1)
		time.Sleep(59 * time.Second)
		expect("within the minute", "Bearer prometheus", 200, 1)
		r.err = errors.New("no API server")
		expect("another", "Bearer guest", 503, 2)
		time.Sleep(2 * time.Second)
		expect("after it", "Bearer prometheus", 503, 3)
		r.err = nil
		expect("the API server is back", "Bearer prometheus", 200, 4)
		expect("it is not", "Bearer guest", 403, 5)
		expect("a refusal is kept, too", "Bearer guest", 403, 5)
	})
}

// TestStrangers: whoever sends tokens without end has neither the API server asked
// without end, nor memory taken.
func TestStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := new(reviewer)
		g := Authenticated(says("metrics"), r, quiet()).(*gate)
		begun := time.Now()
		for i := range 3000 {
			if got := ask(g, fmt.Sprint("Bearer ", i)); got != 401 {
				t.Fatal(got)
			}
			if len(g.known) > maxAccesses {
				t.Fatalf("%d answers are kept", len(g.known))
			}
		}
		if most := reviewsAtOnce + reviewsPerSecond*time.Since(begun).Seconds() + 1; float64(r.asked.Load()) > most {
			t.Errorf("%d questions in %v", r.asked.Load(), time.Since(begun))
		}
	})
}
