package kubernetes_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/guest"
)

// pattern is what the guest "filled" touches of its memory.
func pattern() guest.Pattern {
	return guest.Pattern{Address: guest.PatternMin, MiB: 96, Seed: 4711, Words: 4}
}

// guests puts kernels and specifications into a ConfigMap in both namespaces that
// pods with VMs are in; pods have it at /guest.
func (d *deployment) guests(t *testing.T) {
	t.Helper()
	kernels, files := make(map[string]string), make(map[string]string)
	for name, o := range map[string]guest.PVHOptions{
		"plain": {}, "stubborn": {IgnorePowerButton: true}, "filled": {Memory: pattern()},
	} {
		elf, err := guest.PVH(o)
		must(t, err)
		kernels[name] = base64.StdEncoding.EncodeToString(elf)
		files[name+".yaml"] = specification(d.hypervisor, "128Mi", name)
	}
	files["cloud.yaml"] = "vmm: cloud-hypervisor\n" + specification(d.hypervisor, "128Mi", "plain")
	files["kvm.yaml"] = specification("kvm", "32Mi", "plain")
	files["emulated.yaml"] = specification("emulation", "32Mi", "plain")
	files["other-name.yaml"] = "name: other\n" + specification("emulation", "32Mi", "plain")
	files["faulty.yaml"] = "memory: {size: 64Mi}\ncpu: {cors: 2}\nboot: {kernel: {path: /guest/plain}}\n"
	files["absurd.yaml"] = specification("emulation", "3Ki", "plain")
	files["huge.yaml"] = specification("emulation", "64Gi", "plain")
	for _, namespace := range []string{"guests", "default"} {
		text, err := json.Marshal(object{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "guest", "namespace": namespace},
			"binaryData": kernels, "data": files,
		})
		must(t, err)
		must(t, d.Apply(d.ctx, string(text)))
	}
}

func specification(hypervisor, memory, kernel string) string {
	return fmt.Sprintf("hypervisor: %s\nmemory: {size: %s}\nboot: {kernel: {path: /guest/%s}}\n", hypervisor, memory, kernel)
}

// vmPod is a pod with a VM.
type vmPod struct {
	namespace, name string // namespace: "guests" if empty
	// args of vmlet-shim pod.
	args []string
	// limits beside memory's, which is enough if there is none.
	limits map[string]string
	// change makes it another than usual.
	change func(pod, container object)
}

// guestPod is one of a specification in /guest, with what its hypervisor needs.
func (d *deployment) guestPod(name, file string) vmPod {
	return vmPod{name: name, args: []string{"/guest/" + file}, limits: d.device()}
}

// device is what guests need that have no certain hypervisor.
func (d *deployment) device() map[string]string {
	if d.hypervisor == "kvm" {
		return map[string]string{kvm: "1"}
	}
	return nil
}

func (p vmPod) in() string {
	if p.namespace == "" {
		return "guests"
	}
	return p.namespace
}

// vm is the VM's name in the agent's API.
func (p vmPod) vm() string { return p.in() + "/" + p.name }

// object is the pod's: it may do nothing but run a VM.
func (p vmPod) object() object {
	limits := map[string]string{"memory": "320Mi", "cpu": "400m"} // a guest that counts would take all of a CPU
	maps.Copy(limits, p.limits)
	container := object{
		"name": "vm", "image": vmletImage, "command": append([]string{"vmlet-shim", "pod"}, p.args...),
		"resources": object{"limits": limits, "requests": object{"cpu": "10m"}},
		"securityContext": object{
			"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": object{"drop": []string{"ALL"}},
		},
		"volumeMounts": []object{
			{"name": "vmlet", "mountPath": "/run/vmlet"},
			{"name": "guest", "mountPath": "/guest"},
		},
	}
	volumes := []object{
		{"name": "vmlet", "emptyDir": object{"medium": "Memory"}},
		{"name": "guest", "configMap": object{"name": "guest"}},
	}
	if p.in() == "guests" {
		volumes = append(volumes, object{"name": "saved", "persistentVolumeClaim": object{"claimName": "saved"}})
		container["volumeMounts"] = append(container["volumeMounts"].([]object), object{"name": "saved", "mountPath": "/saved"})
	}
	pod := object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": p.name, "namespace": p.in()},
		"spec": object{
			"restartPolicy": "Never", "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 10, "dnsPolicy": "Default",
			"securityContext": object{
				"runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": true, "seccompProfile": object{"type": "RuntimeDefault"},
			},
			"containers": []object{container},
			"volumes":    volumes,
		},
	}
	if p.change != nil {
		p.change(pod, container)
	}
	return pod
}

// spec is a pod's.
func spec(pod object) object { return pod["spec"].(object) }

