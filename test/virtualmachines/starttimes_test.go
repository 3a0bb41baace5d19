package virtualmachines_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/test/cluster"
)

var (
	starts     = flag.Int("starts", 0, "time so many starts of one VM beside pods, and one of -starts-many: with -run 'TestVirtualMachines/start times' -v")
	startsMany = flag.Int("starts-many", 50, "with -starts: how many VMs are created 100 ms apart")
	startsTo   = flag.String("starts-to", "", "with -starts: write what was measured to `FILE`, for test/bench")
)

// Between creations of many, and for what a program does once all run.
const (
	startsApart  = 100 * time.Millisecond
	startsSettle = 5 * time.Second
)

// accounted are the programs whose processor time is measured.
var accounted = []string{"vmlet-agent", "vmlet-controller", "vmlet-api", "kube-apiserver", "kubelet", "containerd"}

// started is what one kind of start took: until Running is seen through a watch, in nanoseconds, and what programs
// took of the processors, for each of many.
type started struct {
	One, Many  []time.Duration
	Processors map[string]time.Duration
}

// starter is one kind of what is started.
type starter struct {
	name string
	make func(name string) client.Object
}

// testStartTimes times a VM until it runs, beside a pod whose only program is the same QEMU with the same
// arguments, and pods that do nothing, with a volume and without. They take turns.
func (v *installed) testStartTimes(t *testing.T) {
	w := v.watchStarts(t)
	v.create(t, bare("model")) // it also has everything read and cached that starts need
	w.running(t, "model")
	arguments := v.plainArguments(t, "model")
	v.deleteAll(t, bare("model"))
	kinds := []starter{
		{"VM", func(name string) client.Object { return bare(name) }},
		{"QEMU", func(name string) client.Object { return qemuPod(t, name, arguments) }},
		{"volume", func(name string) client.Object { return withVolume(pausePod(t, name)) }},
		{"pause", func(name string) client.Object { return pausePod(t, name) }},
	}
	all := make(map[string]*started)
	for _, k := range kinds {
		all[k.name] = &started{Processors: make(map[string]time.Duration)}
	}
	for i := range *starts {
		for _, k := range kinds {
			o := k.make(fmt.Sprintf("one-%s-%d", strings.ToLower(k.name), i))
			begin := time.Now()
			v.create(t, o)
			all[k.name].One = append(all[k.name].One, w.running(t, o.GetName()).Sub(begin))
			v.deleteAll(t, o)
		}
	}
	for _, k := range kinds {
		all[k.name].Many = v.startMany(t, w, k, all[k.name].Processors)
	}
	v.timeScaleOuts(t, all)
	for name, s := range all {
		if len(s.Many) == 0 {
			t.Logf("%-28s p50 %v, p95 %v of %d", name, percentile(s.One, 50), percentile(s.One, 95), len(s.One))
		}
	}
	for _, k := range kinds {
		s := all[k.name]
		t.Logf("%-6s one %v, %v; %d of them %v, %v; processors %v", k.name, percentile(s.One, 50), percentile(s.One, 95),
			len(s.Many), percentile(s.Many, 50), percentile(s.Many, 95), s.Processors)
	}
	if *startsTo != "" {
		text, err := json.Marshal(all)
		must(t, err)
		must(t, os.WriteFile(*startsTo, text, 0o600))
	}
}

// startMany returns how long each took, and adds what programs took for each.
func (v *installed) startMany(t *testing.T, w *startWatch, k starter, processors map[string]time.Duration) (took []time.Duration) {
	t.Helper()
	before := v.processorTimes(t)
	var objects []client.Object
	var begun []time.Time
	next := time.NewTicker(startsApart)
	defer next.Stop()
	for i := range *startsMany {
		o := k.make(fmt.Sprintf("many-%s-%d", strings.ToLower(k.name), i))
		objects, begun = append(objects, o), append(begun, time.Now())
		v.create(t, o)
		<-next.C
	}
	for i, o := range objects {
		took = append(took, w.running(t, o.GetName()).Sub(begun[i]))
	}
	time.Sleep(startsSettle)
	for name, after := range v.processorTimes(t) {
		processors[name] = (after - before[name]) / time.Duration(len(objects))
	}
	v.deleteAll(t, objects...)
	return took
}

// percentile is the least time that so many of a hundred do not exceed.
func percentile(all []time.Duration, p int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[(len(sorted)*p+99)/100-1].Round(time.Millisecond)
}

// deleteAll waits until none of them is left, nor any pod.
func (v *installed) deleteAll(t *testing.T, objects ...client.Object) {
	t.Helper()
	v.remove(t, objects...)
	v.eventually(t, func() bool {
		var pods corev1.PodList
		var vmis kubevirtv1.VirtualMachineInstanceList
		must(t, v.api.List(v.ctx, &pods, client.InNamespace(guests)))
		must(t, v.api.List(v.ctx, &vmis, client.InNamespace(guests)))
		return len(pods.Items)+len(vmis.Items) == 0
	}, func() string { return "what was started is not gone" })
}

// bare is an instance without a disk: its firmware finds nothing to boot and waits, as that of the pod beside it.
func bare(name string) *kubevirtv1.VirtualMachineInstance {
	vmi := &kubevirtv1.VirtualMachineInstance{}
	vmi.Namespace, vmi.Name = guests, name
	spec := `
terminationGracePeriodSeconds: 0
domain:
  devices: {}
  memory: {guest: 32Mi}
  resources: {requests: {cpu: 10m}}
`
	if err := yaml.UnmarshalStrict([]byte(spec), &vmi.Spec); err != nil {
		panic(err) // it is the one above
	}
	return vmi
}

