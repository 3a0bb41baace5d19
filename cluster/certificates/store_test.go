package certificates

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func authorityAt(c client.Client, now time.Time) *Authority {
	return &Authority{Reader: c, Writer: c, Namespace: "vmlet", Now: func() time.Time { return now }}
}

// TestManyControllers: however many begin at once, all sign with the same CA.
func TestManyControllers(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	for _, at := range []time.Duration{0, authorityLifetime/2 + time.Hour} {
		bundles := make([]string, 4)
		var all sync.WaitGroup
		for i := range bundles {
			all.Go(func() {
				bundle, err := authorityAt(c, start.Add(at)).Bundle(t.Context())
				if err != nil {
					t.Error(err)
				}
				bundles[i] = string(bundle)
			})
		}
		all.Wait()
		for _, b := range bundles {
			if b != bundles[0] || b == "" {
				t.Errorf("at %v: controllers have different CAs", at)
			}
		}
	}
}

// TestOtherWasFaster: a CA that another controller stored between a look and a write is used.
func TestOtherWasFaster(t *testing.T) {
	var other []byte
	var now time.Time
	faster := func(ctx context.Context, c client.Client) {
		if other != nil {
			return
		}
		other = []byte{} // what follows comes here, too
		bundle, err := authorityAt(c, now).Bundle(ctx)
		if err != nil {
			t.Error(err)
		}
		other = bundle
	}
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			faster(ctx, c)
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			faster(ctx, c)
			return c.Update(ctx, o, opts...)
		},
	}).Build()
	for _, at := range []time.Duration{0, authorityLifetime/2 + time.Hour} {
		other, now = nil, start.Add(at)
		got, err := authorityAt(c, now).Bundle(t.Context())
		if err != nil || string(got) != string(other) {
			t.Errorf("at %v: controllers have different CAs, %v", at, err)
		}
	}
}

// TestLostAnswer: a write that was done, and whose answer was lost, is not done again.
func TestLostAnswer(t *testing.T) {
	lost := true
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := c.Create(ctx, o, opts...); err != nil {
				return err
			}
			if lost {
				lost = false
				return context.DeadlineExceeded
			}
			return nil
		},
	}).Build()
	if _, err := authorityAt(c, start).Bundle(t.Context()); err == nil {
		t.Fatal("a write of which nothing is known is taken as done")
	}
	first, err := authorityAt(c, start).Bundle(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again, err := authorityAt(c, start).Bundle(t.Context())
	if err != nil || string(first) != string(again) {
		t.Errorf("the CA has changed, %v", err)
	}
}

// TestSpoiltSecret: a CA that can't be read is never replaced in silence.
func TestSpoiltSecret(t *testing.T) {
	good, err := newAuthority(start)
	if err != nil {
		t.Fatal(err)
	}
	text, err := good.encode()
	if err != nil {
		t.Fatal(err)
	}
	leafless := text[strings.Index(string(text), "-----BEGIN PRIVATE"):]
	for name, c := range map[string]struct {
		data map[string][]byte
		want string
	}{
		"garbage":        {map[string][]byte{"a.pem": []byte("x")}, "a.pem"},
		"no certificate": {map[string][]byte{"a.pem": leafless}, "a.pem"},
		"another's key":  {map[string][]byte{"tls.crt": text}, "tls.crt"},
		"many":           {map[string][]byte{"a.pem": text, "b.pem": text, "c.pem": text, "d.pem": text, "e.pem": text}, "more than 4"},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vmlet", Name: SecretName}, Data: c.data}
			_, err := authorityAt(fake.NewClientBuilder().WithObjects(secret).Build(), start).Bundle(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "secret vmlet/vmlet-ca") {
				t.Errorf("%v, want secret vmlet/vmlet-ca and %q in it", err, c.want)
			}
		})
	}
}
