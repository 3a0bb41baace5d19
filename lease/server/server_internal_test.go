package server

import (
	"log/slog"
	"strings"
	"testing"

	"golang.org/x/time/rate"
)

// TestSurvive: a fault of the server's does not end the process, whose VMM would end with it.
func TestSurvive(t *testing.T) {
	var log strings.Builder
	s := &Server{log: slog.New(slog.NewTextHandler(&log, nil)), said: rate.NewLimiter(0, 1)}
	for range 2 {
		if got := s.survive(func(b []byte) []byte { return b[:9] }, nil); got != nil {
			t.Errorf("answer %q", got)
		}
	}
	if n := strings.Count(log.String(), "out of range"); n != 1 {
		t.Errorf("the fault is logged %d times:\n%s", n, &log)
	}
}
