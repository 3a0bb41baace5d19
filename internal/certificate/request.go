package certificate

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	resource = "certificatesigningrequests"
	// callTimeout bounds one call of the API server.
	callTimeout = 30 * time.Second
	// watchLeast is how long a watch is asked for at least, and at most twice that; it may
	// last watchGrace longer before the program ends it itself.
	watchLeast = 5 * time.Minute
	watchGrace = 30 * time.Second
	// watchSteady is how long a watch lasts that was no failure.
	watchSteady = time.Minute
	// maxMessage bounds what is kept of the signer's words, in bytes.
	maxMessage = 1 << 10
)

// refusedError is a request that was decided, and not in the program's favour.
type refusedError struct{ reason string }

func (e *refusedError) Error() string { return e.reason }

// submit creates a request and returns its name.
func (k *Keeper) submit(ctx context.Context, key *ecdsa.PrivateKey) (name string, err error) {
	wanted := k.options.Request
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: wanted.CommonName}, DNSNames: wanted.DNSNames,
	}, key)
	if err != nil {
		return "", err
	}
	request := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: k.options.NamePrefix},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: wanted.Signer, Usages: wanted.Usages,
		},
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var made certificatesv1.CertificateSigningRequest
	err = k.options.API.Post().Resource(resource).MaxRetries(0).Body(request).Do(ctx).Into(&made)
	return made.Name, err
}

// await returns the chain that is issued for a request. An API server that is away is
// waited for; a request that is deleted, as Kubernetes does with those that nobody decides
// for a day, is an error.
func (k *Keeper) await(ctx context.Context, name string) (chain []byte, err error) {
	retry := newRetry()
	for {
		began := time.Now()
		chain, err := k.follow(ctx, name)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case chain != nil, apierrors.IsNotFound(err), errors.As(err, new(*refusedError)):
			return chain, err
		case err != nil:
			k.failed(fmt.Errorf("following certificate signing request %s: %w", name, err))
		}
		if time.Since(began) > watchSteady {
			retry = newRetry()
		}
		sleep(ctx, retry.Step())
	}
}

// follow looks at a request, and then watches it for some minutes. It returns nothing if
// it is not decided by then.
func (k *Keeper) follow(ctx context.Context, name string) (chain []byte, err error) {
	request, err := k.get(ctx, name)
	if err != nil {
		return nil, err
	}
	if chain, err := outcome(request); chain != nil || err != nil {
		return chain, err
	}
	lasts := wait.Jitter(watchLeast, 1)
	seconds := int64(lasts.Seconds())
	ctx, cancel := context.WithTimeout(ctx, lasts+watchGrace)
	defer cancel()
	events, err := k.options.API.Get().Resource(resource).MaxRetries(0).VersionedParams(&metav1.ListOptions{
		Watch: true, FieldSelector: "metadata.name=" + name, ResourceVersion: request.ResourceVersion, TimeoutSeconds: &seconds,
	}, metav1.ParameterCodec).Watch(ctx)
	if err != nil {
		return nil, err
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		if event.Type == watch.Error {
			return nil, apierrors.FromObject(event.Object)
		}
		if request, is := event.Object.(*certificatesv1.CertificateSigningRequest); is && request.Name == name {
			if chain, err := outcome(request); chain != nil || err != nil {
				return chain, err
			}
		}
		if event.Type == watch.Deleted {
			return nil, apierrors.NewNotFound(certificatesv1.Resource(resource), name)
		}
	}
	return nil, nil
}

func (k *Keeper) get(ctx context.Context, name string) (*certificatesv1.CertificateSigningRequest, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request := new(certificatesv1.CertificateSigningRequest)
	return request, k.options.API.Get().Resource(resource).Name(name).MaxRetries(0).Do(ctx).Into(request)
}

// outcome is the chain that was issued, a *refusedError, or neither.
func outcome(request *certificatesv1.CertificateSigningRequest) (chain []byte, err error) {
	for _, c := range request.Status.Conditions {
		if c.Status == corev1.ConditionFalse {
			continue
		}
		switch c.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			message := strings.ToValidUTF8(c.Message[:min(len(c.Message), maxMessage)], "")
			return nil, &refusedError{fmt.Sprintf("%s: %s", strings.ToLower(string(c.Type)), message)}
		}
	}
	if len(request.Status.Certificate) == 0 {
		return nil, nil
	}
	return request.Status.Certificate, nil
}
