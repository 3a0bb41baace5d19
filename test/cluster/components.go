package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/test/guest"
)

// The components of a cluster, as their logs are named.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Containerd        = "containerd"
	Kubelet           = "kubelet"
	Proxy             = "kube-proxy"
	DNS               = "coredns"
)

// cniPlugins is where Debian has them.
const cniPlugins = "/usr/lib/cni"

// programs says where components' programs are, by name.
type programs map[string]string

// findPrograms finds all that a cluster is made of, or says what is missing.
func findPrograms() (programs, error) {
	found := make(programs)
	for _, name := range []string{Etcd, APIServer, ControllerManager, Scheduler, Kubelet, Proxy, DNS, "kubectl"} {
		if err := found.find("kubernetes", name); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{LocalPath, LoopProvisioner, LoopResizer} {
		if err := found.find("storage", name); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{Containerd, "ctr", "runc", "go", "nsenter", "nft"} {
		path, err := exec.LookPath(name)
		if err != nil {
			return nil, missing(name)
		}
		found[name] = path
	}
	if _, err := os.Stat(filepath.Join(cniPlugins, "ptp")); err != nil {
		return nil, missing(cniPlugins + "/ptp")
	}
	return found, nil
}

// find finds a program in a folder of the cache, by what the link leads to now: a newer build must
// not come in between.
func (p programs) find(folder, name string) error {
	cache, err := guest.CacheDir()
	if err != nil {
		return err
	}
	path, err := filepath.EvalSymlinks(filepath.Join(cache, folder, name))
	if err != nil {
		return missing(filepath.Join(cache, folder, name))
	}
	p[name] = path
	return nil
}

func missing(what string) error { return fmt.Errorf("%s is not there: run test/setup cluster", what) }

// Unfit says why no cluster can be started here; nil: one can.
func Unfit() error {
	if os.Geteuid() != 0 {
		return errors.New("a cluster needs root: containerd and the kubelet make containers")
	}
	if _, err := findPrograms(); err != nil {
		return err
	}
	if err := tryNamespaces(); err != nil {
		return err
	}
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		if err := unix.Access(h.path, unix.W_OK); err != nil {
			return fmt.Errorf("a cluster makes cgroups, and none can be made in %s: %w", h.path, err)
		}
	}
	return nil
}

// tryNamespaces says why a node can't have namespaces of its own: root in a
// container may not be able to make any, and what enters one from a chroot, as
// programs for a container do, ends up in the machine's root folder.
func tryNamespaces() error {
	var own unix.Stat_t
	if err := unix.Stat("/", &own); err != nil {
		return err
	}
	try := exec.Command("nsenter", "--mount=/proc/self/ns/mnt", "--", "stat", "--format=%d:%i", "/")
	try.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	out, err := try.Output()
	if err != nil {
		return fmt.Errorf("a cluster's node has namespaces of its own, and none can be made here: %w", err)
	}
	if strings.TrimSpace(string(out)) != fmt.Sprintf("%d:%d", own.Dev, own.Ino) {
		return errors.New("a cluster can't be in a chroot: enter it with pivot_root, or a container")
	}
	return nil
}

// arguments are a component's command line, without its program.
func (n *Node) arguments(component string) []string {
	c := n.cluster
	switch component {
	case Etcd:
		return []string{"--data-dir=" + c.path("lib/etcd"), "--unsafe-no-fsync", "--logger=zap", "--log-level=warn"}
	case APIServer:
		return c.apiServer()
	case ControllerManager:
		return []string{
			"--kubeconfig=" + c.path("etc/controllers.kubeconfig"), "--bind-address=127.0.0.1", "--leader-elect=false",
			"--use-service-account-credentials", "--root-ca-file=" + c.path("pki/ca.crt"),
			"--service-account-private-key-file=" + c.path("pki/service-accounts.key"),
		}
	case Scheduler:
		return []string{"--kubeconfig=" + c.path("etc/kube-scheduler.kubeconfig"), "--bind-address=127.0.0.1", "--leader-elect=false"}
	case Containerd:
		return []string{"--config=" + n.path("etc/containerd.toml")}
	case Kubelet:
		return []string{
			"--config=" + n.path("etc/kubelet.json"), "--kubeconfig=" + n.path("etc/kubelet.kubeconfig"),
			"--root-dir=/var/lib/kubelet", "--hostname-override=" + n.Name(), "--node-ip=" + n.NodeAddress(),
		}
	case Proxy:
		// The bounds of connection tracking are the whole machine's: they stay as they are.
		return []string{
			"--kubeconfig=" + c.path("etc/kube-proxy.kubeconfig"), "--proxy-mode=nftables", "--hostname-override=" + n.Name(),
			"--cluster-cidr=" + c.net.pods(n.number), "--healthz-bind-address=127.0.0.1:10256", "--metrics-bind-address=127.0.0.1:10249",
			"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s",
		}
	case DNS:
		return []string{"-conf=" + c.path("etc/Corefile")}
	case MetricsServer:
		return c.metricsArguments()
	}
	return n.storageArguments(component)
}

// apiServer is at the port that the service "kubernetes" has: kubelet and proxy reach it
// before there is a proxy.
func (c *Cluster) apiServer() []string {
	return []string{
		"--etcd-servers=http://127.0.0.1:2379", "--secure-port=443", "--advertise-address=" + c.NodeAddress(),
		"--service-cluster-ip-range=" + c.net.services(),
		"--tls-cert-file=" + c.path("pki/apiserver.crt"), "--tls-private-key-file=" + c.path("pki/apiserver.key"),
		"--client-ca-file=" + c.path("pki/ca.crt"),
		"--kubelet-client-certificate=" + c.path("pki/to-kubelet.crt"), "--kubelet-client-key=" + c.path("pki/to-kubelet.key"),
		"--kubelet-certificate-authority=" + c.path("pki/ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.path("pki/service-accounts.key"),
		"--service-account-signing-key-file=" + c.path("pki/service-accounts.key"),
		"--requestheader-client-ca-file=" + c.path("pki/front-proxy-ca.crt"), "--requestheader-allowed-names=" + frontProxy,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--enable-aggregator-routing",
		"--proxy-client-cert-file=" + c.path("pki/front-proxy.crt"), "--proxy-client-key-file=" + c.path("pki/front-proxy.key"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged",
		"--audit-policy-file=" + c.path("etc/audit.json"), "--audit-log-path=" + c.AuditLog(),
	}
}

func (n *Node) startComponents(names ...string) error {
	init, err := n.running()
	if err != nil {
		return err
	}
	for _, name := range names {
		args := append([]string{n.cluster.programs[name]}, n.arguments(name)...)
		if err := init.start(name, n.LogFile(name), args...); err != nil {
			return err
		}
	}
	return nil
}
