package subresources

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// maxExpansions are the VMs in bodies that are read at once.
	maxExpansions = 2
	// maxPictures are the screenshots that are passed on at once.
	maxPictures = 8
	// comeAgain is when one that was refused may find a place, in seconds.
	comeAgain = 1
)

// gate lets as many requests in at once as it has room for.
type gate chan struct{}

// enter refuses one too many. leave has to be called at a request's end.
func (g gate) enter() (leave func(), err error) {
	select {
	case g <- struct{}{}:
		return func() { <-g }, nil
	default:
		return nil, apierrors.NewTooManyRequests("this vmlet-api answers as many such requests as it can: ask again", comeAgain)
	}
}
