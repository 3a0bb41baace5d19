// Package webhookpath keeps the secret that the paths of vmlet's webhooks end with. Kubernetes
// does not authenticate itself to webhooks: by such a path vmlet-api knows the API server, which
// has it from the webhook configurations. vmlet-controller makes the secret and replaces it,
// vmlet-api reads it. It must not know what webhooks decide. Start reading at Store and Guard.
package webhookpath

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SecretName is that of the Secret, in vmlet's namespace.
const SecretName = "vmlet-webhooks"

const (
	// period is how long a key is used before another one is made.
	period = 30 * 24 * time.Hour
	// settle is how long a key is accepted before it is used, and how long after its successor
	// is: longer than vmlet-controller takes to look again, and than a vmlet-api could lag behind.
	settle = 24 * time.Hour
	// keySize is in bytes, maxKeys bounds what is read.
	keySize = 32
	maxKeys = 4
	// made is how the Secret names a key: by when it was made.
	made = "20060102T150405Z"
	// attempts are made while another controller writes the Secret, too.
	attempts = 5
)

// key is what paths are made with.
type key struct {
	made  time.Time
	bytes []byte
}

// Keys are those that are accepted, the oldest first.
type Keys []key

// Path returns a webhook's path as its configuration has it. Each webhook has an end of its own,
// as an error that a user gets when a webhook is away has the path in it: with that nobody calls
// another webhook.
func (k Keys) Path(webhook string, now time.Time) string {
	return webhook + "/" + k.used(now).end(webhook)
}

func (k key) end(webhook string) string {
	sum := hmac.New(sha256.New, k.bytes)
	sum.Write([]byte(webhook))
	return hex.EncodeToString(sum.Sum(nil))
}

// used is the newest key that has been accepted for long enough; the first one is used at once.
func (k Keys) used(now time.Time) key {
	last := k[0]
	for _, one := range k[1:] {
		if !now.Before(one.made.Add(settle)) {
			last = one
		}
	}
	return last
}

// accepts compares in constant time with all keys.
func (k Keys) accepts(webhook, end string) bool {
	accepted := false
	for _, one := range k {
		if hmac.Equal([]byte(one.end(webhook)), []byte(end)) {
			accepted = true
		}
	}
	return accepted
}

// rotate adds a key when the newest is old, and takes away what nobody uses any more.
func (k Keys) rotate(now time.Time) (next Keys, changed bool) {
	next = slices.Clone(k)
	for len(next) > 1 && !now.Before(next[1].made.Add(2*settle)) {
		next, changed = next[1:], true
	}
	if n := len(next); n == 0 || !now.Before(next[n-1].made.Add(period)) {
		one := key{made: now.UTC().Truncate(time.Second), bytes: make([]byte, keySize)}
		rand.Read(one.bytes)
		next, changed = append(next, one), true
	}
	return next, changed
}

// Store is the Secret as vmlet-controller keeps it.
type Store struct {
	// Reader asks the API server itself: a cache would need the right to list Secrets.
	Reader    client.Reader
	Writer    client.Writer
	Namespace string
	// Now is time.Now unless set.
	Now func() time.Time
}

// Paths returns a function that makes the paths of webhooks. What it uses is in the Secret first.
// It is to be called every day at least.
func (s *Store) Paths(ctx context.Context) (func(webhook string) string, error) {
	now := time.Now()
	if s.Now != nil {
		now = s.Now()
	}
	for range attempts {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: SecretName, Labels: map[string]string{"app.kubernetes.io/part-of": "vmlet"},
		}}
		all, err := read(ctx, s.Reader, secret)
		there := err == nil
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		all, changed := all.rotate(now)
		if changed {
			secret.Data = all.encode()
			err = s.write(ctx, secret, there)
		}
		switch {
		case err == nil || !changed:
			return func(webhook string) string { return all.Path(webhook, now) }, nil
		case !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("writing the Secret %s: %w", SecretName, err)
		}
	}
	return nil, fmt.Errorf("writing the Secret %s: others write it all the time: is more than one vmlet-controller the leader?", SecretName)
}

func (s *Store) write(ctx context.Context, secret *corev1.Secret, there bool) error {
	if there {
		return s.Writer.Update(ctx, secret)
	}
	return s.Writer.Create(ctx, secret)
}

// Cached is the Secret as a cache of vmlet-api follows it: by name, as it has the right to.
func Cached(namespace string) cache.ByObject {
	return cache.ByObject{Namespaces: map[string]cache.Config{namespace: {FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, SecretName)}}}
}

// Read returns the keys of the Secret, from vmlet-api's cache of it.
func Read(ctx context.Context, from client.Reader, namespace string) (Keys, error) {
	all, err := read(ctx, from, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: SecretName}})
	if apierrors.IsNotFound(err) {
		err = fmt.Errorf("there is no Secret %s/%s yet, by which the API server is known: vmlet-controller makes it", namespace, SecretName)
	}
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("the Secret %s/%s has no key: delete it, and vmlet-controller makes another", namespace, SecretName)
	}
	return all, err
}

func read(ctx context.Context, from client.Reader, secret *corev1.Secret) (all Keys, err error) {
	if err := from.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil {
		return nil, err
	}
	if len(secret.Data) > maxKeys {
		return nil, fmt.Errorf("the Secret %s/%s has %d keys, more than %d: delete it, and vmlet-controller makes another", secret.Namespace, SecretName, len(secret.Data), maxKeys)
	}
	for _, name := range slices.Sorted(maps.Keys(secret.Data)) { // which is by age
		when, err := time.Parse(made, name)
		if err != nil || len(secret.Data[name]) != keySize {
			return nil, fmt.Errorf("the Secret %s/%s: %q is none of vmlet's keys: delete it, and vmlet-controller makes another", secret.Namespace, SecretName, name)
		}
		all = append(all, key{made: when, bytes: secret.Data[name]})
	}
	return all, nil
}

func (k Keys) encode() map[string][]byte {
	data := make(map[string][]byte, len(k))
	for _, one := range k {
		data[one.made.Format(made)] = one.bytes
	}
	return data
}
