package endpoints

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Reviewer says whether a token's bearer may get a path: a *Reviews.
type Reviewer interface {
	MayGet(ctx context.Context, token, path string) (Access, error)
}

const (
	// accessAge is how long an answer of the API server is believed.
	accessAge = time.Minute
	// maxAccesses bounds the answers that are kept.
	maxAccesses = 1024
	// reviewPatience is how long the API server may take.
	reviewPatience = 5 * time.Second
	// reviewsPerSecond and reviewsAtOnce bound what strangers, whose tokens are all
	// different, can make the program ask.
	reviewsPerSecond = 5
	reviewsAtOnce    = 10
)

// gate lets those through whom the API server permits it.
type gate struct {
	reviewer Reviewer
	next     http.Handler
	log      *slog.Logger
	limit    *rate.Limiter
	now      func() time.Time

	mu    sync.Mutex
	known map[[sha256.Size]byte]access // by what the token makes
}

type access struct {
	Access
	until time.Time
}

// Authenticated has a handler answer those only whose bearer token the API server
// knows and who may get the path of the request.
func Authenticated(next http.Handler, r Reviewer, log *slog.Logger) http.Handler {
	return &gate{
		reviewer: r, next: next, log: log, now: time.Now,
		limit: rate.NewLimiter(reviewsPerSecond, reviewsAtOnce), known: make(map[[sha256.Size]byte]access),
	}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		unauthorized(w, "it needs a bearer token")
		return
	}
	verdict, err := g.verdict(r, token)
	switch {
	case err != nil:
		g.log.Warn("whether somebody may have the metrics is not known", "from", r.RemoteAddr, "error", err)
		w.Header().Set("Retry-After", "10")
		http.Error(w, "the API server can't be asked", http.StatusServiceUnavailable)
	case verdict == AccessGranted:
		g.next.ServeHTTP(w, r)
	case verdict == AccessForbidden:
		http.Error(w, "this user may not get "+r.URL.Path+" (a ClusterRole with nonResourceURLs)", http.StatusForbidden)
	default:
		unauthorized(w, "the API server does not know this token")
	}
}

func unauthorized(w http.ResponseWriter, why string) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	http.Error(w, why, http.StatusUnauthorized)
}

// verdict is the API server's, of the last minute.
func (g *gate) verdict(r *http.Request, token string) (Access, error) {
	key := sha256.Sum256([]byte(r.URL.Path + "\x00" + token))
	g.mu.Lock()
	last, known := g.known[key]
	g.mu.Unlock()
	if known && g.now().Before(last.until) {
		return last.Access, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), reviewPatience)
	defer cancel()
	if err := g.limit.Wait(ctx); err != nil {
		return AccessUnknown, err
	}
	verdict, err := g.reviewer.MayGet(ctx, token, r.URL.Path)
	if err == nil {
		g.keep(key, verdict)
	}
	return verdict, err
}

// keep remembers an answer. Where there are too many, what is out of date goes
// first, and then any.
func (g *gate) keep(key [sha256.Size]byte, verdict Access) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	if len(g.known) >= maxAccesses {
		for k, a := range g.known {
			if !now.Before(a.until) {
				delete(g.known, k)
			}
		}
	}
	for k := range g.known {
		if len(g.known) < maxAccesses {
			break
		}
		delete(g.known, k)
	}
	g.known[key] = access{verdict, now.Add(accessAge)}
}
