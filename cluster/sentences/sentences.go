// Package sentences reads what Kubernetes says in sentences and nowhere else: no reason and no field has it. It is
// the one place of the cluster half that does (TestNowhereElse): what vmlet's programs say to each other travels as
// data (contract.Fault, contract.Ending). A sentence that a later Kubernetes words otherwise is not recognised, and
// shown as it is. Start reading at Missing.
package sentences

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// missing is what kubelets say of a volume, and the API server of a pod, whose object is not there.
var missing = regexp.MustCompile(`\b(secret|configmap|serviceaccount)s? "([^"]{1,253})" not found`)

// Missing are the objects, such as "Secret web", that a sentence says are not there: most of them at most.
func Missing(sentence string, most int) (objects []string) {
	kinds := map[string]string{"secret": "Secret", "configmap": "ConfigMap", "serviceaccount": "ServiceAccount"}
	for _, m := range missing.FindAllStringSubmatch(sentence, most) {
		objects = append(objects, kinds[m[1]]+" "+m[2])
	}
	return objects
}

var (
	// tries is what runtimes number their tries by.
	tries = regexp.MustCompile(`\b[0-9a-f]{12,}\b`)
	// backOff is how the kubelet says how long it waits, ever longer, for its next try.
	backOff = regexp.MustCompile(`\bback-off (\d+[hms])+\b`)
)

// Steady is what a kubelet says, without what changes from one try to the next: the same failure is always the same
// sentence.
func Steady(sentence string) string {
	return Unnumbered(backOff.ReplaceAllString(sentence, "back-off"))
}

// Unnumbered is what a runtime says, without what it numbers its tries by.
func Unnumbered(sentence string) string { return tries.ReplaceAllString(sentence, "…") }

// backOffPull is how the kubelet begins to say that it waits before it pulls an image again; why the last pull failed
// follows (pkg/kubelet/images of Kubernetes).
var backOffPull = regexp.MustCompile(`(?s)^Back-off pulling image "[^"]*"(?:: (?:ErrImagePull: )?(.+))?$`)

// PullCause is why an image can't be pulled, by a kubelet that waits before it tries again; empty: it has forgotten,
// as kubelets of Kubernetes 1.30 do.
func PullCause(sentence string) string {
	if m := backOffPull.FindStringSubmatch(sentence); m != nil {
		return m[1]
	}
	return sentence
}

// ShutsDown reports whether a node that is not ready shuts down, as its kubelet says (pkg/kubelet/nodeshutdown of
// Kubernetes).
func ShutsDown(ready *corev1.NodeCondition) bool {
	return ready.Status == corev1.ConditionFalse && strings.Contains(ready.Message, "node is shutting down")
}

// perContainer is what a LimitRange says of a pod's containers: it names none of them.
var perContainer = regexp.MustCompile(`(?:m(?:ax|in)imum )?\b(\S+) (?:usage|max limit to request ratio) per Container is [^,\]]+, but (provided ratio|limit|request) is ([^\s,\]]+)`)

// LimitRange returns the API server's refusal of a pod with what follows each thing that it says of some container:
// of a resource the limit, the request or the provided ratio has the value.
func LimitRange(refusal string, follows func(resource corev1.ResourceName, what, value string) string) string {
	return perContainer.ReplaceAllStringFunc(refusal, func(said string) string {
		m := perContainer.FindStringSubmatch(said)
		return said + follows(corev1.ResourceName(m[1]), m[2], strings.TrimSuffix(m[3], "."))
	})
}
