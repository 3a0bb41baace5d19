package certificates

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SecretName is that of the Secret that has the CA.
const SecretName = "vmlet-ca"

const (
	// maxAuthorities bounds the CAs in the Secret: two is the most that rotation makes.
	maxAuthorities = 4
	// attempts are made while another controller writes the Secret, too.
	attempts = 5
	// keySuffix ends the Secret's keys. Each key has one CA.
	keySuffix = ".pem"
)

// Authority is the CA in its Secret. Any number of controllers may use it at once: what it
// signs with is in the Secret first. Its methods may be called concurrently.
type Authority struct {
	// Reader asks the API server itself: a cache would need the right to list Secrets.
	Reader    client.Reader
	Writer    client.Writer
	Namespace string
	// Now is time.Now unless set.
	Now func() time.Time
}

// Bundle returns the certificates of the CAs that are trusted, in PEM: what a webhook's
// caBundle should have. It is to be asked again every day at least: a new CA is in it for a
// week before it signs.
func (a *Authority) Bundle(ctx context.Context) ([]byte, error) {
	all, err := a.current(ctx)
	if err != nil {
		return nil, err
	}
	return all.bundle(), nil
}

// Serve returns a new key and a certificate for it, in PEM, by which a server of that DNS name is known to
// who trusts Bundle. It is no client's. Ask again when two thirds of its life have passed.
func (a *Authority) Serve(ctx context.Context, name string) (certificate, key []byte, err error) {
	all, err := a.current(ctx)
	if err != nil {
		return nil, nil, err
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	g := grant{commonName: name, dnsNames: []string{name}, usages: []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth}}
	if certificate, err = all.issue(g, &private.PublicKey, a.now()); err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	return certificate, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
}

func (a *Authority) now() time.Time {
	if a.Now == nil {
		return time.Now()
	}
	return a.Now()
}

// current returns the CAs as they are in the Secret, after it has made or replaced them if
// that was due.
func (a *Authority) current(ctx context.Context) (authorities, error) {
	for range attempts {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: a.Namespace, Name: SecretName, Labels: map[string]string{"app.kubernetes.io/part-of": "vmlet"},
		}}
		err := a.Reader.Get(ctx, client.ObjectKeyFromObject(secret), secret)
		there := err == nil
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading the CA: %w", err)
		}
		all, err := decodeSecret(secret)
		if err != nil {
			return nil, err
		}
		next, changed, err := all.rotate(a.now())
		if err != nil || !changed {
			return next, err
		}
		if secret.Data, err = encodeSecret(next); err != nil {
			return nil, err
		}
		if there {
			err = a.Writer.Update(ctx, secret)
		} else {
			err = a.Writer.Create(ctx, secret)
		}
		switch {
		case err == nil:
			return next, nil
		case !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("writing the CA: %w", err)
		}
	}
	return nil, errors.New("writing the CA: others write it all the time: is more than one vmlet-controller the leader?")
}

// decodeSecret reads the CAs of a Secret.
func decodeSecret(secret *corev1.Secret) (all authorities, err error) {
	fault := func(format string, args ...any) error {
		return fmt.Errorf("secret %s/%s: "+format+": restore it, or delete it and then restart vmlet-controller, vmlet-api and vmlet-agent",
			append([]any{secret.Namespace, secret.Name}, args...)...)
	}
	if len(secret.Data) > maxAuthorities {
		return nil, fault("it has %d CAs, more than %d", len(secret.Data), maxAuthorities)
	}
	for key, text := range secret.Data {
		if !strings.HasSuffix(key, keySuffix) {
			return nil, fault("%s is none of vmlet's keys", key)
		}
		a, err := decodeAuthority(text)
		if err != nil {
			return nil, fault("%s: %w", key, err)
		}
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b authority) int { return a.made().Compare(b.made()) })
	return all, nil
}

// encodeSecret names each CA by when it was made.
func encodeSecret(all authorities) (map[string][]byte, error) {
	data := make(map[string][]byte, len(all))
	for _, a := range all {
		text, err := a.encode()
		if err != nil {
			return nil, err
		}
		data[a.made().UTC().Format("20060102T150405Z")+keySuffix] = text
	}
	return data, nil
}
