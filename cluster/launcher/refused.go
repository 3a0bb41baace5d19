package launcher

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmlet/vmlet/cluster/sentences"
	"github.com/vmlet/vmlet/contract"
)

// refusedError is the API server's, with the containers named that it is about.
type refusedError struct {
	text string
	err  error
}

func (e *refusedError) Error() string { return e.text }
func (e *refusedError) Unwrap() error { return e.err }

// Refused is the error with which the API server refuses a pod, with the containers named that a
// LimitRange does not admit.
func Refused(err error, p *corev1.Pod) error {
	if err == nil {
		return nil
	}
	text := sentences.LimitRange(err.Error(), func(resource corev1.ResourceName, what, value string) string {
		return blamed(p, resource, what, value)
	})
	if text == err.Error() {
		return err
	}
	return &refusedError{text, err}
}

// blamed names the containers for which a LimitRange says that value, and what sets it; empty: none.
func blamed(p *corev1.Pod, name corev1.ResourceName, what, value string) string {
	var names []string
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		request, requested := c.Resources.Requests[name]
		limit, limited := c.Resources.Limits[name]
		has := ""
		switch {
		case what == "limit" && limited:
			has = limit.String()
		case what == "request" && requested:
			has = request.String()
		case what == "provided ratio" && limited && !request.IsZero():
			has = fmt.Sprintf("%f", limit.AsApproximateFloat64()/request.AsApproximateFloat64())
		}
		if has == value {
			names = append(names, c.Name)
		}
	}
	switch {
	case len(names) == 0:
		return ""
	case slices.Contains(names, contract.ContainerCompute):
		return " (container " + strings.Join(names, ", ") + ": see domain.resources of the VM)"
	case slices.Contains(names, contract.ContainerImporter):
		return " (container " + strings.Join(names, ", ") + ", whose resources are fixed)"
	}
	return " (container " + strings.Join(names, ", ") + ": see supportContainerResources of the KubeVirt object)"
}
