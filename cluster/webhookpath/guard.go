package webhookpath

import (
	"context"
	"net/http"
	"strings"
)

// Guard passes on, without the end of their paths, requests that know it. Nothing else of a
// stranger's request is looked at, its body not read, and its connection ended.
func Guard(next http.Handler, keys func(context.Context) (Keys, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := strings.LastIndexByte(r.URL.Path, '/')
		if all, err := keys(r.Context()); at < 0 || err != nil || !all.accepts(r.URL.Path[:at], r.URL.Path[at+1:]) {
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusNotFound)
			return
		}
		known := r.Clone(r.Context())
		known.URL.Path, known.URL.RawPath = r.URL.Path[:at], ""
		next.ServeHTTP(w, known)
	})
}
