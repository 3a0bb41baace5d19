package virtualmachines_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
)

// testImports: without CDI the claims of dataVolumeTemplates are filled, empty, from a web server, an
// image and another claim, though importer and controllers are killed in the midst; nothing is left
// of imports whose VM is deleted.
func (v *installed) testImports(t *testing.T) {
	s := newSlowServer(t)
	url := fmt.Sprintf("http://%s:%s/disk.qcow2", v.Machine(), s.port)
	web := fmt.Sprintf("{http: {url: %q, checksum: %q}}", url, fmt.Sprintf("sha256:%x", sha256.Sum256(s.disk)))

	vm := v.importing(t, "first", web, "{blank: {}}", fmt.Sprintf("{registry: {url: %q}}", "docker://"+smallImage))
	vm.Spec.RunStrategy = new(kubevirtv1.RunStrategyHalted)
	v.create(t, vm)
	v.imported(t, "first-0", contract.ImportWaiting)
	v.printed(t, "first", kubevirtv1.StatusStopped)
	v.strategy(t, "first", kubevirtv1.RunStrategyAlways)
	<-s.half
	v.printed(t, "first", kubevirtv1.StatusProvisioning)
	v.killLeader(t)
	v.killImporter(t, "first-0")
	close(s.rest)
	pod := v.podOf(t, v.phase(t, "first", kubevirtv1.PhaseRunning))
	if c := v.imported(t, "first-0", contract.ImportSucceeded); c.Annotations[contract.AnnotationImportRestarts] == "" {
		t.Errorf("the importer was killed, and its claim says %v", c.Annotations)
	}
	v.ask(t, pod, "cat /dev/vda", served)
	v.ask(t, pod, "write /dev/vdb on-blank", "written 9 bytes")
	v.hasBootRecord(t, pod, "first-2")

	v.create(t, v.importing(t, "second", `{pvc: {namespace: guests, name: first-1}}`))
	c := v.imported(t, "second-0", contract.ImportWaiting, contract.ImportPending)
	v.eventually(t, func() bool {
		c = get(t, v, guests, "second-0", new(corev1.PersistentVolumeClaim))
		return strings.Contains(c.Annotations[contract.AnnotationImportMessage], "pod "+pod.Name+" may write to claim first-1")
	}, func() string { return fmt.Sprintf("the copy does not wait for the VM that runs: %v", c.Annotations) })
	v.strategy(t, "first", kubevirtv1.RunStrategyHalted)
	v.ask(t, v.podOf(t, v.phase(t, "second", kubevirtv1.PhaseRunning)), "cat /dev/vda", "on-blank")

	v.testImportsEnded(t, s, url)
	v.nothingLeft(t)
	v.noImports(t)
}

// testImportsEnded: what can't be imported is refused or says why, and a VM that is deleted in the
// midst takes pod and claim with it.
func (v *installed) testImportsEnded(t *testing.T, s *slowServer, url string) {
	err := v.api.Create(v.ctx, v.importing(t, "refused", "{s3: {url: 's3://bucket/disk'}}"))
	if err == nil || !strings.Contains(err.Error(), "spec.dataVolumeTemplates[0].spec.source.s3") || !strings.Contains(err.Error(), "needs CDI") {
		t.Errorf("a source that needs CDI: %v", err)
	}
	v.create(t, v.importing(t, "wrong", fmt.Sprintf("{http: {url: %q, checksum: 'md5:%s'}}", url, strings.Repeat("0", 32))))
	wrong := v.printed(t, "wrong", kubevirtv1.StatusDataVolumeError)
	if ready := condition(wrong.Status.Conditions, kubevirtv1.ConditionReady); ready == nil || !strings.Contains(ready.Message, "checksum") {
		t.Errorf("of a wrong checksum the VM says %+v", ready)
	}
	s.again()
	v.create(t, v.importing(t, "ended", fmt.Sprintf("{http: {url: %q}}", url)))
	<-s.half
	v.remove(t, machine(t, "ended", "", idle))
	v.noMachine(t, "ended")
}

// noImports waits until the importers' pods and the claims of VMs that are deleted are gone.
func (v *installed) noImports(t *testing.T) {
	t.Helper()
	var claims corev1.PersistentVolumeClaimList
	v.eventually(t, func() bool {
		must(t, v.api.List(v.ctx, &claims, client.InNamespace(guests)))
		return len(claims.Items) == 0
	}, func() string { return fmt.Sprintf("%d claims are left of VMs that are deleted", len(claims.Items)) })
}

// importing is a VM whose disks are imported from sources, to claims NAME-0 and so on.
func (v *installed) importing(t *testing.T, name string, sources ...string) *kubevirtv1.VirtualMachine {
	t.Helper()
	var claims []string
	for i := range sources {
		claims = append(claims, fmt.Sprintf("%s-%d", name, i))
	}
	vm := onClaims(t, name, claims...)
	boot := vm.Spec.Template.Spec.Domain.Firmware.KernelBoot
	boot.KernelArgs, boot.Container.Image = "console=ttyS0 quiet no_timer_check", linuxImage
	boot.Container.KernelPath, boot.Container.InitrdPath = "/boot/vmlinuz", "/boot/initrd"
	vm.Spec.Template.Spec.Domain.Memory.Guest = new(resource.MustParse("128Mi"))
	for i, source := range sources {
		vm.Spec.Template.Spec.Volumes[i] = kubevirtv1.Volume{Name: claims[i], DataVolume: &kubevirtv1.DataVolumeSource{Name: claims[i]}}
		var d kubevirtv1.DataVolumeTemplateSpec
		must(t, yaml.UnmarshalStrict(fmt.Appendf(nil, "{metadata: {name: %s}, spec: {source: %s, storage: {storageClassName: loop, resources: {requests: {storage: 64Mi}}}}}", claims[i], source), &d))
		vm.Spec.DataVolumeTemplates = append(vm.Spec.DataVolumeTemplates, d)
	}
	return vm
}

