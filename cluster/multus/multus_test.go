package multus_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/multus"
)

func secondary(name, networkName string) kubevirtv1.Network {
	return kubevirtv1.Network{Name: name, Multus: &kubevirtv1.MultusNetwork{NetworkName: networkName}}
}

func byDefault(name, networkName string) kubevirtv1.Network {
	n := secondary(name, networkName)
	n.Multus.Default = true
	return n
}

func pod(name string) kubevirtv1.Network {
	return kubevirtv1.Network{Name: name, Pod: &kubevirtv1.PodNetwork{}}
}

func TestAnnotations(t *testing.T) {
	const blue = `{"interface":"pod16477688c0e","mac":"02:00:00:00:00:04","name":"vlan","namespace":"default"}`
	for name, test := range map[string]struct {
		networks []kubevirtv1.Network
		want     map[string]string
	}{
		"pod alone":    {[]kubevirtv1.Network{pod("default")}, map[string]string{}},
		"own network":  {[]kubevirtv1.Network{pod("default"), secondary("blue", "vlan")}, map[string]string{multus.AnnotationNetworks: "[" + blue + "]"}},
		"namespace":    {[]kubevirtv1.Network{secondary("blue", "default/vlan")}, map[string]string{multus.AnnotationNetworks: "[" + blue + "]"}},
		"default":      {[]kubevirtv1.Network{byDefault("a", "b")}, map[string]string{multus.AnnotationDefault: "b"}},
		"default more": {[]kubevirtv1.Network{byDefault("a", "x/b"), secondary("blue", "vlan")}, map[string]string{multus.AnnotationDefault: "x/b", multus.AnnotationNetworks: "[" + blue + "]"}},
	} {
		got, err := multus.Annotations(test.networks, "default", func(n *kubevirtv1.Network) string {
			return fmt.Sprintf("02:00:00:00:00:%02x", len(n.Name))
		})
		if err != nil || !maps.Equal(got, test.want) {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, test.want)
		}
	}
}

// TestInterface: names are KubeVirt's, which manifests of others refer to.
func TestInterface(t *testing.T) {
	for _, test := range []struct {
		network kubevirtv1.Network
		want    string
	}{
		{pod("default"), "eth0"},
		{byDefault("any", "x"), "eth0"},
		{secondary("blue", "x"), "pod16477688c0e"},
		{secondary(strings.Repeat("a", 63), "x"), "pod7d3e74a05d7"},
	} {
		if got := multus.Interface(&test.network); got != test.want {
			t.Errorf("network %s is %s, want %s", test.network.Name, got, test.want)
		}
	}
}

func TestStatus(t *testing.T) {
	many := "[" + strings.TrimSuffix(strings.Repeat(`{"interface":"a"},`, 40), ",") + "]"
	ips := `[{"interface":"a","ips":["10.0.0.1"` + strings.Repeat(`,"10.0.0.2"`, 40) + `]}]`
	for name, test := range map[string]struct {
		annotation string
		networks   int
		first      string
	}{
		"nothing":        {"", 0, ""},
		"no list":        {`{"interface":"a"}`, 0, ""},
		"Multus'":        {`[{"name":"vmlet","interface":"eth0","ips":["198.18.0.130"],"mac":"7E:AA:00:00:00:01","default":true,"dns":{}},{"name":"default/vlan","interface":"pod16477688c0e","mac":"02:00:00:00:00:04","dns":{}}]`, 2, "{eth0 7e:aa:00:00:00:01 [198.18.0.130]}"},
		"no addresses":   {`[{"interface":"a","mac":"x","ips":["x","fe80::1%eth0",""]}]`, 1, "{a  []}"},
		"InfiniBand":     {`[{"interface":"a","mac":"00:00:00:00:00:00:00:01"}]`, 1, "{a  []}"},
		"many":           {many, 32, "{a  []}"},
		"many addresses": {ips, 1, "{a  [10.0.0.1" + strings.Repeat(" 10.0.0.2", 15) + "]}"},
		"too long":       {"[" + strings.Repeat(" ", 64<<10) + "]", 0, ""},
	} {
		got := multus.Status(test.annotation)
		if len(got) != test.networks {
			t.Errorf("%s: %d networks, want %d", name, len(got), test.networks)
			continue
		}
		if len(got) > 0 && fmt.Sprint(got[0]) != test.first {
			t.Errorf("%s: got %v, want %s", name, got[0], test.first)
		}
	}
}

// FuzzStatus: nothing that a pod's annotation says goes beyond the bounds.
func FuzzStatus(f *testing.F) {
	f.Add(`[{"interface":"eth0","ips":["10.0.0.1"],"mac":"02:00:00:00:00:01"}]`)
	f.Add(`[null]`)
	f.Fuzz(func(t *testing.T, annotation string) {
		networks := multus.Status(annotation)
		if len(networks) > 32 {
			t.Errorf("%d networks", len(networks))
		}
		for _, n := range networks {
			if len(n.Addresses) > 16 || len(n.MAC) != 0 && len(n.MAC) != 17 {
				t.Errorf("got %v", n)
			}
			if _, found := multus.Find(networks, n.Interface); !found {
				t.Errorf("%q is not found", n.Interface)
			}
		}
	})
}
