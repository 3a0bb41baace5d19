package subresources

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/vmlet/vmlet/cluster/nodes/nodestest"
	"github.com/vmlet/vmlet/test/suites"
)

// TestProxy: what is missing is said by its name, and what is there is awaited.
func TestProxy(t *testing.T) {
	authority, err := nodestest.NewAuthority()
	must(t, err)
	ca := string(authority.PEM())
	for name, c := range map[string]struct {
		data    map[string]string
		missing string
	}{
		"all":            {map[string]string{keyCA: ca, keyUsername: `["X-Remote-User"]`}, ""},
		"no certificate": {map[string]string{keyUsername: `["X-Remote-User"]`}, "--" + keyCA},
		"no headers":     {map[string]string{keyCA: ca}, "--" + keyUsername},
	} {
		t.Run(name, func(t *testing.T) {
			api := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: proxyNamespace, Name: proxyConfigMap}, Data: c.data})
			p, err := NewProxy(api)
			must(t, err)
			ctx, cancel := suites.Wait(t.Context(), t, testPatience)
			defer cancel()
			go p.Run(ctx)
			if c.missing == "" {
				p.Await(ctx)
				must(t, p.Err())
				return
			}
			ended, end := context.WithCancel(ctx)
			end()
			p.Await(ended) // does not last
			for look := time.NewTicker(10 * time.Millisecond); ; <-look.C {
				err := p.Err()
				must(t, ctx.Err())
				if err != nil && strings.Contains(err.Error(), c.missing) {
					return
				}
			}
		})
	}
}
