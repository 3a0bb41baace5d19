package installation

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/settings"
)

// observed is the release of KubeVirt whose API vmlet serves, as tools read it.
const observed = "v1.9.0"

// Conditions of the KubeVirt object. The first four are KubeVirt's, SettingsIgnored is ours.
const (
	created         = "Created"
	available       = "Available"
	progressing     = "Progressing"
	degraded        = "Degraded"
	settingsIgnored = "SettingsIgnored"
)

// maxMessage bounds a condition's message, in bytes.
const maxMessage = 4 << 10

// writeStatus writes the status of each KubeVirt object whose status is out of date.
func (i *Installation) writeStatus(ctx context.Context) error {
	var all kubevirtv1.KubeVirtList
	if err := i.Client.List(ctx, &all); err != nil || len(all.Items) == 0 {
		return err
	}
	missing, err := i.missing(ctx)
	if err != nil {
		return err
	}
	stack, err := i.reports(ctx)
	if err != nil {
		return err
	}
	var faults []error
	chosen := settings.Chosen(all.Items, i.Configuration)
	for n := range all.Items {
		kv := &all.Items[n]
		if kv.DeletionTimestamp != nil {
			continue
		}
		patch := client.MergeFrom(kv.DeepCopy())
		before := kv.Status
		switch {
		case kv.Namespace != i.Configuration:
			kv.Status = ignored(kv, "OtherNamespace", fmt.Sprintf("KubeVirt objects of namespace %s alone configure the cluster: make it there, or have vmlet-controller and vmlet-api run with --configuration-namespace %s; this one has no effect", i.Configuration, kv.Namespace))
		case kv.UID != chosen.UID:
			kv.Status = ignored(kv, "ExistingKubeVirt", fmt.Sprintf("KubeVirt %s/%s is older and is the cluster's configuration: delete this one, which has no effect", chosen.Namespace, chosen.Name))
		default:
			kv.Status = i.status(kv, missing, stack)
		}
		kubevirtv1.SetTransitionTimes(kv.Status.Conditions, before.Conditions, metav1.Now())
		if equality.Semantic.DeepEqual(before, kv.Status) {
			continue
		}
		// One that can't be written keeps none of the others from being.
		faults = append(faults, client.IgnoreNotFound(i.Client.Status().Patch(ctx, kv, patch)))
	}
	return errors.Join(faults...)
}

// missing says which of vmlet's programs does not run; empty: all do.
func (i *Installation) missing(ctx context.Context) (string, error) {
	for _, name := range []string{i.Names.API, i.Names.Controller} {
		var d appsv1.Deployment
		err := i.Client.Get(ctx, client.ObjectKey{Namespace: i.Namespace, Name: name}, &d)
		if why, err := unavailable(err, "Deployment", i.Namespace, name, d.Status.AvailableReplicas); why != "" || err != nil {
			return why, err
		}
	}
	var d appsv1.DaemonSet
	err := i.Client.Get(ctx, client.ObjectKey{Namespace: i.Namespace, Name: i.Names.Agent}, &d)
	return unavailable(err, "DaemonSet", i.Namespace, i.Names.Agent, d.Status.NumberAvailable)
}

// unavailable says that a workload has no pod that works; empty: it has some.
func unavailable(err error, kind, namespace, name string, pods int32) (string, error) {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("%s %s/%s does not exist", kind, namespace, name), nil
	case err == nil && pods == 0:
		return fmt.Sprintf("%s %s/%s has no available pod", kind, namespace, name), nil
	}
	return "", err
}

// status is that of the KubeVirt object which counts. missing says which of vmlet's programs does
// not run.
func (i *Installation) status(kv *kubevirtv1.KubeVirt, missing string, found stackReports) kubevirtv1.KubeVirtStatus {
	c, unused := configuration.From(kv)
	s := *kv.Status.DeepCopy()
	s.OperatorVersion, s.ObservedKubeVirtVersion, s.TargetKubeVirtVersion = i.Version, observed, observed
	s.ObservedGeneration = &kv.Generation
	s.DefaultArchitecture = c.DefaultArchitecture
	up, down, reason, message := metav1.ConditionTrue, metav1.ConditionFalse, "AllComponentsReady", "All components are ready."
	switch {
	case missing == "":
		s.Phase = "Deployed"
	case s.Phase != "Deployed": // once deployed, it stays so
		s.Phase = "Deploying"
	}
	if missing != "" {
		up, down, reason, message = down, up, "DeploymentInProgress", missing
	}
	s.Conditions = []kubevirtv1.Condition{
		{Type: created, Status: metav1.ConditionTrue, Reason: "AllResourcesCreated"},
		{Type: available, Status: up, Reason: reason, Message: message},
		{Type: progressing, Status: down, Reason: reason, Message: message},
		{Type: degraded, Status: down, Reason: reason, Message: message},
	}
	if len(unused) > 0 {
		s.Conditions = append(s.Conditions, kubevirtv1.Condition{
			Type: settingsIgnored, Status: metav1.ConditionTrue, Reason: "NoEffect", Message: sentence(unused),
		})
	}
	if s.VirtualizationStack = found.status(c.Stack); s.VirtualizationStack != nil {
		s.Conditions = append(s.Conditions, stackCondition(s.VirtualizationStack))
	}
	for n := range s.Conditions {
		s.Conditions[n].ObservedGeneration = kv.Generation
	}
	return s
}

// sentence has every setting that has no effect, and why.
func sentence(all []configuration.Ignored) string {
	lines := make([]string, 0, len(all))
	for _, one := range all {
		lines = append(lines, one.String())
	}
	text := strings.Join(lines, "; ")
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	return text
}

// ignored is the status of a KubeVirt object that does not count.
func ignored(kv *kubevirtv1.KubeVirt, reason, message string) kubevirtv1.KubeVirtStatus {
	return kubevirtv1.KubeVirtStatus{
		ObservedGeneration: &kv.Generation,
		Conditions: []kubevirtv1.Condition{{
			Type: available, Status: metav1.ConditionFalse, Reason: reason, ObservedGeneration: kv.Generation, Message: message,
		}},
	}
}
