package cluster_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/suites"
)

// onBridges is a pod on two further networks, of which one has addresses.
const onBridges = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: bare, namespace: default}
spec: {config: '{"cniVersion": "0.4.0", "name": "bare", "type": "bridge", "bridge": "br-bare", "ipam": {}}'}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: addressed, namespace: default}
spec:
  config: '{"cniVersion": "0.4.0", "name": "addressed", "type": "bridge", "bridge": "br-addressed", "ipam": {"type": "host-local", "subnet": "192.0.2.0/24"}}'
---
apiVersion: v1
kind: Pod
metadata:
  name: connected
  annotations:
    k8s.v1.cni.cncf.io/networks: '[{"name": "bare", "interface": "first", "mac": "02:00:00:00:00:0a"}, {"name": "addressed", "interface": "second"}]'
spec:
  containers: [{name: it, image: ` + cluster.PauseImage + `, args: [connected]}]
`

func TestMultus(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a cluster")
	}
	if err := cluster.Unfit(); err != nil {
		t.Skip(err)
	}
	ctx, cancel := suites.Wait(t.Context(), t, patience)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{Multus: true, Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() })
	if err := c.Apply(ctx, onBridges); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"wait", "--for=condition=Ready", "--timeout=24h", "pod/connected"}, // ctx ends earlier
		{"get", "pod/connected", "-o", `jsonpath={.metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status}`},
	} {
		out, err := c.Kubectl(ctx, args...)
		if err != nil {
			t.Fatal(err)
		}
		if args[0] == "get" {
			wantNetworks(t, out)
		}
	}
}

func wantNetworks(t *testing.T, answer string) {
	t.Helper()
	var networks []struct {
		Interface, MAC string
		IPs            []string
	}
	if err := json.Unmarshal([]byte(answer), &networks); err != nil {
		t.Fatalf("Multus' answer is %q: %v", answer, err)
	}
	var got []string
	for _, n := range networks {
		got = append(got, n.Interface)
		if n.Interface == "first" && n.MAC != "02:00:00:00:00:0a" {
			t.Errorf("the first network has the MAC %s, want the one that was asked for", n.MAC)
		}
		if n.Interface == "second" && (len(n.IPs) != 1 || !strings.HasPrefix(n.IPs[0], "192.0.2.")) {
			t.Errorf("the second network has %v, want an address", n.IPs)
		}
	}
	if want := []string{"eth0", "first", "second"}; !slices.Equal(got, want) {
		t.Errorf("the pod has %v, want %v", got, want)
	}
}
