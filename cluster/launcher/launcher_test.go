package launcher_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/launcher"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/launch"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/spec"
)

const (
	mib    = 1 << 20
	simple = "../testdata/manifests/vm-container-disk.yaml"
)

func pod(t testing.TB, in convert.Input) *corev1.Pod {
	t.Helper()
	p, err := launcher.Pod(in)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// changed is the simple manifest's instance with more YAML laid over its spec.
func changed(t testing.TB, text string) convert.Input {
	t.Helper()
	in := read(t, simple)
	if strings.Contains(text, "volumes:") {
		in.Instance.Spec.Volumes, in.Instance.Spec.Domain.Devices.Disks = nil, nil
	}
	if err := yaml.UnmarshalStrict([]byte(text), &in.Instance.Spec); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return in
}

// TestPodName: one name for each UID, that a VM and a label can have.
func TestPodName(t *testing.T) {
	seen := make(map[string]bool)
	for _, name := range []string{"web-1", "web.1", strings.Repeat("a", 253), strings.Repeat("a.", 100) + "a", strings.Repeat("a", 37) + "-b"} {
		for _, uid := range []types.UID{"1", "2", "5d307ca9-b3ef-428c-8861-06e72d69f223"} {
			vmi := new(kubevirtv1.VirtualMachineInstance)
			vmi.Name, vmi.UID = name, uid
			got := launcher.PodName(vmi)
			if faults := validation.IsDNS1123Label(got); len(faults) > 0 {
				t.Errorf("%.20s: %s: %s", name, got, faults)
			}
			key := got + name
			if seen[key] || launcher.PodName(vmi) != got || !strings.HasPrefix(got, "virt-launcher-"+name[:1]) {
				t.Errorf("%.20s of UID %s is %s", name, uid, got)
			}
			seen[key] = true
		}
	}
}

// TestForeignLabels: an instance's labels that say what a pod is are not its pod's.
func TestForeignLabels(t *testing.T) {
	in := read(t, simple)
	in.Instance.Labels = map[string]string{contract.LabelAttachedTo: "another's", contract.LabelApp: "mine", "tier": "front"}
	p, err := launcher.Pod(in)
	if err != nil {
		t.Fatal(err)
	}
	all := p.Labels
	for key, want := range map[string]string{contract.LabelAttachedTo: "", contract.LabelApp: contract.LabelAppLauncher, "tier": "front"} {
		if all[key] != want {
			t.Errorf("label %s is %q, want %q", key, all[key], want)
		}
	}
}

// TestStandsBy: the pod of a VM that stands by is never ready, and any other's is as its containers are.
func TestStandsBy(t *testing.T) {
	for label, want := range map[string]int{"Hibernated": 1, "": 0} {
		in := read(t, simple)
		in.Instance.Labels = map[string]string{contract.LabelPoolStandby: label}
		p, err := launcher.Pod(in)
		if err != nil {
			t.Fatal(err)
		}
		if gates := p.Spec.ReadinessGates; len(gates) != want || want == 1 && gates[0].ConditionType != contract.ConditionServes {
			t.Errorf("label %q: readiness gates %+v, want %d", label, gates, want)
		}
	}
}

func TestInstanceID(t *testing.T) {
	long := strings.Repeat("a", 64)
	for name, want := range map[string]string{
		"web-1":   "web-1",
		long[:63]: long[:63],
		// printf %s aaaa… | sha1sum
		long: long[:54] + "-0098ba82",
	} {
		if got := launcher.InstanceID(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// TestResources: what the instance says and what follows from its guest, in MiB; -1: none.
func TestResources(t *testing.T) {
	overhead, err := launcher.Overhead(read(t, simple))
	if err != nil {
		t.Fatal(err)
	}
	own := overhead / mib
	for _, c := range []struct {
		name, spec                                   string
		cpu, cpuLimit                                string
		memory, memoryLimit, storage, ephemeralLimit int64
	}{
		{"nothing said", "", "200m", "", 1024 + own, -1, 50, -1},
		{"requests", "{requests: {memory: 512Mi, cpu: 1500m}}", "1500m", "", 512 + own, -1, 50, -1},
		{"limits", "{limits: {memory: 1Gi, cpu: 100m}}", "100m", "100m", 1024 + own, 1024 + own, 50, -1},
		{"limit below the share of a CPU", "{limits: {cpu: 100m}}", "100m", "100m", 1024 + own, -1, 50, -1},
		{"limit below the guest", "{limits: {memory: 1000Mi}}", "200m", "", 1024 + own, 1024 + own, 50, -1},
		{"storage", "{requests: {ephemeral-storage: 1Gi}, limits: {ephemeral-storage: 2Gi}}", "200m", "", 1024 + own, -1, 1024 + 50, 2048 + 50},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := read(t, simple)
			if err := yaml.UnmarshalStrict([]byte(c.spec), &in.Instance.Spec.Domain.Resources); err != nil {
				t.Fatal(err)
			}
			r := pod(t, in).Spec.Containers[0].Resources
			for _, q := range []struct {
				what string
				list corev1.ResourceList
				name corev1.ResourceName
				want int64
			}{
				{"requested", r.Requests, corev1.ResourceMemory, c.memory}, {"allowed", r.Limits, corev1.ResourceMemory, c.memoryLimit},
				{"requested", r.Requests, corev1.ResourceEphemeralStorage, c.storage}, {"allowed", r.Limits, corev1.ResourceEphemeralStorage, c.ephemeralLimit},
			} {
				got, there := q.list[q.name]
				if !there && q.want >= 0 || there && got.Value() != q.want*mib {
					t.Errorf("%s of %s %s, want %d MiB", got.String(), q.name, q.what, q.want)
				}
			}
			if got := r.Requests.Cpu().String(); got != c.cpu {
				t.Errorf("%s CPUs requested, want %s", got, c.cpu)
			}
			if got, there := r.Limits[corev1.ResourceCPU]; there != (c.cpuLimit != "") || there && got.String() != c.cpuLimit {
				t.Errorf("%s CPUs allowed, want %s", got.String(), c.cpuLimit)
			}
		})
	}
}

// TestMemoryOvercommit: a pod requests 100/overcommit of the guest's 1 GiB, never more than its limit.
func TestMemoryOvercommit(t *testing.T) {
	for _, c := range []struct {
		percent int
		limit   string
		want    int64 // MiB
	}{{100, "", 1024}, {200, "", 512}, {50, "", 2048}, {10, "", 10240}, {50, "1Gi", 1024}, {50, "4Gi", 2048}, {200, "1Gi", 512}} {
		in := read(t, simple)
		in.Configuration.MemoryOvercommit = c.percent
		if c.limit != "" {
			in.Instance.Spec.Domain.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(c.limit)}
		}
		overhead, err := launcher.Overhead(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := pod(t, in).Spec.Containers[0].Resources.Requests.Memory().Value(); got != c.want*mib+overhead {
			t.Errorf("%d %% with the limit %q: %d bytes, want %d MiB and %d", c.percent, c.limit, got, c.want, overhead)
		}
	}
}

// TestGuaranteed: limits of both, and no other requests, make the pod Guaranteed.
func TestGuaranteed(t *testing.T) {
	for _, c := range []struct {
		resources string
		emulation bool
		want      bool
	}{
		{"{limits: {cpu: 2, memory: 1Gi}}", false, true},
		{"{requests: {cpu: 2, memory: 1024M}, limits: {cpu: 2, memory: 1024M}}", false, true},
		{"{requests: {cpu: 2000m, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}", true, true},
		{"{requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}", false, false},
		{"{limits: {memory: 1Gi}}", false, false},
	} {
		in := changed(t, "domain: {resources: "+c.resources+", devices: {}}")
		in.Configuration.UseEmulation = c.emulation
		got := true
		p := pod(t, in)
		for _, container := range append(p.Spec.InitContainers, p.Spec.Containers...) {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				request, limit := container.Resources.Requests[name], container.Resources.Limits[name]
				got = got && !limit.IsZero() && request.Cmp(limit) == 0
			}
		}
		if got != c.want {
			t.Errorf("%s, emulation %v: the pod is guaranteed: %v, want %v", c.resources, c.emulation, got, c.want)
		}
	}
}

// TestLimitsOfNamespace: where pods need limits a VM's containers have them, the VM's own as
// KubeVirt gives them.
func TestLimitsOfNamespace(t *testing.T) {
	for _, c := range []struct{ resources, cpu string }{
		{"{}", "2"}, {"{requests: {cpu: 3}}", "3"}, {"{limits: {cpu: 500m, memory: 1Gi}}", "500m"},
	} {
		in := changed(t, "domain: {cpu: {sockets: 2, cores: 1, threads: 1}, resources: "+c.resources+", devices: {}}")
		in.LimitCPU, in.LimitMemory = true, true
		p := pod(t, in)
		for _, container := range append(p.Spec.InitContainers, p.Spec.Containers...) {
			if limits := container.Resources.Limits; limits.Cpu().IsZero() || limits.Memory().IsZero() {
				t.Errorf("%s: container %s has the limits %v", c.resources, container.Name, limits)
			}
		}
		r := p.Spec.Containers[0].Resources
		if got := r.Limits.Cpu().String(); got != c.cpu {
			t.Errorf("%s: %s CPUs allowed, want %s", c.resources, got, c.cpu)
		}
		want := 2 * r.Requests.Memory().Value()
		if _, given := in.Instance.Spec.Domain.Resources.Limits[corev1.ResourceMemory]; given {
			want /= 2 // the limit is the guest's memory, and so is the request
		}
		if got := r.Limits.Memory().Value(); got != want {
			t.Errorf("%s: %d bytes allowed, want %d", c.resources, got, want)
		}
	}
}

// TestInitrdAlone: no container hands out what nothing boots.
func TestInitrdAlone(t *testing.T) {
	p := pod(t, changed(t, "domain: {firmware: {kernelBoot: {container: {image: a, initrdPath: /i, imagePullSecret: s}}}, devices: {}}"))
	for _, c := range p.Spec.InitContainers {
		if strings.HasPrefix(c.Name, "kernel-boot") {
			t.Errorf("container %s hands out %v", c.Name, c.Command)
		}
	}
	if slices.Contains(p.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: "s"}) {
		t.Errorf("pull secrets %v, want none of the image with the initrd", p.Spec.ImagePullSecrets)
	}
}

