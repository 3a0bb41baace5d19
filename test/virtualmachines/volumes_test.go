package virtualmachines_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/csi"
	"github.com/vmlet/vmlet/test/guest"
)

// linuxImage has a Linux that takes commands on its console, and the disk of a container disk.
const linuxImage = "vmlet.test/linux:1"

func linuxFiles(t *testing.T) map[string][]byte {
	t.Helper()
	kernel, initrd, err := guest.Linux(t.Context())
	if err != nil {
		t.Skip(err)
	}
	agent, err := guest.AgentDisk(t.Context())
	if err != nil {
		t.Skip(err)
	}
	files := map[string][]byte{"disk/disk.img": make([]byte, 1<<20), "agent/disk.img": agent}
	for name, file := range map[string]string{"boot/vmlinuz": kernel, "boot/initrd": initrd} {
		content, err := os.ReadFile(file)
		must(t, err)
		files[name] = content
	}
	return files
}

// testVolumes: a guest sees every kind of volume as a disk, writes to claims that keep it over
// a restart, also to a block device that root owns, and to others that don't.
func (v *installed) testVolumes(t *testing.T) {
	folder := t.TempDir()
	must(t, os.Mkdir(filepath.Join(folder, "claim"), 0o755))
	must(t, v.Apply(v.ctx, volumesMachine))
	v.printed(t, "volumes", kubevirtv1.StatusErrorPVCNotFound)
	device := loopDevice(t, folder)
	must(t, v.Apply(v.ctx, claim("file", "Filesystem", filepath.Join(folder, "claim"))+claim("block", "Block", device)))
	vmi := v.phase(t, "volumes", kubevirtv1.PhaseRunning)
	pod := v.podOf(t, vmi)

	log := v.ask(t, pod, "lsblk", "lsblk 7")
	for _, want := range []string{
		"disk vda 2048 sectors rw serial IMAGE", " sectors rw serial FILE", "disk vdc 131072 sectors rw serial BLOCK",
		"disk sda 40960 sectors rw", "sectors ro",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the guest does not see %q:\n%s", want, log)
		}
	}
	for disk, words := range map[string]string{"vda": "in-image", "vdb": "in-file", "vdc": "in-block"} {
		v.ask(t, pod, "write /dev/"+disk+" "+words, fmt.Sprintf("written %d bytes", len(words)+1))
	}
	v.remove(t, vmi)
	pod = v.podOf(t, v.another(t, vmi))
	for disk, words := range map[string]string{"vdb": "in-file", "vdc": "in-block"} {
		v.ask(t, pod, "cat /dev/"+disk, words)
	}
	v.ask(t, pod, "cat /dev/vda", "cat ")
	v.ask(t, pod, "echo looked", "echo looked") // after the whole answer
	if log := v.kubectl(t, "logs", "-n", guests, pod.Name); strings.Contains(log, "in-image") {
		t.Error("what was written to a container disk outlived the pod")
	}
	v.remove(t, machine(t, "volumes", "", idle))
	v.noMachine(t, "volumes")
	v.released(t, device)
}

// released waits until the kubelet has taken away the loop device that it puts over a volume with
// volumeMode Block: one that is left keeps the volume attached after the cluster.
func (v *installed) released(t *testing.T, device string) {
	t.Helper()
	v.eventually(t, func() bool {
		over, err := csi.FindLoop(device)
		must(t, err)
		if over == nil {
			return true
		}
		must(t, over.Close())
		return false
	}, func() string { return "the kubelet still holds " + device })
}

// ask types a command on a guest's console, and waits until the console's log has the answer.
func (v *installed) ask(t *testing.T, pod *corev1.Pod, command, answer string) (log string) {
	t.Helper()
	v.eventually(t, func() bool {
		return strings.Contains(v.kubectl(t, "logs", "-n", guests, pod.Name), guest.UpLine)
	}, func() string { return "the guest of pod " + pod.Name + " does not come up" })
	return v.askAgain(t, pod, command, answer)
}

// askAgain does so of a guest that came up in another pod.
func (v *installed) askAgain(t *testing.T, pod *corev1.Pod, command, answer string) (log string) {
	t.Helper()
	console, err := v.agentOn(t, v.nodeOf(t, pod)).AttachConsole(v.ctx)
	must(t, err)
	must(t, console.Send(&nodev1.AttachConsoleRequest{Name: pod.Namespace + "/" + pod.Name}))
	must(t, console.Send(&nodev1.AttachConsoleRequest{Data: []byte(command + "\n")}))
	defer func() { _ = console.CloseSend() }()
	v.eventually(t, func() bool {
		log = v.kubectl(t, "logs", "-n", guests, pod.Name)
		return strings.Contains(log, answer)
	}, func() string { return fmt.Sprintf("%q is not answered with %q:\n%s", command, answer, log) })
	return log
}

// loopDevice is a block device of 64 MiB that the machine's root owns.
func loopDevice(t *testing.T, folder string) string {
	t.Helper()
	file := filepath.Join(folder, "block.img")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Truncate(file, 64<<20))
	out, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup: %v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("losetup: %v: %s", err, out)
		}
	})
	return device
}

// claim is one of 64 MiB, with a volume of the node's for it alone.
func claim(name, mode, path string) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: 64Mi}
  accessModes: [ReadWriteOnce]
  volumeMode: %[2]s
  storageClassName: by-hand
  claimRef: {namespace: %[4]s, name: %[1]s}
  local: {path: %[3]s}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: Exists}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[1]s, namespace: %[4]s}
spec: {accessModes: [ReadWriteOnce], volumeMode: %[2]s, storageClassName: by-hand, resources: {requests: {storage: 64Mi}}}
`, name, mode, path, guests)
}

const volumesMachine = `
apiVersion: v1
kind: ConfigMap
metadata: {name: volumes, namespace: guests}
data: {key: value}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: volumes, namespace: guests}
spec:
  runStrategy: Always
  template:
    spec:
      terminationGracePeriodSeconds: 0
      domain:
        memory: {guest: 128Mi}
        resources: {requests: {cpu: 10m}}
        devices:
          disks:
          - {name: image, disk: {bus: virtio}, serial: IMAGE}
          - {name: file, disk: {bus: virtio}, serial: FILE, cache: writethrough, io: threads}
          - {name: block, disk: {bus: virtio}, serial: BLOCK, cache: none, io: native}
          - {name: empty, disk: {bus: scsi}}
          - {name: files, disk: {bus: scsi}}
          - {name: seed, cdrom: {bus: scsi}}
          - {name: token, disk: {bus: virtio}}
        firmware:
          kernelBoot:
            kernelArgs: console=ttyS0 quiet no_timer_check
            container: {image: "vmlet.test/linux:1", kernelPath: /boot/vmlinuz, initrdPath: /boot/initrd}
      volumes:
      - {name: image, containerDisk: {image: "vmlet.test/linux:1"}}
      - {name: file, persistentVolumeClaim: {claimName: file}}
      - {name: block, dataVolume: {name: block}}
      - {name: empty, emptyDisk: {capacity: 20Mi}}
      - {name: files, configMap: {name: volumes}}
      - {name: seed, cloudInitConfigDrive: {userData: "#cloud-config\n"}}
      - {name: token, serviceAccount: {serviceAccountName: default}}
`
