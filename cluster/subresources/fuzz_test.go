package subresources

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// FuzzRequests: no path and no body makes the server panic, and each is answered.
func FuzzRequests(f *testing.F) {
	for _, a := range actions() {
		f.Add(a.method, "/apis/subresources.kubevirt.io/v1/namespaces/default/"+a.resource+"/web/"+a.subresource, `{"dryRun":["All"]}`)
	}
	f.Add("GET", "/apis/subresources.kubevirt.io/v1alpha3/namespaces/default/virtualmachines/web/portforward/22/tcp", "")
	f.Add("PUT", "/apis/subresources.kubevirt.io/v1/namespaces/default/expand-vm-spec", `{"spec":{"template":{}}}`)
	f.Add("GET", "/openapi/v3/apis/subresources.kubevirt.io/v1", "")
	w := newWorld(f, nil)
	f.Fuzz(func(t *testing.T, method, path, body string) {
		if method == "" || strings.ContainsFunc(method, func(r rune) bool { return r < 'A' || r > 'Z' }) {
			return
		}
		u, err := url.Parse(path)
		if err != nil || !strings.HasPrefix(u.Path, "/") {
			return
		}
		r := &http.Request{Method: method, URL: u, Header: http.Header{"X-Remote-User": {"alice"}}, Body: http.NoBody}
		if body != "" {
			r = httptest.NewRequest(method, "/", strings.NewReader(body))
			r.URL, r.Header = u, http.Header{"X-Remote-User": {"alice"}}
		}
		answer := httptest.NewRecorder()
		w.Handler().ServeHTTP(answer, r.WithContext(t.Context()))
		if strings.Contains(answer.Body.String(), "panic") {
			t.Errorf("%s %s: %d %s", method, path, answer.Code, answer.Body)
		}
	})
}
