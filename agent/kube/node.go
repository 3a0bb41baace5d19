package kube

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
)

// NodeNameVariable is the environment variable that a DaemonSet gives its pods
// from spec.nodeName.
const NodeNameVariable = "VMLET_NODE_NAME"

// namespaceFile is where the kubelet writes a pod's namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// NodeName is a node's name in Kubernetes: that of the configuration, else that
// of NodeNameVariable, else what the pod's token says, else, outside of a pod, the
// machine's host name in small letters, as a kubelet has it by itself.
type NodeName struct {
	Name string
	// From says where it is from, for people.
	From string
}

// nodeName finds it. A pod's token names the node that the pod is on; another
// name is an error, since the API server would refuse all that is written.
func nodeName(configured string, access *rest.Config, pod bool) (NodeName, error) {
	claimed := ""
	if pod {
		claimed = nodeOfToken(tokenOf(access))
	}
	host := ""
	if !pod {
		host, _ = os.Hostname()
	}
	for _, n := range []NodeName{
		{configured, "the configuration (kubernetes.node)"},
		{os.Getenv(NodeNameVariable), "the environment (" + NodeNameVariable + ")"},
		{claimed, "the pod's token"},
		{strings.ToLower(strings.TrimSpace(host)), "the machine's host name"},
	} {
		if n.Name == "" {
			continue
		}
		if err := CheckName(n.Name); err != nil {
			return n, fmt.Errorf("the node's name, from %s: %w", n.From, err)
		}
		if claimed != "" && claimed != n.Name {
			return n, fmt.Errorf("the node's name is %q by %s, and the pod is on %q: take it from spec.nodeName", n.Name, n.From, claimed)
		}
		return n, nil
	}
	return NodeName{}, fmt.Errorf("the node's name is not known: set %s from spec.nodeName in the pod, or kubernetes.node in the configuration", NodeNameVariable)
}

// CheckName says why Kubernetes would not take a name of a node or namespace.
func CheckName(name string) error {
	if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 {
		return fmt.Errorf("%q: %s", name, strings.Join(faults, "; "))
	}
	return nil
}

// tokenOf is the token as it is now: its file may be newer than what was read.
func tokenOf(access *rest.Config) string {
	if access.BearerTokenFile != "" {
		if content, err := os.ReadFile(access.BearerTokenFile); err == nil {
			return strings.TrimSpace(string(content))
		}
	}
	return access.BearerToken
}

// nodeOfToken is the node that a service account's token is bound to (Kubernetes:
// "Managing Service Accounts", claims); empty if it doesn't say. The token is the
// agent's own, and so isn't verified.
func nodeOfToken(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Kubernetes struct {
			Node struct {
				Name string `json:"name"`
			} `json:"node"`
		} `json:"kubernetes.io"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.Kubernetes.Node.Name
}

// podNamespace is the namespace of the pod that this is; empty if it isn't one.
func podNamespace() string {
	content, err := os.ReadFile(namespaceFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}
