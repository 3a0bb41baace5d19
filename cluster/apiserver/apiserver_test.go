package apiserver

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vmlet/vmlet/cluster/installation"
	"github.com/vmlet/vmlet/cluster/program"
	"github.com/vmlet/vmlet/cluster/settings"
)

// TestOwnAccounts: what only vmlet's programs may change they may under any name and namespace,
// and nobody of another namespace may.
func TestOwnAccounts(t *testing.T) {
	o := Options{Options: program.Options{Namespace: "elsewhere", Names: installation.Names{Agent: "my-agent", Controller: "my-controller", API: "my-api"}}}
	got := rules(o, nil, settings.Settings{}).Own
	if want := []string{"system:serviceaccount:elsewhere:my-controller", "system:serviceaccount:elsewhere:my-api"}; !slices.Equal(got, want) {
		t.Errorf("vmlet's own accounts are %q, want %q", got, want)
	}
}

// TestCacheIsOfOwnNamespaces: nobody fills a replica's memory by objects of his own.
func TestCacheIsOfOwnNamespaces(t *testing.T) {
	o := cacheOptions(Options{Options: program.Options{Namespace: "own", Configuration: "config"}})
	if _, is := o.DefaultNamespaces["config"]; !is || len(o.DefaultNamespaces) != 1 {
		t.Errorf("KubeVirt objects of %v are cached, want of namespace config alone", o.DefaultNamespaces)
	}
	if len(o.ByObject) != 1 {
		t.Errorf("%d kinds are cached of their own namespaces, want Secrets alone", len(o.ByObject))
	}
	for kind, cached := range o.ByObject {
		if _, is := kind.(*corev1.Secret); !is {
			t.Errorf("%T is cached, want Secrets", kind)
		}
		if _, is := cached.Namespaces["own"]; !is || len(cached.Namespaces) != 1 {
			t.Errorf("%T: those of %v are cached, want of namespace own alone", kind, cached.Namespaces)
		}
		if selector := cached.Namespaces["own"].FieldSelector; selector == nil || selector.Empty() {
			t.Errorf("%T: all of namespace own are cached, want one by its name", kind)
		}
	}
}

func TestHasCDI(t *testing.T) {
	scheme, err := program.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	cdi := installation.Definition()
	cdi.Name = "datavolumes.cdi.kubevirt.io"
	down := errors.New("connection refused")
	for name, c := range map[string]struct {
		live client.Reader
		want bool
		err  error
	}{
		"installed":     {fake.NewClientBuilder().WithScheme(scheme).WithObjects(cdi).Build(), true, nil},
		"not installed": {fake.NewClientBuilder().WithScheme(scheme).Build(), false, nil},
		"unknown": {fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return down
			},
		}).Build(), false, down},
	} {
		got, err := rules(Options{}, c.live, settings.Settings{}).HasCDI(t.Context())
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %v, want %v, %v", name, got, err, c.want, c.err)
		}
	}
}