// TestDedicated: all containers have requests equal to limits, so that the pod's quality of
// service is Guaranteed, and the VM's has whole CPUs.
func TestDedicated(t *testing.T) {
	p := pod(t, changed(t, "domain: {cpu: {dedicatedCpuPlacement: true, sockets: 2}, devices: {}}"))
	for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
			if request.IsZero() || request.Cmp(limit) != 0 {
				t.Errorf("%s requests %s of %s and is allowed %s", c.Name, request.String(), name, limit.String())
			}
		}
	}
	if got := p.Spec.Containers[0].Resources.Limits.Cpu().String(); got != "4" {
		t.Errorf("%s CPUs", got)
	}
	large := pod(t, changed(t, "domain: {cpu: {dedicatedCpuPlacement: true, sockets: 2}, resources: {limits: {memory: 9Gi}}, devices: {}}"))
	if got := large.Spec.Containers[0].Resources; got.Limits.Memory().Value() < 9<<30 || got.Requests.Memory().Cmp(*got.Limits.Memory()) != 0 {
		t.Errorf("with a limit of 9Gi it requests %s and is allowed %s", got.Requests.Memory(), got.Limits.Memory())
	}
	isolated := pod(t, changed(t, "domain: {cpu: {dedicatedCpuPlacement: true, isolateEmulatorThread: true, sockets: 2}, devices: {}}"))
	if got := isolated.Spec.Containers[0].Resources.Limits.Cpu().String(); got != "5" {
		t.Errorf("%s CPUs for 4 vCPUs and the VMM", got)
	}
	in := changed(t, "domain: {cpu: {dedicatedCpuPlacement: true, isolateEmulatorThread: true, sockets: 2}, devices: {}}")
	in.Configuration.EvenCPUs = true
	if got := pod(t, in).Spec.Containers[0].Resources.Limits.Cpu().String(); got != "6" {
		t.Errorf("%s CPUs for 4 vCPUs and the VMM, want an even number", got)
	}
	in.Configuration.EvenCPUs, in.Instance.Annotations = false, map[string]string{contract.AnnotationEvenCPUs: ""}
	if got := pod(t, in).Spec.Containers[0].Resources.Limits.Cpu().String(); got != "6" {
		t.Errorf("%s CPUs by the instance's annotation, want an even number", got)
	}
	if p.Spec.NodeSelector[contract.LabelCPUManager] != "true" {
		t.Errorf("it may go to %v", p.Spec.NodeSelector)
	}
}

