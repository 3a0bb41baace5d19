package why_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cmd/kubectl-vmlet/internal/why"
	"github.com/vmlet/vmlet/internal/doctest"
)

var update = flag.Bool("update", false, "write the golden files")

var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// world is an API server with the objects of a file.
func world(t *testing.T, file string, fails interceptor.Funcs) client.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), kubevirtv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(fails).
		WithIndex(&corev1.Event{}, why.EventsOf, func(o client.Object) []string { return []string{string(o.(*corev1.Event).InvolvedObject.UID)} })
	decode := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for part := range strings.SplitSeq(string(content), "\n---\n") {
		object, _, err := decode.Decode([]byte(part), nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		builder.WithRuntimeObjects(object)
	}
	return builder.Build()
}

// TestGolden compares the page of each file's objects with the one beside it; -update
// writes those.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			objects, err := why.Gather(t.Context(), world(t, file, interceptor.Funcs{}), "shop", "web")
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			if err := why.Explain(objects).Print(&got, now); err != nil {
				t.Fatal(err)
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", &got, want)
			}
		})
	}
}

// TestNotFound: neither a VM nor an instance is an error of its own; one of them is enough.
func TestNotFound(t *testing.T) {
	_, err := why.Gather(t.Context(), world(t, "testdata/running.yaml", interceptor.Funcs{}), "shop", "other")
	var missing *why.NotFoundError
	if !errors.As(err, &missing) || missing.Name != "other" || missing.Namespace != "shop" {
		t.Errorf("error is %v", err)
	}
}

// TestUnread: what the user may not read is said, and the rest shown; without the VM there
// is nothing to show.
func TestUnread(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "", errors.New("not for you"))
	from := world(t, "testdata/running.yaml", interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return forbidden
		},
	})
	objects, err := why.Gather(t.Context(), from, "shop", "web")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if err := why.Explain(objects).Print(&got, now); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"VM web in namespace shop: Running", "Not looked at:\n", "pods: ", "events: ", "not for you"} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("page has no %q:\n%s", want, &got)
		}
	}
	from = world(t, "testdata/running.yaml", interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return forbidden
		},
	})
	if _, err := why.Gather(t.Context(), from, "shop", "web"); !apierrors.IsForbidden(err) {
		t.Errorf("error is %v, want the API server's", err)
	}
}

// TestDocument: docs/kubectl-vmlet.md shows a page as it is printed.
func TestDocument(t *testing.T) {
	page := doctest.Read(t, "testdata/unschedulable.golden")
	if !strings.Contains(doctest.Read(t, "../../../../docs/kubectl-vmlet.md"), page) {
		t.Errorf("docs/kubectl-vmlet.md doesn't show\n%s", page)
	}
}
