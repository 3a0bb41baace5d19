package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/vmlet/vmlet/test/cluster/internal/pki"
)

type object = map[string]any

// onNode are folders that the node has of its own, by their name in the
// cluster's folder: where Kubernetes, containerd, CNI and vmlet keep theirs.
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

func (c *Cluster) folders() error {
	for _, name := range []string{"bin", "pki", "log", "etc", "cni", "sysctl", "run/lock", "run/netns", "lib/kubelet", "varlog/pods"} {
		if err := os.MkdirAll(c.path(name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// certificates are made with all that goes by them: kubeconfigs and keys.
func (c *Cluster) certificates() error {
	authority, err := pki.New("vmlet test cluster")
	if err != nil {
		return err
	}
	key, err := pki.Key()
	if err != nil {
		return err
	}
	files := map[string][]byte{"pki/ca.crt": authority.Certificate(), "pki/service-accounts.key": key}
	pair := func(name string, p pki.Pair, err error) error {
		files["pki/"+name+".crt"], files["pki/"+name+".key"] = p.Certificate, p.Key
		return err
	}
	server, err := authority.Server("kubernetes.default.svc", "kubernetes.default", "kubernetes", "localhost",
		"127.0.0.1", c.net.node(), c.net.api())
	errs := []error{pair("apiserver", server, err)}
	kubelet, err := authority.Server(NodeName, c.net.node())
	errs = append(errs, pair("kubelet", kubelet, err))
	toKubelet, err := authority.Client("kube-apiserver", "system:masters")
	errs = append(errs, pair("to-kubelet", toKubelet, err))
	// Whoever has this certificate is believed whose requests they are that it passes on.
	proxies, err := pki.New("vmlet test cluster's front proxies")
	if err != nil {
		return err
	}
	files["pki/front-proxy-ca.crt"] = proxies.Certificate()
	proxy, err := proxies.Client(frontProxy, "")
	errs = append(errs, pair("front-proxy", proxy, err))
	for file, who := range map[string]struct{ user, group string }{
		"kubeconfig":                    {"admin", "system:masters"},
		"etc/controllers.kubeconfig":    {"system:kube-controller-manager", ""},
		"etc/kube-scheduler.kubeconfig": {"system:kube-scheduler", ""},
		"etc/kubelet.kubeconfig":        {"system:node:" + NodeName, "system:nodes"},
		"etc/kube-proxy.kubeconfig":     {"system:kube-proxy", ""},
		"etc/coredns.kubeconfig":        {"coredns", "system:masters"},
		"etc/storage.kubeconfig":        {"storage", "system:masters"},
		"etc/multus.kubeconfig":         {"multus", "system:masters"},
	} {
		client, err := authority.Client(who.user, who.group)
		if err != nil {
			return err
		}
		if files[file], err = authority.Kubeconfig(c.url(), client); err != nil {
			return err
		}
	}
	for file, content := range files {
		errs = append(errs, os.WriteFile(c.path(file), content, 0o600))
	}
	return errors.Join(errs...)
}

// frontProxy is as whom the API server passes requests on to those that serve a part of its API.
const frontProxy = "front-proxy-client"

// configure writes the components' configuration.
func (c *Cluster) configure(o Options) error {
	errs := []error{c.configureKubelet(o.Kubelet)}
	for file, content := range map[string]object{"etc/audit.json": auditPolicy(), "cni/10-ptp.conflist": c.cniConfig(o.IPv6)} {
		errs = append(errs, c.writeJSON(file, content))
	}
	plugins := cniPlugins
	if o.Multus {
		plugins = c.path("bin/cni")
		errs = append(errs, c.configureMultus(plugins, o.IPv6))
	}
	errs = append(errs, os.WriteFile(c.path("etc/containerd.toml"), []byte(c.containerdConfig(plugins)), 0o644),
		os.WriteFile(c.path("etc/Corefile"), []byte(c.corefile()), 0o644),
		os.WriteFile(c.path("etc/resolv.conf"), nil, 0o644))
	return errors.Join(errs...)
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
`, c.net.node(), clusterDomain, c.path("etc/coredns.kubeconfig"))
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
`, c.net.dns(), c.net.node())
}

// configureKubelet writes the kubelet's configuration, with fields that are to be
// other than usual.
func (c *Cluster) configureKubelet(other map[string]any) error {
	config := c.kubeletConfig()
	maps.Copy(config, other)
	return c.writeJSON("etc/kubelet.json", config)
}

func (c *Cluster) writeJSON(file string, content object) error {
	text, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(c.path(file), text, 0o644)
}

func (c *Cluster) kubeletConfig() object {
	return object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix://" + containerdSocket,
		"authentication":           object{"x509": object{"clientCAFile": c.path("pki/ca.crt")}, "anonymous": object{"enabled": false}},
		"tlsCertFile":              c.path("pki/kubelet.crt"),
		"tlsPrivateKeyFile":        c.path("pki/kubelet.key"),
		"cgroupDriver":             "cgroupfs",
		"cgroupRoot":               "/" + c.name,
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

func (c *Cluster) cniConfig(v6 bool) object {
	ranges, routes := [][]object{{{"subnet": c.net.pods()}}}, []object{{"dst": "0.0.0.0/0"}}
	if v6 {
		ranges, routes = append(ranges, []object{{"subnet": c.net.pods6()}}), append(routes, object{"dst": "::/0"})
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
func (c *Cluster) containerdConfig(plugins string) string {
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
`, containerdSocket, PauseImage, plugins, c.path("cni"))
}

func (c *Cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.dir}, elem...)...)
}
