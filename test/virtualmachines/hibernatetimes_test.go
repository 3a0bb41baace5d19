package virtualmachines_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/guest"
)

var (
	times   = flag.Int("times", 0, "time hibernation in so many rounds, and print a table: with -run 'TestVirtualMachines/hibernation times' -v")
	timesTo = flag.String("times-to", "", "with -times: write the times to `FILE`, for test/bench")
)

// timed is what each round of a step took.
type timed map[string][]time.Duration

// print has the medians in the test's output, and all times in the file that -times-to names.
func (all timed) print(t *testing.T) {
	for _, step := range slices.Sorted(maps.Keys(all)) {
		took := slices.Sorted(slices.Values(all[step]))
		t.Logf("%-44s %8.0f ms", step, float64(took[len(took)/2].Microseconds())/1000)
	}
	if *timesTo == "" {
		return
	}
	text, err := json.Marshal(all)
	must(t, err)
	must(t, os.WriteFile(*timesTo, text, 0o600))
}

// room is the guest's memory that this machine's node has room for, and its pods.
func room(t *testing.T) int64 {
	var system unix.Sysinfo_t
	must(t, unix.Sysinfo(&system))
	return int64(system.Totalram)*int64(system.Unit) - 2<<30
}

// testHibernationTimes times, through the API and with the claim mounted from the start, guests of several
// sizes, beside a pod that does nothing and beside dd. The pages that a guest touches are random.
func (v *installed) testHibernationTimes(t *testing.T) {
	all := timed{}
	for range *times {
		all.add("pause pod", v.pausePod(t))
	}
	for _, c := range []struct {
		memory  string
		touched int // MiB
	}{{"512Mi", 100}, {"1Gi", 100}, {"1Gi", 700}, {"4Gi", 100}, {"8Gi", 100}} {
		memory := resource.MustParse(c.memory)
		if memory.Value() > room(t) {
			t.Logf("a guest of %s has no room on this machine", c.memory)
			continue
		}
		name := fmt.Sprintf("times-%s-%d", strings.ToLower(c.memory), c.touched)
		larger := strings.NewReplacer("guest: 128Mi", "guest: "+c.memory, "no_timer_check", "no_timer_check vmlet.interval=10ms")
		must(t, v.Apply(v.ctx, larger.Replace(sleeper(name, onLocalPath, ""))))
		v.ask(t, v.podOf(t, v.phase(t, name, kubevirtv1.PhaseRunning)), fmt.Sprintf("mem %d 7", c.touched), fmt.Sprintf("filled %d MiB", c.touched))
		for range *times {
			all.add(fmt.Sprintf("hibernate %s %d MiB", c.memory, c.touched), v.hibernate(t, name))
			all.add(fmt.Sprintf("resume %s %d MiB", c.memory, c.touched), v.resume(t, name))
			all.add(fmt.Sprintf("dd %d MiB", c.touched), v.dd(t, c.touched))
		}
		v.remove(t, machine(t, name, "", idle))
		v.noMachine(t, name)
	}
	all.print(t)
	v.noClaims(t)
}

func (all timed) add(step string, took time.Duration) { all[step] = append(all[step], took) }

// hibernate takes until the processes that have the guest's memory are gone.
func (v *installed) hibernate(t *testing.T, name string) time.Duration {
	vmi := v.phase(t, name, kubevirtv1.PhaseRunning)
	process := v.listed(t)[v.podOf(t, vmi).UID].GetStatus().GetProcess()
	if process.GetVmmPid() == 0 || process.GetShimPid() == 0 {
		t.Fatalf("the agent says of no processes that they run VM %s: %v", name, process)
	}
	begin := time.Now()
	v.strategy(t, name, kubevirtv1.RunStrategyHibernate)
	for _, pid := range []int64{process.GetVmmPid(), process.GetShimPid()} {
		// Its number is the node's: this machine has others.
		v.quickly(t, "the end of the VM's processes", func() bool {
			_, err := os.Stat(v.Path(fmt.Sprintf("/proc/%d", pid)))
			return errors.Is(err, fs.ErrNotExist)
		})
	}
	took := time.Since(begin)
	v.printed(t, name, kubevirtv1.StatusHibernated)
	v.noInstance(t, name)
	return took
}

// resume takes until the guest's next byte is in its pod's log.
func (v *installed) resume(t *testing.T, name string) time.Duration {
	logs := v.Path("/var/log/pods/" + guests + "_virt-launcher-" + name + "-*/compute/0.log")
	before, err := filepath.Glob(logs) // the kubelet keeps those of pods that are gone for a while
	must(t, err)
	begin := time.Now()
	v.strategy(t, name, kubevirtv1.RunStrategyAlways)
	v.quickly(t, "the guest's next byte", func() bool {
		found, err := filepath.Glob(logs)
		must(t, err)
		return slices.ContainsFunc(found, func(file string) bool {
			log, err := os.ReadFile(file)
			return err == nil && !slices.Contains(before, file) && strings.Contains(string(log), guest.CountPrefix)
		})
	})
	took := time.Since(begin)
	v.printed(t, name, kubevirtv1.StatusRunning)
	return took
}

// quickly looks every millisecond.
func (v *installed) quickly(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not come", what)
		}
	}
}

func (v *installed) pausePod(t *testing.T) time.Duration {
	begin := time.Now()
	must(t, v.Apply(v.ctx, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: pause, namespace: default}
spec: {containers: [{name: pause, image: %q}], terminationGracePeriodSeconds: 0}
`, cluster.PauseImage)))
	v.kubectl(t, "wait", "pod/pause", "--for=jsonpath={.status.phase}=Running", "--timeout=24h")
	took := time.Since(begin)
	v.kubectl(t, "delete", "pod/pause")
	return took
}

func (v *installed) dd(t *testing.T, mib int) time.Duration {
	file := filepath.Join(v.Path("/var/lib/local-path"), "dd")
	begin := time.Now()
	out, err := exec.Command("dd", "if=/dev/zero", "of="+file, "bs=1M", fmt.Sprintf("count=%d", mib), "conv=fsync").CombinedOutput()
	if err != nil {
		t.Fatalf("dd: %v: %s", err, out)
	}
	took := time.Since(begin)
	must(t, os.Remove(file))
	return took
}
