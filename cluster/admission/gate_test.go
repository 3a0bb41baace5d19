package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/test/everything"
)

// disks is a VM with n disks, as a client writes it.
func disks(n int) string {
	return fmt.Sprintf(`{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","metadata":{"name":"web","annotations":{"a":"[,[,\"{"}},
		"spec":{"template":{"spec":{"domain":{"devices":{"disks":[%s]}}}}}}`, strings.Repeat(`{"name":"disk-of-this-virtual-machine","disk":{"bus":"virtio"},"bootOrder":1,"serial":"x"},`, n-1)+`{"name":"last"}`)
}

func TestOversized(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", ""},
		{"as many as there may be", disks(maxItems), ""},
		{"one more", disks(maxItems + 1), "disks: has more than 300 items"},
		{"lists in a list", `{"a":[` + strings.Repeat("[1,2],", maxItems-1) + "[1]]}", ""},
		{"a list after a list", `{"a":[` + strings.Repeat("1,", 200) + `1],"b":[` + strings.Repeat("1,", 200) + "1]}", ""},
		{"commas in a string", `{"a":["` + strings.Repeat(",", 400) + `\\","\"` + strings.Repeat(",", 400) + `"]}`, ""},
		{"fields of an object", `{` + strings.Repeat(`"a":1,`, maxItems+1) + `"b":1}`, ""},
		{"fields without end", `{` + strings.Repeat(`"a":1,`, maxMembers+1) + `"b":1}`, "more than 65536 fields"},
		{"no JSON", `]},,"\`, ""},
	} {
		if got := oversized([]byte(c.text)); got != c.want && (c.want == "" || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestListBoundIsTheDefinitions: no list that a definition allows is refused before it.
func TestListBoundIsTheDefinitions(t *testing.T) {
	files, err := filepath.Glob("../../deploy/crd/kubevirt.io_virtualmachine*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("definitions: %v, %v", files, err)
	}
	longest := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`maxItems: (\d+)`).FindAllStringSubmatch(string(text), -1) {
			n, err := strconv.Atoi(m[1])
			if err != nil {
				t.Fatal(err)
			}
			longest = max(longest, n)
		}
	}
	if longest != maxItems {
		t.Errorf("the longest list of the definitions may have %d items, and admission allows %d", longest, maxItems)
	}
}

func review(t *testing.T, object string) string {
	t.Helper()
	text, err := json.Marshal(admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: "u", Operation: admissionv1.Create, Object: k8sruntime.RawExtension{Raw: []byte(object)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func post(h http.Handler, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestLargeReviewsOneByOne: reviews of a tenant's large objects wait for each other, and nobody
// else's does for them.
func TestLargeReviewsOneByOne(t *testing.T) {
	entered, leave := make(chan int64, 100), make(chan struct{})
	h := Gate(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		entered <- r.ContentLength
		if r.ContentLength > smallReview {
			<-leave
		}
	}))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { post(h, "/", strings.Repeat("x", 3<<20)) })
	}
	<-entered
	for range 20 {
		if w := post(h, "/", "small"); w.Code != http.StatusOK {
			t.Errorf("a small review is answered %d beside a large one", w.Code)
		}
		if n := <-entered; n > smallReview {
			t.Fatal("two large reviews are read at once")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	gone := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(strings.Repeat("x", 3<<20)))
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, gone); w.Code != http.StatusTooManyRequests {
		t.Errorf("a review that nobody waits for is answered %d, want 429", w.Code)
	}
	close(leave)
	all.Wait()
	if len(entered) != 7 {
		t.Errorf("%d of the others were read, want 7", len(entered))
	}
}

func TestGateRefuses(t *testing.T) {
	h := Gate(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was read") }))
	if w := post(h, "/", strings.Repeat("x", maxReview+1)); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a review without end is answered %d, want 413", w.Code)
	}
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("x"))
	r.ContentLength = -1
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusLengthRequired {
		t.Errorf("a review of unknown length is answered %d, want 411", w.Code)
	}
}

// TestLargeReviewsTakeLittle: what reviews of 3 MB make vmlet-api allocate, eight of one tenant's at once, with
// as many disks as fit, with as much text as fits, and with a list in each list.
func TestLargeReviewsTakeLittle(t *testing.T) {
	h := Gate(Handlers(scene{}.client(t), Rules{Settings: fixed(configuration.Default())})[PathMutateMachine])
	for what, object := range map[string]string{
		"disks": disks(28000),
		"text":  strings.Replace(disks(1), `"last"`, `"`+strings.Repeat("x", 3<<20-1000)+`"`, 1),
		"lists": strings.Replace(disks(1), `"last"`, `"x","a":[`+strings.Repeat("["+strings.Repeat("{},", 200)+"{}],", 200)+"1]", 1),
	} {
		body := review(t, object)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { post(h, PathMutateMachine, body) })
		}
		all.Wait()
		runtime.ReadMemStats(&after)
		// All that was allocated, of which garbage collection leaves a part.
		if each := (after.TotalAlloc - before.TotalAlloc) / 8; each > 20<<20 {
			t.Errorf("%s: a review of %d KiB allocates %d KiB, want 20 MiB at most", what, len(body)>>10, each>>10)
		}
	}
}

// TestSmallReviewsMeanwhile: a small VM is judged beside six reviews of 3.6 MB of everything that may be in one. What it
// waits for at most, and what the heap has at most, is logged: a busy machine's time says nothing.
func TestSmallReviewsMeanwhile(t *testing.T) {
	all := Handlers(scene{}.client(t), Rules{Settings: fixed(configuration.Default()), HasCDI: func(context.Context) (bool, error) { return false, nil }})
	mux := http.NewServeMux()
	for path, h := range all {
		mux.Handle(path, h)
	}
	h, small := Gate(mux), review(t, disks(1))
	const room = 3600 << 10
	values := strings.Repeat("["+strings.Repeat("{},", 200)+"{}],", 200) + "1"
	for what, object := range map[string]string{
		"disks":   disks(room / 105),
		"text":    strings.Replace(disks(1), `"last"`, `"`+strings.Repeat("x", room)+`"`, 1),
		"lists":   strings.Replace(disks(1), `"last"`, `"`+strings.Repeat("x", room-len(values))+`","a":[`+values+"]", 1),
		"members": strings.Replace(disks(maxItems), `"a":`, strings.Repeat(`"`+strings.Repeat("k", 40)+`":"v",`, maxMembers-6*maxItems)+`"a":`, 1),
	} {
		for _, path := range []string{PathMutateMachine, PathValidateMachine} {
			if !everything.Wanted() && (what != "lists" || path != PathValidateMachine) {
				continue
			}
			body, done := review(t, object), make(chan struct{})
			var large sync.WaitGroup
			for range 6 {
				large.Go(func() { post(h, path, body) })
			}
			go func() { large.Wait(); close(done) }()
			var slowest time.Duration
			var heap uint64
			answered := 0
			for begun := true; begun; answered++ {
				since := time.Now()
				if w := post(h, path, small); w.Code != http.StatusOK {
					t.Errorf("%s: a small review is answered %d", what, w.Code)
				}
				slowest = max(slowest, time.Since(since))
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				heap = max(heap, m.HeapInuse)
				select {
				case <-done:
					begun = false
				default:
				}
			}
			t.Logf("%s, %s: six of %d KiB: %d small ones were answered, the slowest after %v; the heap had %d MiB", what, path, len(body)>>10, answered, slowest, heap>>20)
		}
	}
}

// TestTooLarge: what users write into a VM is bounded, and one that was larger before can be changed.
func TestTooLarge(t *testing.T) {
	pass := bounded{admission.HandlerFunc(func(context.Context, admission.Request) admission.Response { return admission.Allowed("") })}
	of := func(part string, n int) string {
		return strings.Replace(`{"metadata":{"name":"web",`+part+`}`, "X", strings.Repeat("x", n), 1)
	}
	const label, applied, fields, status, spec = `"labels":{"a":"X"}}`, `"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"X"}}`,
		`"managedFields":[{"manager":"X"}]}`, `"uid":"u"},"status":{"a":"X"}`, `"uid":"u"},"spec":{"a":"X"}`
	for _, c := range []struct {
		name, kind, now, before string
		want                    bool
	}{
		{"small", "VirtualMachine", of(label, 200<<10), "", true},
		{"labels", "VirtualMachine", of(label, maxMachine), "", false},
		{"spec", "VirtualMachine", of(spec, maxMachine), "", false},
		{"grown", "VirtualMachine", of(spec, maxMachine+1), of(spec, maxMachine), false},
		{"as it was", "VirtualMachine", of(spec, maxMachine), of(spec, maxMachine), true},
		{"smaller than it was", "VirtualMachine", of(spec, maxMachine), of(spec, maxMachine+1), true},
		{"applied", "VirtualMachine", of(applied, 2*maxMachine), "", true},
		{"fields", "VirtualMachine", of(fields, 2*maxMachine), "", true},
		{"status", "VirtualMachine", of(status, 2*maxMachine), "", true},
		{"instance", "VirtualMachineInstance", of(spec, maxMachine+64<<10), "", true},
		{"large instance", "VirtualMachineInstance", of(spec, 2*maxMachine), "", false},
	} {
		request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Kind: metav1.GroupVersionKind{Kind: c.kind}, Object: k8sruntime.RawExtension{Raw: []byte(c.now)}, OldObject: k8sruntime.RawExtension{Raw: []byte(c.before)},
		}}
		if got := pass.Handle(t.Context(), request).Allowed; got != c.want {
			t.Errorf("%s: allowed: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestCreatedAsBeingDeleted: an object that is applied with a deletionTimestamp is judged, not
// stored as he likes.
func TestCreatedAsBeingDeleted(t *testing.T) {
	pass := bounded{admission.HandlerFunc(func(context.Context, admission.Request) admission.Response { return admission.Allowed("") })}
	const going = `{"metadata":{"name":"web","deletionTimestamp":"2026-01-01T00:00:00Z"}}`
	for _, c := range []struct {
		operation admissionv1.Operation
		text      string
		want      bool
	}{
		{admissionv1.Create, going, false}, {admissionv1.Update, going, true},
		{admissionv1.Create, `{"metadata":{"name":"web","deletionTimestamp":null}}`, true}, {admissionv1.Create, `{"metadata":{"name":"web"}}`, true},
		{admissionv1.Create, `{}`, true}, {admissionv1.Delete, "", true},
	} {
		request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: c.operation, Object: k8sruntime.RawExtension{Raw: []byte(c.text)}}}
		if got := pass.Handle(t.Context(), request).Allowed; got != c.want {
			t.Errorf("%s of %q is allowed: %v, want %v", c.operation, c.text, got, c.want)
		}
	}
}

// TestReviewsEndWithTheirContext: what nobody waits for is not decoded.
func TestReviewsEndWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	answer := bounded{admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
		t.Error("it was decided")
		return admission.Response{}
	})}.Handle(ctx, admission.Request{})
	if answer.Allowed {
		t.Error("it was allowed")
	}
}