func TestDevices(t *testing.T) {
	for _, c := range []struct {
		hypervisor string
		emulation  bool
		want       corev1.ResourceName
	}{
		{"", false, contract.ResourceKVM}, {"kvm", false, contract.ResourceKVM}, {"auto", false, contract.ResourceKVM},
		{"mshv", false, contract.ResourceMSHV}, {"emulation", false, ""}, {"", true, ""}, {"auto", true, ""},
	} {
		in := read(t, simple)
		in.Configuration.UseEmulation = c.emulation
		in.Instance.Annotations = map[string]string{contract.AnnotationHypervisor: c.hypervisor}
		var got corev1.ResourceName
		for name := range pod(t, in).Spec.Containers[0].Resources.Limits {
			got += name
		}
		if got != c.want {
			t.Errorf("%+v: it requests %q", c, got)
		}
	}
}

// TestOverhead: more for what may come than for what is sure, and what is published is what
// the pod has.
func TestOverhead(t *testing.T) {
	of := func(vmm, hypervisor string) int64 {
		in := read(t, "../testdata/manifests/vmi-cloud-hypervisor.yaml")
		in.Instance.Annotations = map[string]string{contract.AnnotationVMM: vmm, contract.AnnotationHypervisor: hypervisor}
		in.Instance.Spec.Domain.Devices.AutoattachGraphicsDevice = new(false)
		in.Instance.Spec.Domain.Devices.Rng = new(kubevirtv1.Rng)
		n, err := launcher.Overhead(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := pod(t, in).Annotations[contract.AnnotationMemoryOverhead]; got != strconv.FormatInt(n, 10) {
			t.Errorf("the pod says %s, want %d", got, n)
		}
		return n
	}
	qemu, ch, emulated := of("qemu", "kvm"), of("cloud-hypervisor", "kvm"), of("qemu", "emulation")
	if qemu >= ch || ch >= emulated || qemu < 50*mib {
		t.Errorf("QEMU %d, cloud-hypervisor %d, emulated %d", qemu, ch, emulated)
	}
	// cloud-hypervisor can't tell the guest who made its machine, so that no node chooses it.
	if auto := of("auto", "kvm"); auto != qemu {
		t.Errorf("with a VMM that nodes choose it is %d, want %d", auto, qemu)
	}
	if auto := of("qemu", "auto"); auto != emulated {
		t.Errorf("with any hypervisor it is %d, want %d", auto, emulated)
	}
}

// TestAffinity: what the cluster wants is wanted beside each of the instance's alternatives.
func TestAffinity(t *testing.T) {
	in := read(t, "../testdata/manifests/vm-placement.yaml")
	if err := yaml.UnmarshalStrict([]byte(`
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      - matchExpressions: [{key: pool, operator: In, values: [vms]}]
      - matchFields: [{key: metadata.name, operator: In, values: [node-1]}]
  preferredDuringSchedulingIgnoredDuringExecution:
    - {weight: 1, preference: {matchExpressions: [{key: fast, operator: Exists}]}}
podAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - {weight: 1, podAffinityTerm: {topologyKey: zone}}
podAntiAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    - {topologyKey: host}
`), &in.Configuration.Placement.Affinity); err != nil {
		t.Fatal(err)
	}
	before := in.Instance.DeepCopy()
	a := pod(t, in).Spec.Affinity
	var got []string
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		var keys []string
		for _, r := range append(term.MatchExpressions, term.MatchFields...) {
			keys = append(keys, fmt.Sprintf("%s %s %s", r.Key, r.Operator, strings.Join(r.Values, " ")))
		}
		got = append(got, strings.Join(keys, ", "))
	}
	const never = "cpu-feature.node.kubevirt.io/avx512f DoesNotExist "
	want := []string{
		"rack In a, pool In vms, " + never, "rack In a, " + never + ", metadata.name In node-1",
		"rack In b, pool In vms, " + never, "rack In b, " + never + ", metadata.name In node-1",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("terms %q, want %q", got, want)
	}
	if len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) != 1 || a.PodAffinity == nil ||
		len(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution) != 1 || len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) != 1 {
		t.Errorf("%+v", a)
	}
	if !reflect.DeepEqual(in.Instance, before) {
		t.Error("the instance was changed")
	}
}

