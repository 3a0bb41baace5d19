package certificates

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/vmlet/vmlet/contract"
)

const (
	// rotationCheck is how often the CA is looked at where nobody asks for certificates.
	rotationCheck = time.Hour
	// maxReason bounds a condition's message, in bytes: it quotes the request.
	maxReason = 1 << 10
)

// Signer decides and signs the requests of vmlet's programs. The leader runs it; two at once
// do no harm.
type Signer struct {
	Client    client.Client
	Authority *Authority
	Programs  Programs
	Log       *slog.Logger
}

// Requests is how a manager's cache should hold CertificateSigningRequests: those of vmlet's
// signer alone.
func Requests() cache.ByObject {
	return cache.ByObject{Field: fields.OneTermEqualSelector("spec.signerName", contract.SignerName)}
}

// SetupWithManager has a manager run the signer, and look after the CA.
func (s *Signer) SetupWithManager(m ctrl.Manager) error {
	if err := m.Add(manager.RunnableFunc(s.watchAuthority)); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(m).Named("certificates").For(&certificatesv1.CertificateSigningRequest{}).Complete(s)
}

// watchAuthority makes and replaces the CA in time, also where nobody asks for certificates,
// until ctx ends.
func (s *Signer) watchAuthority(ctx context.Context) error {
	tick := time.NewTicker(rotationCheck)
	defer tick.Stop()
	for {
		if _, err := s.Authority.current(ctx); err != nil && ctx.Err() == nil {
			s.Log.Error("CA is unusable: vmlet's programs get no certificates", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Reconcile takes one request as far as it goes.
func (s *Signer) Reconcile(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	request := new(certificatesv1.CertificateSigningRequest)
	if err := s.Client.Get(ctx, r.NamespacedName, request); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	request = request.DeepCopy() // the cache's is not ours
	err := s.decide(ctx, request)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		err = nil // what has changed comes as another event
	}
	return ctrl.Result{}, err
}

// decide carries out what judge says. What was approved is signed at once.
func (s *Signer) decide(ctx context.Context, request *certificatesv1.CertificateSigningRequest) error {
	v := s.Programs.judge(request)
	switch v.action {
	case approve:
		condition(request, certificatesv1.CertificateApproved, "VmletProgram", v.reason)
		if err := s.Client.SubResource("approval").Update(ctx, request); err != nil {
			return fmt.Errorf("approving it: %w", err)
		}
		return s.sign(ctx, request, v)
	case sign:
		return s.sign(ctx, request, v)
	case deny:
		s.Log.Warn("certificate denied", "request", request.Name, "reason", v.reason)
		condition(request, certificatesv1.CertificateDenied, "NotGranted", v.reason)
		if err := s.Client.SubResource("approval").Update(ctx, request); err != nil {
			return fmt.Errorf("denying it: %w", err)
		}
	case fail:
		s.Log.Warn("certificate not signed, though somebody approved it", "request", request.Name, "reason", v.reason)
		condition(request, certificatesv1.CertificateFailed, "NotGranted", v.reason)
		if err := s.Client.Status().Update(ctx, request); err != nil {
			return fmt.Errorf("refusing to sign it: %w", err)
		}
	}
	return nil
}

func (s *Signer) sign(ctx context.Context, request *certificatesv1.CertificateSigningRequest, v verdict) error {
	all, err := s.Authority.current(ctx)
	if err != nil {
		return err
	}
	if request.Status.Certificate, err = all.issue(v.grant, v.key, s.Authority.now()); err != nil {
		return fmt.Errorf("signing it: %w", err)
	}
	if err := s.Client.Status().Update(ctx, request); err != nil {
		return fmt.Errorf("storing the certificate: %w", err)
	}
	s.Log.Info("certificate signed", "request", request.Name, "program", v.grant.program)
	return nil
}

// condition adds one to a request.
func condition(request *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType, reason, message string) {
	now := metav1.Now()
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: reason,
		Message:        strings.ToValidUTF8(message[:min(len(message), maxReason)], ""),
		LastUpdateTime: now, LastTransitionTime: now,
	})
}
