package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"

	"github.com/vmlet/vmlet/test/cluster/internal/pki"
)

type object = map[string]any

// onNode are folders that a node has of its own, by their name in its
// folder: where Kubernetes, containerd, CNI and vmlet keep theirs.
func onNode() map[string]string {
	return map[string]string{"run": "/run", "lib": "/var/lib", "varlog": "/var/log"}
}

// sysctls are those that the kubelet sets for the whole machine.
func sysctls() []string {
	return []string{
		"/proc/sys/vm/overcommit_memory", "/proc/sys/vm/panic_on_oom",
		"/proc/sys/kernel/panic", "/proc/sys/kernel/panic_on_oops",
		"/proc/sys/kernel/keys/root_maxkeys", "/proc/sys/kernel/keys/root_maxbytes",
	}
}

func (n *Node) folders() error {
	for _, name := range []string{"bin", "pki", "log", "etc", "cni", "sysctl", "run/lock", "run/netns", "lib/kubelet", "varlog/pods"} {
		if err := os.MkdirAll(n.path(name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// issueAll makes the control plane's certificates with all that goes by them: kubeconfigs and keys.
func (c *Cluster) issueAll() error {
	var err error
	if c.authority, err = pki.New("vmlet test cluster"); err != nil {
		return err
	}
	key, err := pki.Key()
	if err != nil {
		return err
	}
	files := map[string][]byte{"pki/ca.crt": c.authority.Certificate(), "pki/service-accounts.key": key}
	server, err := c.authority.Server("kubernetes.default.svc", "kubernetes.default", "kubernetes", "localhost",
		"127.0.0.1", c.NodeAddress(), c.net.api())
	errs := []error{addPair(files, "apiserver", server, err)}
	toKubelet, err := c.authority.Client("kube-apiserver", "system:masters")
	errs = append(errs, addPair(files, "to-kubelet", toKubelet, err))
	// Whoever has this certificate is believed whose requests they are that it passes on.
	proxies, err := pki.New("vmlet test cluster's front proxies")
	if err != nil {
		return err
	}
	files["pki/front-proxy-ca.crt"] = proxies.Certificate()
	proxy, err := proxies.Client(frontProxy, "")
	errs = append(errs, addPair(files, "front-proxy", proxy, err))
	for file, who := range map[string]struct{ user, group string }{
		"kubeconfig":                    {"admin", "system:masters"},
		"etc/controllers.kubeconfig":    {"system:kube-controller-manager", ""},
		"etc/kube-scheduler.kubeconfig": {"system:kube-scheduler", ""},
		"etc/kube-proxy.kubeconfig":     {"system:kube-proxy", ""},
		"etc/coredns.kubeconfig":        {"coredns", "system:masters"},
		"etc/storage.kubeconfig":        {"storage", "system:masters"},
		"etc/multus.kubeconfig":         {"multus", "system:masters"},
	} {
		errs = append(errs, c.addKubeconfig(files, file, who.user, who.group))
	}
	return errors.Join(append(errs, c.writeFiles(files))...)
}

// issue makes a kubelet's certificates.
func (n *Node) issue() error {
	files := make(map[string][]byte)
	kubelet, err := n.cluster.authority.Server(n.Name(), n.NodeAddress())
	return errors.Join(addPair(files, "kubelet", kubelet, err),
		n.cluster.addKubeconfig(files, "etc/kubelet.kubeconfig", "system:node:"+n.Name(), "system:nodes"), n.writeFiles(files))
}

// addPair and addKubeconfig add to files that are to be written.
func addPair(files map[string][]byte, name string, p pki.Pair, err error) error {
	files["pki/"+name+".crt"], files["pki/"+name+".key"] = p.Certificate, p.Key
	return err
}

func (c *Cluster) addKubeconfig(files map[string][]byte, file, user, group string) error {
	client, err := c.authority.Client(user, group)
	if err != nil {
		return err
	}
	files[file], err = c.authority.Kubeconfig(c.url(), client)
	return err
}

func (n *Node) writeFiles(files map[string][]byte) error {
	var errs []error
	for file, content := range files {
		errs = append(errs, os.WriteFile(n.path(file), content, 0o600))
	}
	return errors.Join(errs...)
}

// frontProxy is as whom the API server passes requests on to those that serve a part of its API.
const frontProxy = "front-proxy-client"

// configureAll writes the configuration of what all nodes have in common.
func (c *Cluster) configureAll(o Options) error {
	errs := []error{
		c.writeJSON("etc/audit.json", auditPolicy()),
		os.WriteFile(c.path("etc/Corefile"), []byte(c.corefile()), 0o644),
		os.WriteFile(c.path("etc/resolv.conf"), nil, 0o644),
	}
	if o.Multus {
		errs = append(errs, c.multusPlugins())
	}
	return errors.Join(errs...)
}

// configure writes the configuration of the node's components.
func (n *Node) configure(o Options) error {
	errs := []error{n.configureKubelet(o.Kubelet), n.writeJSON("cni/10-ptp.conflist", n.cniConfig(o.IPv6))}
	plugins := cniPlugins
	if o.Multus {
		plugins = n.cluster.path(pluginsWithMultus)
		errs = append(errs, n.configureMultus(o.IPv6))
	}
	return errors.Join(append(errs, os.WriteFile(n.path("etc/containerd.toml"), []byte(n.containerdConfig(plugins)), 0o644))...)
}

// clusterDomain is where Services' names are.
const clusterDomain = "cluster.local"

// corefile is CoreDNS' configuration: it knows the cluster, and nobody beyond.
func (c *Cluster) corefile() string {
	return fmt.Sprintf(`.:53 {
	bind %s
	errors
	kubernetes %s in-addr.arpa ip6.arpa {
		kubeconfig %s
		pods insecure
	}
}
`, c.NodeAddress(), clusterDomain, c.path("etc/coredns.kubeconfig"))
}

// dnsService has the cluster's DNS, which runs on the node itself, as Service and endpoints.
func (c *Cluster) dnsService() string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  clusterIP: %[1]s
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kube-dns, namespace: kube-system, labels: {kubernetes.io/service-name: kube-dns}}
addressType: IPv4
endpoints: [{addresses: [%[2]s]}]
ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
`, c.net.dns(), c.NodeAddress())
}

// configureKubelet writes the kubelet's configuration, with fields that are to be
// other than usual.
func (n *Node) configureKubelet(other map[string]any) error {
	config := n.kubeletConfig()
	maps.Copy(config, other)
	return n.writeJSON("etc/kubelet.json", config)
}

func (n *Node) writeJSON(file string, content object) error {
	text, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(n.path(file), text, 0o644)
}

func (n *Node) kubeletConfig() object {
	c := n.cluster
	return object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix://" + containerdSocket,
		"authentication":           object{"x509": object{"clientCAFile": c.path("pki/ca.crt")}, "anonymous": object{"enabled": false}},
		"tlsCertFile":              n.path("pki/kubelet.crt"),
		"tlsPrivateKeyFile":        n.path("pki/kubelet.key"),
		"cgroupDriver":             "cgroupfs",
		"cgroupRoot":               "/" + n.cgroup(),
		"failCgroupV1":             false,
		"failSwapOn":               false,
		"resolvConf":               c.path("etc/resolv.conf"),
		"clusterDNS":               []string{c.net.dns()},
		"clusterDomain":            clusterDomain,
		"makeIPTablesUtilChains":   false,
		// Looked at often, for devices that come and go, and written when it changes.
		"nodeStatusUpdateFrequency": "1s",
		"nodeStatusReportFrequency": "10s",
		// Images can't be pulled again, and a full disk is not this node's matter.
		"imageGCHighThresholdPercent": 100,
		"evictionHard": object{
			"memory.available": "50Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%",
		},
	}
}

// auditPolicy has every write in the log, once, without what was written.
func auditPolicy() object {
	return object{
		"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": []string{"RequestReceived"},
		"rules": []object{
			{"level": "None", "verbs": []string{"get", "list", "watch"}},
			{"level": "Metadata"},
		},
	}
}

func (n *Node) cniConfig(v6 bool) object {
	ranges, routes := [][]object{{{"subnet": n.cluster.net.pods(n.number)}}}, []object{{"dst": "0.0.0.0/0"}}
	if v6 {
		ranges, routes = append(ranges, []object{{"subnet": n.cluster.net.pods6(n.number)}}), append(routes, object{"dst": "::/0"})
	}
	return object{
		"cniVersion": "0.4.0", "name": "vmlet",
		"plugins": []object{{
			"type": "ptp", "ipMasq": false,
			"ipam": object{
				"type": "host-local", "dataDir": "/var/lib/cni/networks",
				"ranges": ranges, "routes": routes,
			},
		}},
	}
}

const containerdSocket = "/run/containerd/containerd.sock"

// containerdConfig is in version 2, which containerd 1.6 to 2 read.
// restrict_oom_score_adj is for machines whose root may not lower it.
func (n *Node) containerdConfig(plugins string) string {
	return fmt.Sprintf(`version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
`, containerdSocket, PauseImage, plugins, n.path("cni"))
}
