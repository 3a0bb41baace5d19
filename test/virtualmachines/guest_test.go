package virtualmachines_test

import (
	"fmt"
	"image/png"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/guest"
)

const agentMachine = `
apiVersion: v1
kind: Secret
metadata: {name: agent-keys, namespace: guests}
stringData: {key: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ one@example"}
---
apiVersion: v1
kind: Secret
metadata: {name: agent-passwords, namespace: guests}
stringData: {ann: a password}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: agent, namespace: guests}
spec:
  terminationGracePeriodSeconds: 0
  accessCredentials:
  - {sshPublicKey: {source: {secret: {secretName: agent-keys}}, propagationMethod: {qemuGuestAgent: {users: [ann]}}}}
  - {userPassword: {source: {secret: {secretName: agent-passwords}}, propagationMethod: {qemuGuestAgent: {}}}}
  readinessProbe: {exec: {command: [cat, /tmp/healthy]}, periodSeconds: 1, timeoutSeconds: 30}
  livenessProbe: {guestAgentPing: {}, periodSeconds: 5, timeoutSeconds: 30, failureThreshold: 20}
  domain:
    devices: {disks: [{name: root, disk: {bus: virtio}}]}
    memory: {guest: 256Mi}
    resources: {requests: {cpu: 10m}}
    firmware:
      kernelBoot:
        kernelArgs: %s
        container: {image: %q, kernelPath: /boot/vmlinuz, initrdPath: /boot/initrd}
  volumes: [{name: root, containerDisk: {image: %q, path: /agent/disk.img}}]
`

// testGuest: what a real guest agent says is in the instance's status, it answers probes, and
// the display is VNC's.
func (v *installed) testGuest(t *testing.T) {
	must(t, v.Apply(v.ctx, fmt.Sprintf(agentMachine, guest.SmallDiskCmdline, linuxImage, linuxImage)))
	vmi := v.until(t, "agent", "one whose agent is connected", func(vmi *kubevirtv1.VirtualMachineInstance) bool {
		return isTrue(condition(vmi.Status.Conditions, kubevirtv1.ConditionAgentConnected)) && vmi.Status.GuestOSInfo != nil
	})
	if os := vmi.Status.GuestOSInfo; os.PrettyName != "Small Linux" {
		t.Errorf("the guest's system is %+v", os)
	}
	if c := condition(vmi.Status.Conditions, kubevirtv1.ConditionAgentVersionNotSupported); c != nil {
		t.Errorf("a real guest agent is not supported: %s", c.Message)
	}
	pod := v.podOf(t, vmi)
	v.until(t, "agent", "one whose users have their keys", func(vmi *kubevirtv1.VirtualMachineInstance) bool {
		return isTrue(condition(vmi.Status.Conditions, kubevirtv1.ConditionAccessCredentialsSynchronized))
	})
	v.shell(t, pod, "cat /home/ann/.ssh/authorized_keys", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ one@example")
	v.shell(t, pod, "grep ann /etc/shadow", "ann:was set to a password:")
	v.probed(t, pod)
	admin := v.visitor(t, "")
	admin.says(t)
	admin.shown(t)
	admin.put(t, agentPath("freeze"), `{"unfreezeTimeout":"3s"}`, 200, "")
	v.until(t, "agent", "frozen", func(vmi *kubevirtv1.VirtualMachineInstance) bool { return vmi.Status.FSFreezeStatus == "frozen" })
	v.until(t, "agent", "thawed by itself", func(vmi *kubevirtv1.VirtualMachineInstance) bool { return vmi.Status.FSFreezeStatus == "" })
	v.virtctlSays(t)
	v.remove(t, vmi)
	v.noInstance(t, "agent")
}

// shell types a command until it is answered: the kernel empties the serial port's buffer when
// the shell changes the terminal's mode, and with it what is typed just then.
func (v *installed) shell(t *testing.T, pod *corev1.Pod, command, answer string) {
	t.Helper()
	console, err := v.agent(t).AttachConsole(v.ctx)
	must(t, err)
	must(t, console.Send(&nodev1.AttachConsoleRequest{Name: pod.Namespace + "/" + pod.Name}))
	defer func() { _ = console.CloseSend() }()
	var log string
	v.eventually(t, func() bool {
		must(t, console.Send(&nodev1.AttachConsoleRequest{Data: []byte("\n" + command + "\n")}))
		log = v.kubectl(t, "logs", "-n", guests, pod.Name)
		return strings.Contains(log, answer)
	}, func() string { return fmt.Sprintf("%q is not answered with %q:\n%s", command, answer, log) })
}

// probed: the pod is ready when the guest's program says so, and not when it doesn't.
func (v *installed) probed(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	ready := func(want corev1.ConditionStatus) {
		t.Helper()
		v.until(t, "agent", "ready: "+string(want), func(vmi *kubevirtv1.VirtualMachineInstance) bool {
			c := condition(vmi.Status.Conditions, kubevirtv1.ConditionReady)
			return c != nil && string(c.Status) == string(want)
		})
	}
	ready(corev1.ConditionFalse)
	v.shell(t, pod, "touch /tmp/healthy; echo touch''ed", "touched")
	ready(corev1.ConditionTrue)
	v.shell(t, pod, "rm /tmp/healthy; echo remov''ed", "removed")
	ready(corev1.ConditionFalse)
}

func agentPath(sub string) string { return pathOf(vmiResource, "agent", sub) }

// says: virtctl's API passes on what the guest's agent says.
func (v *visitor) says(t *testing.T) {
	t.Helper()
	for sub, want := range map[string]string{
		"guestosinfo":    `"prettyName":"Small Linux"`,
		"userlist":       `"items":`,
		"filesystemlist": `"mountPoint":"/"`,
	} {
		if code, text := v.do(t, http.MethodGet, agentPath(sub), ""); code != http.StatusOK || !strings.Contains(strings.ReplaceAll(text, `": `, `":`), want) {
			t.Errorf("%s: %d %s, want %s", sub, code, text, want)
		}
	}
}

// shown: a display answers as a server of RFB, and there is a picture of it.
func (v *visitor) shown(t *testing.T) {
	t.Helper()
	display, code, err := v.dial(t, agentPath("vnc"))
	if err != nil {
		t.Fatalf("vnc: %d %v", code, err)
	}
	if got, err := v.read(t, display, "\n"); got != "RFB 003.008\n" {
		t.Errorf("the display says %q, %v", got, err)
	}
	if _, code, err := v.dial(t, agentPath("vnc?preserveSession=true")); code != http.StatusServiceUnavailable {
		t.Errorf("a display that another client keeps: %d %v, want 503", code, err)
	}
	display.Close()
	code, picture := v.do(t, http.MethodGet, agentPath("vnc/screenshot?moveCursor=true"), "")
	if _, err := png.Decode(strings.NewReader(picture)); err != nil {
		t.Errorf("the screenshot is no picture: %d %v", code, err)
	}
}