// imported waits until the import of a claim is in one of the phases.
func (v *installed) imported(t *testing.T, name string, phases ...string) *corev1.PersistentVolumeClaim {
	t.Helper()
	var c *corev1.PersistentVolumeClaim
	v.eventually(t, func() bool {
		c = get(t, v, guests, name, new(corev1.PersistentVolumeClaim))
		for _, phase := range phases {
			if c != nil && c.Annotations[contract.AnnotationImportPhase] == phase {
				return true
			}
		}
		return false
	}, func() string { return fmt.Sprintf("the import of claim %s is not %q: %s", name, phases, text(c)) })
	return c
}

// killImporter kills the process that fills a claim.
func (v *installed) killImporter(t *testing.T, claim string) {
	t.Helper()
	uid := get(t, v, guests, claim, new(corev1.PersistentVolumeClaim)).UID
	var pods corev1.PodList
	must(t, v.api.List(v.ctx, &pods, client.InNamespace(guests), client.MatchingLabels{contract.LabelImportOf: string(uid)}))
	if len(pods.Items) != 1 {
		t.Fatalf("%d pods fill claim %s, want 1", len(pods.Items), claim)
	}
	pids := v.processes(t, "vmlet-importer", pods.Items[0].Name)
	if len(pids) != 1 {
		t.Fatalf("%d processes fill claim %s, want 1", len(pids), claim)
	}
	must(t, unix.Kill(pids[0], unix.SIGKILL))
}

// hasBootRecord looks for the signature of the image's disk on a claim, as a pod has it mounted.
func (v *installed) hasBootRecord(t *testing.T, pod *corev1.Pod, claim string) {
	t.Helper()
	volume := get(t, v, guests, claim, new(corev1.PersistentVolumeClaim)).Spec.VolumeName
	path := filepath.Join("/var/lib/kubelet/pods", string(pod.UID), "volumes/kubernetes.io~csi", volume, "mount/disk.img")
	signature, err := v.InNode(v.ctx, "sh", "-c", fmt.Sprintf("head -c 512 %s | tail -c 2 | od -An -tx1", path))
	must(t, err)
	if strings.TrimSpace(signature) != "55 aa" {
		t.Errorf("the disk on claim %s has %q at the end of its first sector, want 55 aa as the image's", claim, signature)
	}
}

// served is what the server's disk begins with.
const served = "from-the-server"

// slowServer has a qcow2 image, of which it sends a half and the rest only when it may.
type slowServer struct {
	port string
	disk []byte

	mu         sync.Mutex
	half, rest chan struct{}
	reached    func()
}

func newSlowServer(t *testing.T) *slowServer {
	t.Helper()
	folder := t.TempDir()
	raw, image := filepath.Join(folder, "raw"), filepath.Join(folder, "image")
	content := make([]byte, 4<<20)
	copy(content, served+"\n")
	for i := 1 << 20; i < len(content); i++ {
		content[i] = byte(i*i>>7) ^ byte(i>>11)
	}
	must(t, os.WriteFile(raw, content, 0o600))
	if out, err := exec.CommandContext(t.Context(), "qemu-img", "convert", "-O", "qcow2", raw, image).CombinedOutput(); err != nil {
		t.Fatalf("qemu-img: %v: %s", err, out)
	}
	s := new(slowServer)
	var err error
	s.disk, err = os.ReadFile(image)
	must(t, err)
	s.again()
	s.port = offer(t, s)
	return s
}

// offer serves at all of this machine's addresses, and returns the port.
func offer(t *testing.T, h http.Handler) string {
	t.Helper()
	web := httptest.NewUnstartedServer(h)
	web.Listener.Close()
	var err error
	web.Listener, err = net.Listen("tcp", "0.0.0.0:0")
	must(t, err)
	web.Start()
	t.Cleanup(web.Close)
	_, port, err := net.SplitHostPort(web.Listener.Addr().String())
	must(t, err)
	return port
}

// again has the server wait once more.
func (s *slowServer) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.half, s.rest = make(chan struct{}), make(chan struct{})
	s.reached = sync.OnceFunc(func() { close(s.half) })
}

func (s *slowServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	reached, rest := s.reached, s.rest
	s.mu.Unlock()
	w.Header().Set("ETag", `"one"`)
	http.ServeContent(w, r, "", time.Time{}, &slowContent{bytes.NewReader(s.disk), r, reached, rest})
}

// slowContent waits in its middle.
type slowContent struct {
	*bytes.Reader
	request *http.Request
	reached func()
	rest    chan struct{}
}

func (s *slowContent) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, struct{ io.Reader }{s}) }

func (s *slowContent) Read(p []byte) (int, error) {
	if middle := s.Size() / 2; int64(s.Len()) > middle {
		return s.Reader.Read(p[:min(int64(len(p)), int64(s.Len())-middle)])
	}
	s.reached()
	select {
	case <-s.rest:
		return s.Reader.Read(p)
	case <-s.request.Context().Done():
		return 0, s.request.Context().Err()
	}
}
