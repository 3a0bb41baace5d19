package endpoints

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
)

// Access is what the API server says of a token's bearer.
type Access int

// The zero Access gives nothing.
const (
	AccessUnknown   Access = iota // the token is nobody's
	AccessForbidden               // the API server knows the user, who may not
	AccessGranted
)

// Reviews asks the API server, by its clients of authentication.k8s.io/v1 and
// authorization.k8s.io/v1. Its program needs the right to create TokenReviews and
// SubjectAccessReviews. Its methods may be called concurrently.
type Reviews struct {
	Authentication, Authorization rest.Interface
}

// MayGet asks whose a bearer token is (TokenReview) and whether that user may get a path
// that is no resource, such as "/metrics" (SubjectAccessReview).
func (c *Reviews) MayGet(ctx context.Context, token, path string) (Access, error) {
	var who authenticationv1.TokenReview
	err := c.Authentication.Post().Resource("tokenreviews").
		Body(&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}).Do(ctx).Into(&who)
	if err != nil {
		return AccessUnknown, fmt.Errorf("asking whose a token is: %w", err)
	}
	if !who.Status.Authenticated {
		return AccessUnknown, nil
	}
	user := who.Status.User
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, value := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(value)
	}
	var may authorizationv1.SubjectAccessReview
	err = c.Authorization.Post().Resource("subjectaccessreviews").
		Body(&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
		}}).Do(ctx).Into(&may)
	if err != nil {
		return AccessUnknown, fmt.Errorf("asking what %q may: %w", user.Username, err)
	}
	if !may.Status.Allowed || may.Status.Denied {
		return AccessForbidden, nil
	}
	return AccessGranted, nil
}