func TestStrictHyperv(t *testing.T) {
	in := read(t, "../testdata/manifests/vm-windows.yaml")
	in.Configuration.FeatureGates = map[string]bool{"HypervStrictCheck": true}
	selector := pod(t, in).Spec.NodeSelector
	for _, name := range []string{"synic", "reset", "tlbflush"} {
		if selector[contract.LabelHyperV+name] != "true" {
			t.Errorf("it may go to nodes without %s: %v", name, selector)
		}
	}
}

// TestRedHatsMachineType: a VM of OpenShift Virtualization finds a node, of which none has a label
// for its machine type.
func TestRedHatsMachineType(t *testing.T) {
	in := read(t, "../testdata/manifests/vm-windows.yaml")
	in.Instance.Spec.Domain.Machine = &kubevirtv1.Machine{Type: "pc-q35-rhel9.4.0"}
	selector := pod(t, in).Spec.NodeSelector
	if selector[contract.LabelMachineType+"q35"] != "true" || selector[contract.LabelMachineType+"pc-q35-rhel9.4.0"] != "" {
		t.Errorf("the pod wants nodes with %v", selector)
	}
}

// TestAgentProbes: a probe by the guest agent has a second more than the guest, and memory in
// its pod; it is left out if the annotation says so, and refused without a channel.
func TestAgentProbes(t *testing.T) {
	const manifest = "../testdata/manifests/vmi-agent-probes.yaml"
	in := read(t, manifest)
	compute := pod(t, in).Spec.Containers[0]
	if got := compute.ReadinessProbe; got.TimeoutSeconds != 6 || !slices.Equal(got.Exec.Command, []string{"vmlet-shim", "probe", "--timeout", "5s", "--", "cat", "/tmp/healthy"}) {
		t.Errorf("readiness probe %+v", got)
	}
	probed, err := launcher.Overhead(in)
	if err != nil {
		t.Fatal(err)
	}
	in.Instance.Spec.LivenessProbe = nil
	one, err := launcher.Overhead(in)
	if err != nil || probed-one != 8*mib {
		t.Errorf("a probe takes %d bytes, want 8 MiB: %v", probed-one, err)
	}
	in = read(t, manifest)
	in.Instance.Annotations = map[string]string{contract.AnnotationPauseProbes: "true"}
	if compute := pod(t, in).Spec.Containers[0]; compute.ReadinessProbe != nil || compute.LivenessProbe != nil {
		t.Errorf("probes %+v and %+v of a guest that is not to be probed", compute.ReadinessProbe, compute.LivenessProbe)
	}
}

