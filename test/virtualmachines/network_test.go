package virtualmachines_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/test/guest"
)

// configureGuest has the guest take its addresses by DHCP, and say its name on two ports.
const configureGuest = `#!/bin/sh
cat >/run/dhcp <<'END'
#!/bin/sh
[ "$1" = bound ] || exit 0
ip address add "$ip/$mask" dev "$interface"
ip link set mtu "$mtu" dev "$interface"
for r in $router; do ip route add "$r" dev "$interface"; ip route add default via "$r"; done
for d in $dns; do echo "nameserver $d"; done >/run/resolv.conf
echo "lease: $ip/$mask via $router mtu $mtu dns $dns search $search name $hostname"
END
chmod 700 /run/dhcp
ip link set lo up
ip link set eth0 up
udhcpc -i eth0 -s /run/dhcp -O search -O mtu -O hostname -n -q -t 30 -T 1
ip address add fd10:0:2::2/120 dev eth0
mkdir /run/www
hostname >/run/www/index.html
httpd -h /run/www -p 80
httpd -h /run/www -p 8080
`

// networked is a VM on its pod's network. Words are of its interface, and of its spec.
func networked(name, nic, words string) string {
	script := strings.ReplaceAll(configureGuest, "\n", "\n              ")
	return fmt.Sprintf(`
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: %[1]s, namespace: guests}
spec:
  runStrategy: Always
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 0
      %[3]s
      domain:
        memory: {guest: 128Mi}
        resources: {requests: {cpu: 10m}}
        devices:
          disks: [{name: root, disk: {bus: virtio}}, {name: seed, disk: {bus: virtio}}]
          interfaces: [{name: default, %[2]s}]
        firmware:
          kernelBoot:
            kernelArgs: %[4]s no_timer_check
            container: {image: "vmlet.test/linux:1", kernelPath: /boot/vmlinuz, initrdPath: /boot/initrd}
      networks: [{name: default, pod: {}}]
      volumes:
      - {name: root, containerDisk: {image: "vmlet.test/small:1"}}
      - name: seed
        cloudInitNoCloud:
          userData: |
              %[5]s`, name, nic, words, guest.SmallDiskCmdline, script)
}

const webService = `
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: guests}
spec: {selector: {app: web}, ports: [{port: 8000, targetPort: 8080}]}
`

// testNetwork: guests reach each other at their pods' addresses and by a Service, also the one
// that is bridged; probes reach them; names are looked up; ports are limited; and a rule on the
// node's side of a pod holds for its guest.
func (v *installed) testNetwork(t *testing.T) {
	const limited = "masquerade: {}, ports: [{port: 80}]"
	must(t, v.Apply(v.ctx, webService+
		networked("web", "masquerade: {}", "readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}")+
		networked("limited", limited, "readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 1}")+
		networked("bridged", "bridge: {}", "readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 1}")))
	names := []string{"web", "limited", "bridged"}
	addresses := make(map[string]string)
	for _, name := range names {
		vmi := v.until(t, name, "it is ready", func(vmi *kubevirtv1.VirtualMachineInstance) bool {
			return isTrue(condition(vmi.Status.Conditions, kubevirtv1.ConditionReady))
		})
		if c := condition(vmi.Status.Conditions, "NetworkLimited"); c != nil {
			t.Errorf("%s: %+v", name, c)
		}
		pod := v.podOf(t, vmi)
		if addresses[name] = vmi.Status.Interfaces[0].IPAddress; addresses[name] != pod.Status.PodIP || addresses[name] == "" {
			t.Errorf("%s: the instance's address is %q and the pod's %q", name, addresses[name], pod.Status.PodIP)
		}
		v.fetched(t, name, "http://"+addresses[name]+"/")
	}
	v.guestsReach(t, addresses)
	v.forbidden(t, addresses)
	for _, name := range names {
		v.remove(t, machine(t, name, "", idle))
		v.noMachine(t, name)
	}
}