// createVMs makes pods and waits for none.
func (d *deployment) createVMs(t *testing.T, pods ...vmPod) {
	t.Helper()
	items := make([]object, 0, len(pods))
	for _, p := range pods {
		items = append(items, p.object())
	}
	text, err := json.Marshal(object{"apiVersion": "v1", "kind": "List", "items": items})
	must(t, err)
	must(t, d.Apply(d.ctx, string(text)))
}

// deleteVMs has pods end, and waits for none.
func (d *deployment) deleteVMs(t *testing.T, pods ...vmPod) {
	t.Helper()
	names := make(map[string][]string)
	for _, p := range pods {
		names[p.in()] = append(names[p.in()], p.name)
	}
	for namespace, all := range names {
		d.kubectl(t, append([]string{"delete", "pod", "-n", namespace, "--ignore-not-found", "--wait=false"}, all...)...)
	}
}

// console is what the guest has printed: whole lines.
func (d *deployment) console(p vmPod) []string {
	out, err := d.Kubectl(d.ctx, "logs", "-n", p.in(), p.name)
	if err != nil {
		return nil // not started yet
	}
	return wholeLines(out)
}

func wholeLines(text string) []string {
	lines := strings.Split(text, "\n")
	return lines[:len(lines)-1]
}

// followed is the console for who waits for something there: it comes a moment
// later than it is printed.
func (d *deployment) followed(t *testing.T, p vmPod) []string {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	// One that was followed to its end, or before its pod was there, begins anew.
	a := d.logs[p.vm()]
	if a == nil || a.ended() {
		a = d.attach(t, "logs", "-f", "-n", p.in(), p.name)
		d.logs[p.vm()] = a
	}
	return wholeLines(a.said.String())
}

// counts are the numbers that a guest has counted.
func counts(console []string) []int {
	line := regexp.MustCompile(`^` + guest.CountPrefix + `(\d+)\r?$`)
	var found []int
	for _, l := range console {
		if m := line.FindStringSubmatch(l); m != nil {
			n, err := strconv.Atoi(m[1])
			if err == nil {
				found = append(found, n)
			}
		}
	}
	return found
}

// counted waits until a guest has counted some more, and returns its last count.
func (d *deployment) counted(t *testing.T, p vmPod, more int) int {
	t.Helper()
	from := len(counts(d.console(p)))
	var all []string
	d.eventually(t, func() bool {
		all = d.followed(t, p)
		return len(counts(all)) >= from+more
	}, func() string {
		return fmt.Sprintf("the guest of %s doesn't count: %q\n%s", p.vm(), last(all, 20), d.status(p))
	})
	found := counts(all)
	return found[len(found)-1]
}

// says waits for a line of a guest's.
func (d *deployment) says(t *testing.T, p vmPod, line string) {
	t.Helper()
	var all []string
	d.eventually(t, func() bool {
		all = d.followed(t, p)
		for _, l := range all {
			if strings.TrimRight(l, "\r") == line {
				return true
			}
		}
		return false
	}, func() string { return fmt.Sprintf("the guest of %s doesn't say %q: %q", p.vm(), line, last(all, 20)) })
}

func last(lines []string, n int) []string { return lines[max(0, len(lines)-n):] }

// status is a pod's, for a complaint.
func (d *deployment) status(p vmPod) string {
	out, err := d.Kubectl(d.ctx, "get", "pod", "-n", p.in(), p.name, "-o", "jsonpath={.status}")
	if err != nil {
		return err.Error()
	}
	return out
}

// end is how a pod's container has ended.
type end struct {
	phase    string
	code     int
	message  string
	finished string
}

// ended waits until a pod's container has ended.
func (d *deployment) ended(t *testing.T, p vmPod) end {
	t.Helper()
	var e end
	d.eventually(t, func() bool {
		out := d.kubectl(t, "get", "pod", "-n", p.in(), p.name, "-o", "json")
		var pod struct {
			Status struct {
				Phase             string
				ContainerStatuses []struct {
					State struct {
						Terminated *struct {
							ExitCode            int
							Message, FinishedAt string
						}
					}
				}
			}
		}
		must(t, json.Unmarshal([]byte(out), &pod))
		e = end{phase: pod.Status.Phase}
		if e.phase != "Succeeded" && e.phase != "Failed" {
			return false
		}
		for _, s := range pod.Status.ContainerStatuses {
			if s.State.Terminated != nil {
				e.code, e.message, e.finished = s.State.Terminated.ExitCode, s.State.Terminated.Message, s.State.Terminated.FinishedAt
				return true
			}
		}
		return false
	}, func() string { return fmt.Sprintf("the pod %s does not end: %s", p.vm(), d.status(p)) })
	return e
}

// inPod runs a program in a pod's container.
func (d *deployment) inPod(p vmPod, args ...string) (string, error) {
	return d.Exec(d.ctx, cluster.Pod{Namespace: p.in(), Name: p.name}, args...)
}
