package kubernetes_test

import (
	"strings"
	"testing"

	"github.com/vmlet/vmlet/test/cluster"
)

// testFailing: a pod whose VM can't be run fails, and its container's last words
// say what to do.
func (d *deployment) testFailing(t *testing.T) {
	volume := func(v object) func(pod, _ object) {
		return func(pod, _ object) { spec(pod)["volumes"].([]object)[0] = v }
	}
	var pods []vmPod
	want := make(map[string][]string)
	add := func(p vmPod, words ...string) { pods = append(pods, p); want[p.name] = words }
	file := func(name, file string) vmPod { return vmPod{name: name, args: []string{"/guest/" + file}} }

	if d.hypervisor == "kvm" {
		add(file("without-kvm", "kvm.yaml"), "kvm needs devices.kubevirt.io/kvm", "add it to resources.limits")
	}
	add(file("unknown-field", "faulty.yaml"), "/guest/faulty.yaml", "cors")
	add(file("absurd", "absurd.yaml"), "memory.size: ")
	add(file("too-large", "huge.yaml"), "memory.size: 64Gi is more than the", "raise its sizeLimit, or the pod's memory limit")
	add(file("no-file", "none.yaml"), "/guest/none.yaml: no such file or directory")
	add(d.restorePod("no-image", "/saved/none"), "/saved/none: open folder: no such file or directory")
	add(vmPod{name: "nothing"}, "name the specification's file, or --restore an image")
	onDisk := file("on-disk", "emulated.yaml")
	onDisk.change = volume(object{"name": "vmlet", "emptyDir": object{}})
	add(onDisk, "/run/vmlet is not on a tmpfs", "give the volume medium Memory")
	unmounted := file("unmounted", "emulated.yaml")
	unmounted.change = func(_, container object) {
		container["volumeMounts"] = container["volumeMounts"].([]object)[1:]
	}
	add(unmounted, "mount an emptyDir volume named vmlet, with medium Memory")

	d.createVMs(t, pods...)
	for _, p := range pods {
		e := d.ended(t, p)
		if e.phase != "Failed" || e.code == 0 {
			t.Errorf("the pod %s has ended as %+v, want it to fail", p.name, e)
		}
		for _, words := range want[p.name] {
			if !strings.Contains(e.message, words) {
				t.Errorf("the pod %s says %q, want %q in it", p.name, e.message, words)
			}
		}
	}
	d.deleteVMs(t, pods...)
}

// testRefused: what would contradict the kubelet is refused, and the VM goes on.
func (d *deployment) testRefused(t *testing.T) {
	p := d.guestPod("kept", "plain.yaml")
	p.change = func(pod, _ object) { spec(pod)["restartPolicy"] = "Always" }
	d.createVMs(t, p)
	d.counted(t, p, 3)
	d.mustVmlet(t, "save", "--keep-running", p.vm(), "/saved/running")
	d.goesOn(t, p, running)
	own := "is its pod's: kubectl delete pod -n guests kept ends it, and a new pod starts or restores one"
	podsOnly := "this agent runs the VMs of pods only: make a pod whose container runs vmlet-shim pod"
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"start", p.vm()}, own},
		{[]string{"delete", p.vm()}, own},
		{[]string{"run", "mine", "--kernel", "/etc/vmlet/agent.yaml", "--memory", "64Mi"}, podsOnly},
		{[]string{"restore", "/saved/first"}, podsOnly},
		{[]string{"restore", "--name", p.vm(), "/saved/first"}, ""},
		{[]string{"save", p.vm(), "/saved/refused"}, "the pod's restartPolicy is Always, so that the kubelet would boot the guest again after the save: use a pod with restartPolicy Never, or keep the VM running (--keep-running)"},
		{[]string{"save", "--keep-running", p.vm(), "/run/vmlet/image"}, "is in the pod's volume vmlet, which is gone with the pod: choose a folder of a volume that stays"},
		{[]string{"save", "--keep-running", p.vm(), "/run/vmlet"}, "is in the pod's volume vmlet"},
		{[]string{"save", "--keep-running", p.vm(), "/guest/image"}, "read-only file system"},
		{[]string{"save", "--keep-running", p.vm(), "/saved/running"}, "/saved/running"}, // it has an image
		{[]string{"pause", "guests/nobody"}, `"guests/nobody"`},
	} {
		out, err := d.vmlet(c.args...)
		if err == nil {
			t.Errorf("vmlet %s was done: %s", strings.Join(c.args, " "), out)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("vmlet %s: %v, want %q in it", strings.Join(c.args, " "), err, c.want)
		}
	}
	if image, err := d.inPod(p, "vmlet", "image", "info", "/saved/refused"); err == nil {
		t.Errorf("a save that was refused has left %s", image)
	}
	d.goesOn(t, p, running)
	d.deleteVMs(t, p)
}

// testContainers: a container that runs as root, one beside another, and two that
// would both have the pod's VM.
func (d *deployment) testContainers(t *testing.T) {
	second := func(change func(beside object)) func(pod, container object) {
		return func(pod, container object) {
			beside := object{"name": "beside", "image": container["image"], "command": container["command"], "volumeMounts": container["volumeMounts"]}
			change(beside)
			spec(pod)["containers"] = []object{container, beside}
		}
	}
	root := d.guestPod("root", "plain.yaml")
	root.namespace = "default"
	root.change = func(pod, _ object) {
		spec(pod)["securityContext"] = object{"runAsUser": 0}
	}
	beside := d.guestPod("beside", "plain.yaml")
	beside.namespace = "default"
	beside.change = second(func(o object) {
		o["image"] = cluster.PauseImage
		delete(o, "command")
		delete(o, "volumeMounts")
	})
	two := d.guestPod("two", "emulated.yaml")
	two.namespace, two.limits = "default", nil
	two.change = second(func(object) {})

	d.createVMs(t, root, beside, two)
	for _, p := range []vmPod{root, beside} {
		d.counted(t, p, 3)
		vm := d.state(t, p.vm(), running)
		if uid := vm.GetStatus().GetProcess().GetUid(); (uid == 0) != (p.name == root.name) || vm.GetStatus().GetPod().GetContainer() != "vm" {
			t.Errorf("%s: %v", p.vm(), vm.GetStatus())
		}
	}
	d.state(t, two.vm(), running)
	var failed string
	d.eventually(t, func() bool {
		failed = d.kubectl(t, "get", "pod", two.name, "-o", "jsonpath={.status.containerStatuses[*].state.terminated.message}")
		return failed != ""
	}, func() string { return "both containers of a pod run: " + d.status(two) })
	if !strings.Contains(failed, "another vmlet-shim has this volume") {
		t.Errorf("the second container says %q", failed)
	}
	d.deleteVMs(t, root, beside, two)
}
