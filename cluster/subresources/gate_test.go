package subresources

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestPictures: parts of a screenshot are passed on as they come, a few at once, and one that
// breaks off does not pass for a whole one.
func TestPictures(t *testing.T) {
	w := newWorld(t, nil)
	w.guests.Pictures = make(chan error)
	const screenshot = "virtualmachineinstances/web/vnc/screenshot"
	var answers []*http.Response
	for range maxUserPictures {
		answered := w.ask(t, http.MethodGet, screenshot, "")
		defer answered.Body.Close()
		if _, err := io.ReadFull(answered.Body, make([]byte, 1<<10)); answered.StatusCode != 200 || err != nil {
			t.Fatalf("%d, %v, want the first part", answered.StatusCode, err)
		}
		answers = append(answers, answered)
	}
	more := w.ask(t, http.MethodGet, screenshot, "")
	defer more.Body.Close()
	if more.StatusCode != http.StatusTooManyRequests || more.Header.Get("Retry-After") != "1" {
		t.Errorf("one too many: %d, Retry-After %q, want 429 and 1", more.StatusCode, more.Header.Get("Retry-After"))
	}
	w.guests.Pictures <- status.Error(codes.Unavailable, "the display has gone")
	for range maxUserPictures - 1 {
		w.guests.Pictures <- nil
	}
	broken := 0
	for _, a := range answers {
		if _, err := io.ReadAll(a.Body); err != nil {
			broken++
		}
	}
	if broken != 1 {
		t.Errorf("%d pictures broke off, want 1", broken)
	}
}

// TestExpansions: VMs in bodies are read a few at once.
func TestExpansions(t *testing.T) {
	w := newWorld(t, nil)
	for n := range maxExpansions {
		leave, err := w.expansions.enter(fmt.Sprint(n))
		must(t, err)
		defer leave()
	}
	answered := w.ask(t, http.MethodPut, "expand-vm-spec", "{}")
	answered.Body.Close()
	if answered.StatusCode != http.StatusTooManyRequests || answered.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: %d, Retry-After %q, want 429 and when", answered.StatusCode, answered.Header.Get("Retry-After"))
	}
}

// TestOneUsersRequests: of each kind a user has so many at once, and others find a place beside them. Whoever has
// one ServiceAccount of a namespace may have others of it: they count as one.
func TestOneUsersRequests(t *testing.T) {
	w := newWorld(t, nil)
	account := func(name string) string { return party("system:serviceaccount:team:" + name) }
	for what, g := range map[string]*gate{"streams": w.streams.places, "screenshots": w.pictures, "VMs in bodies": w.expansions} {
		var leave func()
		for n := range g.share {
			l, err := g.enter(account(fmt.Sprint("robot-", n)))
			must(t, err)
			leave = l
		}
		if _, err := g.enter(account("another")); !apierrors.IsTooManyRequests(err) {
			t.Errorf("%s: one more of the same namespace's ServiceAccounts: %v, want too many requests", what, err)
		}
		for _, user := range []string{"bob", party("system:serviceaccount:teams:robot")} {
			other, err := g.enter(user)
			if err != nil {
				t.Errorf("%s: %s beside them: %v", what, user, err)
				continue
			}
			other()
		}
		leave()
		last, err := g.enter(account("another"))
		must(t, err)
		if last(); len(g.of) > 1 || g.all != g.share-1 {
			t.Errorf("%s: %d of %d users are counted, want %d of those who have some", what, g.all, len(g.of), g.share-1)
		}
	}
}
