package virtualmachines_test

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/multus"
	"github.com/vmlet/vmlet/test/guest"
)

// testMultus: two VMs reach each other over networks of Multus beside the pods' own, over one
// that gives no addresses and over one that does; each guest has the MAC that its VM says, and
// sees no link where that is to be down.
func (v *installed) testMultus(t *testing.T) {
	must(t, v.Apply(v.ctx, bridges+
		bridgedMachine("red", "02:00:00:00:00:0a", "console=ttyS0 quiet vmlet.interval=1h", "[]", "[]")+
		bridgedMachine("green", "02:00:00:00:00:0b", guest.SmallDiskCmdline, "[{name: root, disk: {bus: virtio}}, {name: seed, disk: {bus: virtio}}]", smallVolumes)))
	redPod, greenPod := v.booted(t, "red", "count 0 "), v.booted(t, "green", "list of built-in commands")
	red := v.vmi(t, "red")

	v.ask(t, redPod, "ip", "link eth1 02:00:00:00:00:0a")
	v.ask(t, redPod, "serve 7001 red", "serve 7001")
	v.ask(t, redPod, "address eth1 203.0.113.1/24", "address eth1 203.0.113.1/24")
	v.ask(t, greenPod, "ip address add 203.0.113.2/24 dev eth1; ip link set eth1 up", "# ")
	v.ask(t, greenPod, "nc 203.0.113.1 7001 | sed s/^/without-addresses-/", "without-addresses-red")

	address := v.addressOf(t, "red", 2)
	v.ask(t, redPod, "address eth2 "+address+"/24", "address eth2 "+address)
	v.ask(t, greenPod, "ip link set eth2 up; udhcpc -i eth2 -s /run/dhcp -n -q -t 30 -T 1", "lease: "+v.addressOf(t, "green", 2)+"/24")
	v.ask(t, greenPod, "nc "+address+" 7001 | sed s/^/with-addresses-/", "with-addresses-red")
	v.reachedBeside(t, redPod)
	v.ask(t, redPod, "address eth3 198.51.100.1/24", "address eth3 198.51.100.1/24")
	v.ask(t, redPod, "carrier eth3", "carrier eth3 0")
	v.ask(t, redPod, "carrier eth1", "carrier eth1 1")

	if asked := redPod.Annotations[multus.AnnotationNetworks]; !strings.Contains(asked, `"mac":"02:00:00:00:00:0a","name":"bare","namespace":"guests"`) {
		t.Errorf("the pod asks Multus for %s", asked)
	}
	for i, s := range v.vmi(t, "red").Status.Interfaces {
		source, link := "domain, multus-status", "up"
		if i == 0 {
			source = "domain"
		}
		if s.Name == "off" {
			link = "down"
		}
		if s.InfoSource != source || s.LinkState != link || s.QueueCount != 2 || s.PodInterfaceName != multus.Interface(&red.Spec.Networks[i]) {
			t.Errorf("interface %d is reported as %+v", i, s)
		}
	}
	v.remove(t, machine(t, "red", "", idle), machine(t, "green", "", idle))
	v.noMachine(t, "red")
	v.noMachine(t, "green")
}

// booted waits until the console of a VM's guest has said something, and returns its pod. It may be a
// second one: QEMU's emulation aborts now and then while a guest with several vCPUs maps its devices
// (docs/hypervisors.md), and the VM is started again.
func (v *installed) booted(t *testing.T, name, says string) (pod *corev1.Pod) {
	t.Helper()
	v.until(t, name, "up", func(vmi *kubevirtv1.VirtualMachineInstance) bool {
		if pod = v.podOf(t, vmi); pod == nil || vmi.Status.Phase != kubevirtv1.PhaseRunning {
			return false
		}
		log, err := v.Kubectl(v.ctx, "logs", "-n", guests, pod.Name) // which may be gone meanwhile
		return err == nil && strings.Contains(log, says)
	})
	return pod
}