// guestsReach has guests try each other.
func (v *installed) guestsReach(t *testing.T, addresses map[string]string) {
	t.Helper()
	web := v.podOf(t, v.vmi(t, "web"))
	log := v.kubectl(t, "logs", "-n", guests, web.Name)
	for _, want := range []string{"lease: 10.0.2.2/24 via 10.0.2.1 mtu 1500 ", " search guests.svc.cluster.local", " name web"} {
		if !strings.Contains(log, want) {
			t.Errorf("the guest was not told %q:\n%s", want, log)
		}
	}
	for url, want := range map[string]string{
		addresses["limited"] + " 80": "limited", addresses["bridged"] + " 8080": "bridged", addresses["web"] + " 80": "web",
	} {
		v.ask(t, web, fetch(url)+" | sed s/^/got-"+want+"-/", "got-"+want+"-"+want)
	}
	v.ask(t, web, "ping -c 1 -W 60 "+addresses["bridged"]+" | sed s/^/ping-/", "ping-64 bytes from")
	v.ask(t, web, "nslookup web.guests.svc.cluster.local $(sed -n s/^nameserver.//p /run/resolv.conf) | grep -c Name: | sed s/^/names-/", "names-1")
	v.byIPv6(t, web)
	bridged := v.podOf(t, v.vmi(t, "bridged"))
	v.ask(t, bridged, "ip -4 address show eth0 | sed s/^/own-/", "inet "+addresses["bridged"])
	service := v.kubectl(t, "get", "service", "-n", guests, "web", "-o", "jsonpath={.spec.clusterIP}")
	v.ask(t, bridged, fetch(service+" 8000")+" | sed s/^/by-service-/", "by-service-web")
	if _, err := answerOf("http://" + addresses["limited"] + ":8080/"); err == nil {
		t.Error("a port that is not listed leads to the guest")
	}
}

// byIPv6: a guest takes its default route from what its router advertises, and reaches another's
// listed port at its pod's IPv6 address, and that one alone.
func (v *installed) byIPv6(t *testing.T, from *corev1.Pod) {
	t.Helper()
	addresses := v.vmi(t, "limited").Status.Interfaces[0].IPAddresses
	at := slices.IndexFunc(addresses, func(text string) bool { return strings.HasPrefix(text, "fdc6:12:") })
	if at < 0 {
		t.Fatalf("the instance has no IPv6 address of its pod: %v", addresses)
	}
	v.ask(t, from, "ip -6 route | sed s/^/route-/", "route-default via fe80::")
	v.ask(t, from, "ping6 -c 1 -W 60 "+addresses[at]+" | sed s/^/ping6-/", "ping6-64 bytes from")
	v.ask(t, from, fetch(addresses[at]+" 80")+" | sed s/^/by-ipv6-/", "by-ipv6-limited")
	v.ask(t, from, "nc "+addresses[at]+" 8080 </dev/null || echo closed6-$?", "closed6-1")
}

// forbidden: what engines of NetworkPolicies do is to filter a pod's packets on the node.
func (v *installed) forbidden(t *testing.T, addresses map[string]string) {
	t.Helper()
	const table = "vmlet-test"
	nft := func(words ...string) {
		t.Helper()
		if out, err := v.InNode(v.ctx, append([]string{"nft"}, words...)...); err != nil {
			t.Fatalf("nft %s: %v: %s", words, err, out)
		}
	}
	nft("add table ip " + table + "; add chain ip " + table + " f { type filter hook forward priority -10; }; add rule ip " + table + " f ip daddr " + addresses["web"] + " tcp dport 80 reject")
	defer nft("delete table ip " + table)
	bridged := v.podOf(t, v.vmi(t, "bridged"))
	v.ask(t, bridged, "nc "+addresses["web"]+" 80 </dev/null || echo rule-$?", "rule-1")
	v.ask(t, bridged, fetch(addresses["web"]+" 8080")+" | sed s/^/other-port-/", "other-port-web")
}

// fetch is a guest's command that prints a page. (busybox' wget looks "http" up by means that
// its static build lacks.)
func fetch(at string) string { return `printf "GET / HTTP/1.0\r\n\r\n" | nc ` + at }

// fetched waits until a guest answers with its name.
func (v *installed) fetched(t *testing.T, name, url string) {
	t.Helper()
	var got string
	var err error
	v.eventually(t, func() bool {
		got, err = answerOf(url)
		return err == nil
	}, func() string { return fmt.Sprintf("%s: %v", url, err) })
	if got != name+"\n" {
		t.Errorf("%s: %q, want %q", url, got, name)
	}
}

// answerOf asks from this machine.
func answerOf(url string) (string, error) {
	client := http.Client{Timeout: 10 * time.Second}
	answer, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	return string(body), err
}