func TestPodFaults(t *testing.T) {
	claims := read(t, "../testdata/manifests/vm-claims.yaml")
	delete(claims.Claims, "imported")
	for _, c := range []struct {
		name string
		in   convert.Input
		want string
	}{
		{"no claim", claims, "spec.volumes[3]: Not found: \"PersistentVolumeClaim imported\""},
		{"empty probe", changed(t, "readinessProbe: {}\ndomain: {devices: {}}"), "spec.readinessProbe: Required value: set httpGet, tcpSocket, exec or guestAgentPing"},
		{"long command line", changed(t, "domain: {devices: {}, firmware: {kernelBoot: {kernelArgs: '"+strings.Repeat("a", 60<<10)+"', container: {image: a, kernelPath: /k}}}}"),
			"shorten it, above all spec.domain.firmware"},
		{"long cloud-init", changed(t, "domain: {devices: {disks: [{name: a}]}}\nvolumes: [{name: a, cloudInitNoCloud: {userData: '"+strings.Repeat("a", 65<<10)+"'}}]"),
			"spec.volumes: Invalid value: their description for the pod takes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := launcher.Pod(c.in)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %.300v, want %s", err, c.want)
			}
		})
	}
}

// TestBoundHasRoom: the pod completes the specification, and the agent still takes it.
func TestBoundHasRoom(t *testing.T) {
	if launcher.MaxSpecification+(8<<10) > shim.MaxPodSpecification {
		t.Errorf("specifications of %d bytes leave no room below %d", launcher.MaxSpecification, shim.MaxPodSpecification)
	}
}