// reachedBeside: the guest is reached at its pod's address, too, and its interfaces have a queue
// for each vCPU.
func (v *installed) reachedBeside(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	v.ask(t, pod, "address eth0 10.0.2.2/24 10.0.2.1", "address eth0 10.0.2.2/24 10.0.2.1")
	conn, err := new(net.Dialer).DialContext(v.ctx, "tcp", net.JoinHostPort(pod.Status.PodIP, "7001"))
	must(t, err)
	defer conn.Close()
	said, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || said != "red\n" {
		t.Errorf("the guest says %q at its pod's address, %v", said, err)
	}
	for _, link := range []string{"eth0", "eth1"} {
		v.ask(t, pod, "cat /sys/class/net/"+link+"/queues/rx-1/rps_cpus", "cat 2 bytes")
		v.ask(t, pod, "echo queues of "+link, "echo queues of "+link)
	}
}

// addressOf is what an interface's network has given it.
func (v *installed) addressOf(t *testing.T, name string, number int) string {
	t.Helper()
	vmi := v.until(t, name, "told of its address", func(vmi *kubevirtv1.VirtualMachineInstance) bool {
		return len(vmi.Status.Interfaces) > number && vmi.Status.Interfaces[number].IPAddress != ""
	})
	address, err := netip.ParseAddr(vmi.Status.Interfaces[number].IPAddress)
	must(t, err)
	if !netip.MustParsePrefix("192.0.2.0/24").Contains(address) {
		t.Errorf("VM %s has %s on its network", name, address)
	}
	return address.String()
}

// bridges are networks by the bridge plug-in.
const bridges = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: bare, namespace: guests}
spec: {config: '{"cniVersion": "0.4.0", "name": "bare", "type": "bridge", "bridge": "br-bare", "ipam": {}}'}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: addressed, namespace: guests}
spec:
  config: '{"cniVersion": "0.4.0", "name": "addressed", "type": "bridge", "bridge": "br-addressed", "ipam": {"type": "host-local", "subnet": "192.0.2.0/24"}}'
`

// smallVolumes are those of a Linux that is busybox alone, with what udhcpc runs.
const smallVolumes = `
      - {name: root, containerDisk: {image: "vmlet.test/small:1"}}
      - name: seed
        cloudInitNoCloud:
          userData: |
            #!/bin/sh
            cat >/run/dhcp <<'END'
            #!/bin/sh
            [ "$1" = bound ] || exit 0
            ip address add "$ip/$mask" dev "$interface"
            echo "lease: $ip/$mask"
            END
            chmod 700 /run/dhcp`

// bridgedMachine is a VM on both, on one of them twice.
func bridgedMachine(name, mac, cmdline, disks, volumes string) string {
	return fmt.Sprintf(`
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: %[1]s, namespace: guests}
spec:
  runStrategy: Always
  template:
    spec:
      terminationGracePeriodSeconds: 0
      domain:
        cpu: {sockets: 2}
        memory: {guest: 128Mi}
        resources: {requests: {cpu: 10m}}
        devices:
          networkInterfaceMultiqueue: true
          disks: %[4]s
          interfaces:
          - {name: default, masquerade: {}}
          - {name: bare, bridge: {}, macAddress: "%[2]s"}
          - {name: addressed, bridge: {}}
          - {name: "off", bridge: {}, state: down}
        firmware:
          kernelBoot:
            kernelArgs: %[3]s no_timer_check
            container: {image: "vmlet.test/linux:1", kernelPath: /boot/vmlinuz, initrdPath: /boot/initrd}
      networks:
      - {name: default, pod: {}}
      - {name: bare, multus: {networkName: bare}}
      - {name: addressed, multus: {networkName: guests/addressed}}
      - {name: "off", multus: {networkName: bare}}
      volumes: %[5]s
`, name, mac, cmdline, disks, volumes)
}
