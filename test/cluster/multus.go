package cluster

import (
	"os"
	"path/filepath"
)

// multus is the CNI plug-in that containerd runs where [Options.Multus] asks for it, and which
// runs the others: no component of its own.
const multus = "multus"

// pluginsWithMultus is a folder of CNI plug-ins with Multus in it.
const pluginsWithMultus = "bin/cni"

func (c *Cluster) multusPlugins() error {
	plugins := c.path(pluginsWithMultus)
	if err := os.Mkdir(plugins, 0o755); err != nil {
		return err
	}
	others, err := os.ReadDir(cniPlugins)
	if err != nil {
		return err
	}
	targets := []string{c.programs[multus]}
	for _, other := range others {
		targets = append(targets, filepath.Join(cniPlugins, other.Name()))
	}
	for _, target := range targets {
		if err := os.Symlink(target, filepath.Join(plugins, filepath.Base(target))); err != nil {
			return err
		}
	}
	return nil
}

// configureMultus writes the configuration that containerd finds before that of the network,
// which becomes Multus' default.
func (n *Node) configureMultus(v6 bool) error {
	return n.writeJSON("cni/00-multus.conf", object{
		"cniVersion": "0.4.0", "name": multus, "type": multus, "kubeconfig": n.cluster.path("etc/multus.kubeconfig"),
		"delegates": []object{n.cniConfig(v6)}, "logFile": n.LogFile(multus), "logLevel": "verbose",
	})
}

// attachmentDefinition is what further networks are written down in, as the specification of the
// Network Plumbing Working Group has it.
const attachmentDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: network-attachment-definitions.k8s.cni.cncf.io}
spec:
  group: k8s.cni.cncf.io
  scope: Namespaced
  names: {plural: network-attachment-definitions, singular: network-attachment-definition, kind: NetworkAttachmentDefinition, shortNames: [net-attach-def]}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              config: {type: string}
`
