package subresources

import (
	"io"
	"net/http"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestPictures: parts of a screenshot are passed on as they come, a few at once, and one that
// breaks off does not pass for a whole one.
func TestPictures(t *testing.T) {
	w := newWorld(t, nil)
	w.guests.Pictures = make(chan error)
	const screenshot = "virtualmachineinstances/web/vnc/screenshot"
	var answers []*http.Response
	for range maxPictures {
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
	for range maxPictures - 1 {
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
	for range maxExpansions {
		leave, err := w.expansions.enter()
		must(t, err)
		defer leave()
	}
	answered := w.ask(t, http.MethodPut, "expand-vm-spec", "{}")
	answered.Body.Close()
	if answered.StatusCode != http.StatusTooManyRequests || answered.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: %d, Retry-After %q, want 429 and when", answered.StatusCode, answered.Header.Get("Retry-After"))
	}
}
