package endpoints

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// reviews is an API server that has reviews only, and refuses what the real one
// does: other paths, other methods, a body of another kind, a review that says its
// own outcome or asks for a resource and none at once.
type reviews struct {
	t      *testing.T
	down   bool
	denied bool
	asked  []string
}

func (s *reviews) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	codecs := scheme.Codecs
	answer := func(group runtime.GroupVersioner, object runtime.Object) {
		info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		w.WriteHeader(http.StatusCreated)
		if err := codecs.EncoderForVersion(info.Serializer, group).Encode(object, w); err != nil {
			s.t.Error(err)
		}
	}
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
	if s.down {
		http.Error(w, "etcd is away", http.StatusInternalServerError)
		return
	}
	object, _, err := codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		s.t.Errorf("%s: %v", r.URL.Path, err)
		http.Error(w, "", http.StatusBadRequest)
		return
	}
	switch review := object.(type) {
	case *authenticationv1.TokenReview:
		if r.Method != http.MethodPost || r.URL.Path != "/apis/authentication.k8s.io/v1/tokenreviews" || review.Spec.Token == "" || review.Status.Authenticated {
			s.t.Errorf("%s %s: %+v", r.Method, r.URL.Path, review)
		}
		if user, known := strings.CutPrefix(review.Spec.Token, "token-of-"); known {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
				Username: user, UID: "7", Groups: []string{"system:authenticated"}, Extra: map[string]authenticationv1.ExtraValue{"scopes": {"a", "b"}},
			}}
		}
		answer(authenticationv1.SchemeGroupVersion, review)
	case *authorizationv1.SubjectAccessReview:
		want := authorizationv1.SubjectAccessReviewSpec{
			User: review.Spec.User, UID: "7", Groups: []string{"system:authenticated"}, Extra: map[string]authorizationv1.ExtraValue{"scopes": {"a", "b"}},
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
		}
		if r.Method != http.MethodPost || r.URL.Path != "/apis/authorization.k8s.io/v1/subjectaccessreviews" || !reflect.DeepEqual(review.Spec, want) {
			s.t.Errorf("%s %s: %+v", r.Method, r.URL.Path, review.Spec)
		}
		review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: review.Spec.User == "prometheus", Denied: s.denied}
		answer(authorizationv1.SchemeGroupVersion, review)
	default:
		s.t.Errorf("%s: a %T", r.URL.Path, object)
		http.Error(w, "", http.StatusNotFound)
	}
}

func reviewsBy(t *testing.T, access *rest.Config) *Reviews {
	t.Helper()
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		t.Fatal(err)
	}
	return &Reviews{Authentication: client.AuthenticationV1().RESTClient(), Authorization: client.AuthorizationV1().RESTClient()}
}

func TestMayGet(t *testing.T) {
	s := &reviews{t: t}
	server := httptest.NewServer(s)
	defer server.Close()
	client := reviewsBy(t, &rest.Config{Host: server.URL})
	for _, c := range []struct {
		token        string
		denied, down bool
		want         Access
		asked        int
		err          string
	}{
		{token: "token-of-prometheus", want: AccessGranted, asked: 2},
		{token: "token-of-guest", want: AccessForbidden, asked: 2},
		{token: "token-of-prometheus", denied: true, want: AccessForbidden, asked: 2},
		{token: "stolen", want: AccessUnknown, asked: 1},
		{token: "token-of-prometheus", down: true, want: AccessUnknown, err: "whose a token is"},
	} {
		s.denied, s.down, s.asked = c.denied, c.down, nil
		got, err := client.MayGet(context.Background(), c.token, "/metrics")
		if got != c.want || (err != nil) != (c.err != "") || (err != nil && (!strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), c.token))) {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
		if c.asked != 0 && len(s.asked) != c.asked {
			t.Errorf("%+v: asked %q", c, s.asked)
		}
	}
}