// TestPlacesAgree: whatever specification and preparation name is mounted in the container of
// the VM, each socket has a container that serves it, and each mount a volume.
func TestPlacesAgree(t *testing.T) {
	for _, manifest := range manifests(t) {
		p := pod(t, read(t, manifest))
		volumes := make(map[string]bool)
		for _, v := range p.Spec.Volumes {
			if volumes[v.Name] {
				t.Errorf("%s: two volumes are called %s", manifest, v.Name)
			}
			volumes[v.Name] = true
			if faults := validation.IsDNS1123Label(v.Name); len(faults) > 0 {
				t.Errorf("%s: volume %s: %s", manifest, v.Name, faults)
			}
		}
		served := make(map[string]bool)
		for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
			for i, word := range c.Command[:len(c.Command)-1] {
				if word == "--socket" {
					served[c.Command[i+1]] = true
				}
			}
			for _, m := range c.VolumeMounts {
				if !volumes[m.Name] {
					t.Errorf("%s: %s mounts %s, which the pod has not", manifest, c.Name, m.Name)
				}
			}
		}
		for _, path := range places(t, p) {
			if !mounted(&p.Spec.Containers[0], path) {
				t.Errorf("%s: %s is not mounted", manifest, path)
			}
			if strings.HasPrefix(path, contract.SocketsFolder) && !served[path] {
				t.Errorf("%s: nobody serves %s", manifest, path)
			}
		}
	}
}

// places are all paths that a pod's VM is told.
func places(t *testing.T, p *corev1.Pod) (paths []string) {
	t.Helper()
	var preparation launch.Preparation
	if text := p.Annotations[contract.AnnotationPreparation]; text != "" {
		if err := json.Unmarshal([]byte(text), &preparation); err != nil {
			t.Fatal(err)
		}
	}
	s, err := spec.Parse([]byte(p.Annotations[contract.AnnotationSpecification]), "annotation")
	if err != nil {
		t.Fatal(err)
	}
	add := func(all ...string) {
		for _, path := range all {
			if path != "" {
				paths = append(paths, path)
			}
		}
	}
	for _, d := range s.Disks {
		add(d.Path)
	}
	add(s.GetBoot().GetKernel().GetPath(), s.GetBoot().GetKernel().GetInitrd())
	for _, d := range preparation.Disks {
		if !has(s, d.Name) {
			t.Errorf("%s is made, and is no disk", d.Name)
		}
		if d.Overlay != nil {
			add(d.Overlay.Base)
		}
		if d.Files != nil {
			add(d.Files.Folder)
		}
		if d.CloudInit != nil {
			add(d.CloudInit.UserDataFiles...)
			add(d.CloudInit.NetworkDataFiles...)
			add(d.CloudInit.KeyFolders...)
		}
	}
	return paths
}

func has(s *specv1.VirtualMachineSpec, disk string) bool {
	for _, d := range s.Disks {
		if d.Name == disk {
			return true
		}
	}
	return false
}

func mounted(c *corev1.Container, path string) bool {
	for _, m := range c.VolumeMounts {
		if path == m.MountPath || strings.HasPrefix(path, m.MountPath+"/") {
			return true
		}
	}
	for _, d := range c.VolumeDevices {
		if path == d.DevicePath {
			return true
		}
	}
	return false
}

// TestSame: two leaders make the same pod.
func TestSame(t *testing.T) {
	for _, manifest := range manifests(t) {
		first := pod(t, read(t, manifest))
		for range 5 {
			if again := pod(t, read(t, manifest)); !reflect.DeepEqual(first, again) {
				t.Fatalf("%s: two pods of one instance differ", manifest)
			}
		}
	}
}

// FuzzPod: nothing that an object can say breaks the one who makes its pod.
func FuzzPod(f *testing.F) {
	for _, manifest := range manifests(f) {
		encoded, err := json.Marshal(read(f, manifest).Instance)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	f.Fuzz(func(t *testing.T, encoded []byte) {
		in := read(t, simple)
		in.Instance = new(kubevirtv1.VirtualMachineInstance)
		if json.Unmarshal(encoded, in.Instance) != nil {
			return
		}
		if err := convert.Faults(in); err != nil {
			return // refused at admission
		}
		p, err := launcher.Pod(in)
		if err == nil && len(p.Annotations[contract.AnnotationSpecification]) > launcher.MaxSpecification {
			t.Error("the specification is longer than it may be")
		}
	})
}
