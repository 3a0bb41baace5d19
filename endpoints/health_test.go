package endpoints

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func fine(context.Context) error { return nil }

func TestHealth(t *testing.T) {
	broken := func(context.Context) error { return errors.New("a secret path") }
	h := Health(NewChecks("healthz", quiet(), Check{Name: "a", Look: fine}, Check{Name: "b", Look: fine}), NewChecks("readyz", quiet(), Check{Name: "a", Look: fine}, Check{Name: "b", Look: broken}))
	for url, want := range map[string]string{
		"/healthz":                   "200 ok",
		"/healthz?verbose":           "200 [+]a ok\n[+]b ok\nhealthz check passed\n",
		"/readyz":                    "500 [+]a ok\n[-]b failed: the log says why\nreadyz check failed\n",
		"/readyz?exclude=b":          "200 ok",
		"/readyz?verbose&exclude=b":  "200 [+]a ok\n[+]b excluded: ok\nreadyz check passed\n",
		"/readyz?verbose&exclude=xy": "500 [+]a ok\n[-]b failed: the log says why\nreadyz check failed\n",
		"/metrics":                   "404 404 page not found\n",
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", url, nil))
		if got := strings.Join([]string{string(rune('0'+w.Code/100)) + string(rune('0'+w.Code/10%10)) + string(rune('0'+w.Code%10)), w.Body.String()}, " "); got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
}

// TestDegraded: a check that may fail is told, and the probe passes.
func TestDegraded(t *testing.T) {
	away := func(context.Context) error { return errors.New("a secret path") }
	ready := NewChecks("readyz", quiet(), Check{Name: "a", Look: fine}, Check{Name: "b", Look: away, Degraded: true})
	for url, want := range map[string]string{
		"/readyz":         "ok",
		"/readyz?verbose": "[+]a ok\n[~]b degraded: the log says why\nreadyz check passed\n",
	} {
		w := httptest.NewRecorder()
		Health(NewChecks("healthz", quiet()), ready).ServeHTTP(w, httptest.NewRequest("GET", url, nil))
		if w.Code != 200 || w.Body.String() != want {
			t.Errorf("%s: %d %q, want 200 %q", url, w.Code, w.Body, want)
		}
	}
}

// TestCheckThatHangs costs one goroutine, however often it is looked at, and
// passes when it ends.
func TestCheckThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		var looks atomic.Int32
		c := NewChecks("healthz", quiet(), Check{Name: "stuck", Look: func(context.Context) error {
			looks.Add(1)
			<-hang
			return nil
		}}, Check{Name: "fine", Look: fine})
		for range 50 {
			begun := time.Now()
			r := c.Look(context.Background())
			if !errors.Is(r[0].Err, errHangs) || r[1].Err != nil || time.Since(begun) > checkPatience {
				t.Fatalf("%v after %v", r, time.Since(begun))
			}
		}
		if n := looks.Load(); n != 1 {
			t.Errorf("%d goroutines hang", n)
		}
		close(hang)
		synctest.Wait()
		if r := c.Look(context.Background()); r[0].Err != nil {
			t.Errorf("it fails still: %v", r[0].Err)
		}
	})
}

// TestChangesAreLogged, each once, with why.
func TestChangesAreLogged(t *testing.T) {
	var out bytes.Buffer
	var err error
	c := NewChecks("readyz", slog.New(slog.NewTextHandler(&out, nil)), Check{Name: "x", Look: func(context.Context) error { return err }})
	for _, e := range []error{nil, errors.New("too bad"), errors.New("too bad"), nil, nil} {
		err = e
		c.Look(context.Background())
	}
	if text := out.String(); strings.Count(text, "too bad") != 1 || strings.Count(text, "passes again") != 1 || strings.Count(text, "\n") != 2 {
		t.Errorf("the log has %s", text)
	}
}

func TestDebug(t *testing.T) {
	broken := func(context.Context) error { return errors.New("why") }
	var labelsErr error
	h := Debug(Pages{
		Labels: func(context.Context) (Labels, error) {
			return Labels{Labels: map[string]string{"b": "2", "a": "1"}, Unknown: []UnknownFact{{"host", "gone"}}}, labelsErr
		},
		VMs:  func() any { return []string{"web"} },
		Live: NewChecks("healthz", quiet(), Check{Name: "a", Look: fine}), Ready: NewChecks("readyz", quiet(), Check{Name: "b", Look: broken}),
	})
	page := func(url string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", url, nil))
		return w.Code, w.Body.String()
	}
	for _, c := range []struct {
		url, want string
		code      int
	}{
		{"/debug/render/labels", "a=1\nb=2\n# not known: host: gone\n", 200},
		{"/debug/render/labels?output=text", "a=1\nb=2\n", 200},
		{"/debug/render/labels?output=json", `"unknown"`, 200},
		{"/debug/render/labels?output=xml", "choose text or json", 400},
		{"/debug/vms", `"web"`, 200},
		{"/debug/health", `"why": "why"`, 200},
		{"/debug/pprof/", "goroutine", 200},
		{"/debug/pprof/heap?debug=1", "heap profile", 200},
		{"/debug/pprof/cmdline", "test", 200},
		{"/metrics", "", 404},
	} {
		code, text := page(c.url)
		if code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %.300q", c.url, code, text)
		}
		if strings.Contains(c.url, "json") && !json.Valid([]byte(text)) {
			t.Errorf("%s is no JSON", c.url)
		}
	}
	labelsErr = errors.New("the disk is full")
	if code, text := page("/debug/render/labels"); code != 503 || !strings.Contains(text, "the disk is full") {
		t.Errorf("%d %s", code, text)
	}
}

// TestChecksEndBeforeProbes: the kubelet learns which check fails, and doesn't give up first.
func TestChecksEndBeforeProbes(t *testing.T) {
	manifest, err := os.ReadFile("../deploy/base/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	timeouts := regexp.MustCompile(`(?m)^ +timeoutSeconds: (\d+)$`).FindAllSubmatch(manifest, -1)
	if len(timeouts) != 2 {
		t.Fatalf("%d probes with a timeout, want liveness and readiness", len(timeouts))
	}
	for _, timeout := range timeouts {
		if seconds, err := strconv.Atoi(string(timeout[1])); err != nil || checkPatience >= time.Duration(seconds)*time.Second {
			t.Errorf("a check may take %v, and a probe waits %s s", checkPatience, timeout[1])
		}
	}
}
