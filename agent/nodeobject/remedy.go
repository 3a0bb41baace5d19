package nodeobject

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// remedy is what an administrator does about an error of the API server's; empty:
// nothing, it passes.
func remedy(err error) string {
	switch {
	case err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy"): // as 422, whatever it says
		return "the policy allows an agent only its own Node, and there only vmlet's keys: the pod needs the token that Kubernetes mounts by itself, which names its node, and the policy of this version"
	case apierrors.IsForbidden(err):
		return "give the agent's service account this right, as deploy/base does"
	case apierrors.IsUnauthorized(err):
		return "the agent's token or certificate is not accepted: is its service account still there?"
	case apierrors.IsNotFound(err):
		return "is this node's name right (kubernetes.node), and the agent's namespace there?"
	}
	return ""
}
