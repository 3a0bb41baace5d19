// Package tuning brings a node's own files in line with a folder, that of the ConfigMap which the
// asset node-tuning makes: drop-ins of the kubelet's configuration, and huge pages. It knows no
// cluster, restarts nothing, and touches no file of anybody else's. Start reading at Node.Apply.
package tuning

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/vmlet/vmlet/internal/atomicfile"
)

// Node is the folders of a node.
type Node struct {
	// Wanted has the files that are wanted: drop-ins, and HugePages. That it does not exist counts as
	// empty.
	Wanted string
	// Kubelet is the kubelet's --config-dir.
	Kubelet string
	// HugePages is the kernel's /sys/kernel/mm/hugepages.
	HugePages string
}

// HugePages is the file with the number of huge pages of 2 MiB.
const HugePages = "hugepages-2Mi"

// Bounds of what is wanted.
const (
	maxFile  = 64 << 10 // bytes
	maxPages = 1 << 24  // 32 TiB
)

// dropIn is the form of drop-ins' names; all that is so called in the kubelet's folder is ours. The
// number has them count above the distribution's own, and below an administrator's 99.
var dropIn = regexp.MustCompile(`^90-vmlet-[a-z-]{1,40}\.conf$`) // never changed

// Apply makes the node as it is wanted. It returns the files that it has changed. On an error the
// others are changed all the same.
func (n Node) Apply() (changed []string, err error) {
	var faults []error
	wanted, err := n.dropIns()
	if err != nil {
		// What is wanted is not known: what is there stays.
		faults = append(faults, err)
	} else {
		changed, err = n.kubelet(wanted)
		faults = append(faults, err)
	}
	is, err := n.hugePages()
	if is != "" {
		changed = append(changed, is)
	}
	return changed, errors.Join(append(faults, err)...)
}

// dropIns are the wanted ones. A kubelet does not start with one that is broken: one fault, and
// none is written.
func (n Node) dropIns() (map[string][]byte, error) {
	entries, err := os.ReadDir(n.Wanted)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	wanted, faults := make(map[string][]byte), []error(nil)
	for _, e := range entries {
		if !dropIn.MatchString(e.Name()) {
			continue // huge pages, and the kubelet's own way to keep a ConfigMap's files
		}
		content, err := read(filepath.Join(n.Wanted, e.Name()))
		if err == nil {
			err = check(content)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", e.Name(), err))
		}
		wanted[e.Name()] = content
	}
	return wanted, errors.Join(faults...)
}

func read(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if err == nil && len(content) > maxFile {
		err = fmt.Errorf("more than %d bytes", maxFile)
	}
	return content, err
}

// check refuses what is no drop-in, and fields that say more than what a node has for its pods and how it keeps them: who may
// write the ConfigMap is not to say who may talk to the kubelet, or what it runs.
func check(content []byte) error {
	for _, line := range bytes.Split(content, []byte("\n")) {
		if bytes.HasPrefix(line, []byte("---")) || bytes.HasPrefix(line, []byte("...")) {
			return errors.New("it has several documents, or marks where one begins: want one, without such a line")
		}
	}
	var fields map[string]any
	if err := yaml.UnmarshalStrict(content, &fields); err != nil {
		return err
	}
	if fields["apiVersion"] != "kubelet.config.k8s.io/v1beta1" || fields["kind"] != "KubeletConfiguration" {
		return fmt.Errorf("it is %v %v: want kubelet.config.k8s.io/v1beta1 KubeletConfiguration", fields["apiVersion"], fields["kind"])
	}
	var faults []error
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(allowedFields(), field) {
			faults = append(faults, fmt.Errorf("field %.100q is not one that a drop-in of vmlet may set: set it in a drop-in of your own", field))
		}
	}
	return errors.Join(faults...)
}

// allowedFields are those of a KubeletConfiguration (kubelet.config.k8s.io/v1beta1) that drop-ins may set. None grants anybody a
// right, names a file or a program, or lets a pod do more.
func allowedFields() []string {
	return []string{
		"apiVersion", "kind",
		"containerLogMaxFiles", "containerLogMaxSize",
		"cpuCFSQuota", "cpuCFSQuotaPeriod", "cpuManagerPolicy", "cpuManagerPolicyOptions", "cpuManagerReconcilePeriod",
		"evictionHard", "evictionMaxPodGracePeriod", "evictionMinimumReclaim", "evictionPressureTransitionPeriod", "evictionSoft", "evictionSoftGracePeriod",
		"failSwapOn", "memorySwap", "memoryThrottlingFactor",
		"imageGCHighThresholdPercent", "imageGCLowThresholdPercent", "imageMaximumGCAge", "imageMinimumGCAge", "maxParallelImagePulls", "registryBurst", "registryPullQPS", "serializeImagePulls",
		"kubeAPIBurst", "kubeAPIQPS", "nodeStatusMaxImages", "nodeStatusReportFrequency", "nodeStatusUpdateFrequency",
		"kubeReserved", "reservedMemory", "reservedSystemCPUs", "systemReserved",
		"maxPods", "podPidsLimit", "podsPerCore",
		"memoryManagerPolicy", "topologyManagerPolicy", "topologyManagerPolicyOptions", "topologyManagerScope",
		"shutdownGracePeriod", "shutdownGracePeriodByPodPriority", "shutdownGracePeriodCriticalPods",
	}
}

// kubelet writes the wanted drop-ins, and removes those that are wanted no more.
func (n Node) kubelet(wanted map[string][]byte) (changed []string, err error) {
	entries, err := os.ReadDir(n.Kubelet)
	if err != nil {
		return nil, err
	}
	var faults []error
	for _, e := range entries {
		if _, is := wanted[e.Name()]; is || !dropIn.MatchString(e.Name()) {
			continue
		}
		path := filepath.Join(n.Kubelet, e.Name())
		if err := os.Remove(path); err != nil {
			faults = append(faults, err)
			continue
		}
		changed = append(changed, path)
	}
	for name, content := range wanted {
		path := filepath.Join(n.Kubelet, name)
		if is, err := os.ReadFile(path); err == nil && bytes.Equal(is, content) {
			continue
		}
		if err := atomicfile.ReplaceDurably(path, content, 0o644); err != nil {
			faults = append(faults, err)
			continue
		}
		changed = append(changed, path)
	}
	return changed, errors.Join(faults...)
}

// hugePages has the kernel set pages aside. It never takes any back: others may count on them. It
// returns the file that it has changed; "": none.
func (n Node) hugePages() (changed string, err error) {
	content, err := read(filepath.Join(n.Wanted, HugePages))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	want, err := strconv.ParseUint(strings.TrimSpace(string(content)), 10, 64)
	if err != nil || want > maxPages {
		return "", fmt.Errorf("%s: %.20q is no number of pages up to %d", HugePages, content, maxPages)
	}
	path := filepath.Join(n.HugePages, "hugepages-2048kB", "nr_hugepages")
	has, err := count(path)
	if err != nil || has >= want {
		return "", err
	}
	if err := os.WriteFile(path, strconv.AppendUint(nil, want, 10), 0o644); err != nil {
		return "", err
	}
	// The kernel gives what it finds in one piece, and no error.
	now, err := count(path)
	if err == nil && now < want {
		err = fmt.Errorf("%s: the kernel has set %d of %d huge pages aside: memory is in pieces, set them aside when it boots (hugepages=%d)", path, now, want, want)
	}
	if now == has {
		return "", err
	}
	return path, err
}

func count(path string) (uint64, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(content)), 10, 64)
}