// plainArguments are those of the QEMU of a VM that runs, without the descriptors that it was given.
func (v *installed) plainArguments(t *testing.T, name string) []string {
	t.Helper()
	pid := v.vmm(t, v.vmi(t, name))
	line, err := os.ReadFile(v.Path(fmt.Sprintf("/proc/%d/cmdline", pid)))
	must(t, err)
	args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	for i := range args {
		args[i] = plain(args[i])
	}
	if left := strings.Join(args, " "); strings.Contains(left, "fd=") || strings.Contains(left, "/fd/") {
		t.Fatalf("QEMU's arguments have descriptors, which a pod's QEMU does not get: %s", left)
	}
	return args
}

var (
	socketArgument = regexp.MustCompile(`^socket,id=([^,]*),.*fd=.*$`)
	tapArgument    = regexp.MustCompile(`^\{"fd":"[0-9]+","id":"([^"]*)","type":"tap"\}$`)
	memoryPath     = regexp.MustCompile(`"mem-path":"/proc/self/fd/[0-9]+"`)
)

// plain has an argument's descriptor replaced by what needs none.
func plain(argument string) string {
	argument = socketArgument.ReplaceAllString(argument, "null,id=$1")
	argument = tapArgument.ReplaceAllString(argument, `{"id":"$1","type":"user"}`)
	return memoryPath.ReplaceAllString(argument, `"mem-path":"/run/vmlet/ram"`)
}

func qemuPod(t *testing.T, name string, arguments []string) *corev1.Pod {
	p := withVolume(pausePod(t, name))
	c := &p.Spec.Containers[0]
	c.Image, c.Command = vmletImage, arguments
	return p
}

// withVolume gives a pod one in memory. The kubelet looks again after 300 ms whether volumes are there.
func withVolume(p *corev1.Pod) *corev1.Pod {
	c := &p.Spec.Containers[0]
	c.VolumeMounts = []corev1.VolumeMount{{Name: "memory", MountPath: "/run/vmlet"}}
	p.Spec.Volumes = []corev1.Volume{{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}}}
	return p
}

func pausePod(t *testing.T, name string) *corev1.Pod {
	p := &corev1.Pod{}
	p.Namespace, p.Name = guests, name
	must(t, yaml.UnmarshalStrict(fmt.Appendf(nil, `
terminationGracePeriodSeconds: 0
enableServiceLinks: false
automountServiceAccountToken: false
restartPolicy: Never
securityContext: {runAsNonRoot: true, runAsUser: 107, runAsGroup: 107, fsGroup: 107, seccompProfile: {type: RuntimeDefault}}
containers:
- name: compute
  image: %q
  securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
  resources: {requests: {cpu: 10m}}
`, cluster.PauseImage), &p.Spec))
	return p
}

// startWatch knows since when what runs does so, by its name: pods and instances have different ones.
type startWatch struct {
	ctx     context.Context
	mu      sync.Mutex
	since   map[string]time.Time
	changed chan struct{}
}

func (v *installed) watchStarts(t *testing.T) *startWatch {
	t.Helper()
	w := &startWatch{since: make(map[string]time.Time), changed: make(chan struct{}), ctx: v.ctx}
	for _, list := range []client.ObjectList{new(corev1.PodList), new(kubevirtv1.VirtualMachineInstanceList)} {
		events, err := v.api.Watch(v.ctx, list, client.InNamespace(guests))
		must(t, err)
		t.Cleanup(events.Stop)
		go func() {
			for e := range events.ResultChan() {
				w.take(e)
			}
		}()
	}
	return w
}

func (w *startWatch) take(e watch.Event) {
	now := time.Now()
	var name string
	switch o := e.Object.(type) {
	case *corev1.Pod:
		if o.Status.Phase == corev1.PodRunning {
			name = o.Name
		}
	case *kubevirtv1.VirtualMachineInstance:
		if o.Status.Phase == kubevirtv1.PhaseRunning {
			name = o.Name
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.since[name]; name == "" || known {
		return
	}
	w.since[name] = now
	close(w.changed)
	w.changed = make(chan struct{})
}

// running waits until it does, and returns since when.
func (w *startWatch) running(t *testing.T, name string) time.Time {
	t.Helper()
	for end := time.After(patience); ; {
		w.mu.Lock()
		since, is := w.since[name]
		changed := w.changed
		w.mu.Unlock()
		if is {
			return since
		}
		select {
		case <-changed:
		case <-w.ctx.Done():
			t.Fatal("the test ends")
		case <-end:
			t.Fatalf("%s does not run", name)
		}
	}
}

// processorTimes are those of the cluster's programs and of their children that have ended.
func (v *installed) processorTimes(t *testing.T) map[string]time.Duration {
	t.Helper()
	own := filepath.Base(filepath.Dir(v.Kubeconfig()))
	all, err := filepath.Glob("/proc/[0-9]*")
	must(t, err)
	times := make(map[string]time.Duration)
	for _, dir := range all {
		exe, err := os.Readlink(dir + "/exe")
		name := filepath.Base(exe)
		if err != nil || !slices.Contains(accounted, name) {
			continue
		}
		places, err := os.ReadFile(dir + "/cgroup")
		if err != nil || !strings.Contains(string(places), own) {
			continue
		}
		stat, err := os.ReadFile(dir + "/stat")
		must(t, err)
		const tick = 10 * time.Millisecond // USER_HZ
		fields := strings.Fields(string(stat)[strings.LastIndexByte(string(stat), ')')+1:])
		for _, field := range fields[11:15] { // utime, stime, cutime, cstime (proc_pid_stat(5))
			ticks, err := strconv.Atoi(field)
			must(t, err)
			times[name] += time.Duration(ticks) * tick
		}
	}
	return times
}
