package subresources

import (
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// maxExpansions are the VMs in bodies that are read at once.
	maxExpansions, maxUserExpansions = 2, 1
	// maxPictures are the screenshots that are passed on at once.
	maxPictures, maxUserPictures = 8, 2
	// comeAgain is when one that was refused may find a place, in seconds.
	comeAgain = 1
)

// gate lets as many requests in at once as it has room for, and of one user's no more than a share: others find
// a place beside those that hang. Its methods may be called concurrently.
type gate struct {
	most, share int

	mu  sync.Mutex
	all int
	of  map[string]int // how many a user has
}

func newGate(most, share int) *gate { return &gate{most: most, share: share, of: make(map[string]int)} }

// enter refuses one too many. leave has to be called at a request's end.
func (g *gate) enter(user string) (leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.all == g.most:
		return nil, apierrors.NewTooManyRequests("this vmlet-api answers as many such requests as it can: ask again, maybe another replica", comeAgain)
	case g.of[user] == g.share:
		return nil, apierrors.NewTooManyRequests("this vmlet-api answers as many such requests of yours as a user may have: end one of them", comeAgain)
	}
	g.all++
	g.of[user]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.all--
		if g.of[user]--; g.of[user] == 0 {
			delete(g.of, user)
		}
	}, nil
}
