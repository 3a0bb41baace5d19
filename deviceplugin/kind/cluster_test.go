package kind

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/deviceplugin"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/test/cluster"
)

// pods: one asks for a device, the other doesn't.
const pods = `
apiVersion: v1
kind: Pod
metadata: {name: with}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  containers:
  - {name: c, image: "vmlet.test/pause:1", args: [pod-with], resources: {limits: {devices.kubevirt.io/tun: "2"}}}
---
apiVersion: v1
kind: Pod
metadata: {name: without}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  containers:
  - {name: c, image: "vmlet.test/pause:1", args: [pod-without]}
`

// TestRealKubelet: the devices are allocatable, a pod gets one, the kubelet is
// restarted three times, its folder wiped, and a device taken away and given back.
func TestRealKubelet(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a cluster")
	}
	if err := cluster.Unfit(); err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{Logf: t.Logf})
	must(t, err)
	defer c.Stop()
	dev := t.TempDir()
	tun := filepath.Join(dev, "net", "tun")
	makeNode(t, tun)
	m, end := runOn(t, c.KubeletDir(), sysfs.Roots{Dev: dev})
	defer end()

	allocatable := func(want string) {
		t.Helper()
		const path = `jsonpath={.status.capacity.devices\.kubevirt\.io/tun} {.status.allocatable.devices\.kubevirt\.io/tun}`
		var got string
		for ctx.Err() == nil {
			out, err := c.Kubectl(ctx, "get", "node", cluster.NodeName, "-o", path)
			if got = strings.TrimSpace(out); err == nil && got == want {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Fatalf("capacity and allocatable are %q, want %q", got, want)
	}
	allocatable("10 10")
	must(t, c.Apply(ctx, pods))
	for _, name := range []string{"with", "without"} {
		_, err := c.Kubectl(ctx, "wait", "pod", name, "--for=condition=Ready", "--timeout=120s")
		must(t, err)
	}
	if !hasTUN(t, "pod-with") || hasTUN(t, "pod-without") {
		t.Error("who asked for the device doesn't have it, or who didn't does")
	}
	for range 3 {
		before := m.Status()[0].Registrations
		must(t, c.RestartKubelet(ctx))
		for ctx.Err() == nil && (!m.Status()[0].Registered || m.Status()[0].Registrations == before) {
			time.Sleep(10 * time.Millisecond)
		}
		allocatable("10 10")
	}
	allocated(t, m, 1)
	if s := m.Status()[1]; s.Registrations != 0 {
		t.Errorf("%s isn't there and is registered", s.Resource)
	}
	sockets, err := filepath.Glob(filepath.Join(c.KubeletDir(), "device-plugins", "vmlet-*.sock"))
	must(t, err)
	for _, s := range sockets {
		must(t, os.Remove(s))
	}
	must(t, os.Chmod(tun, 0o600))
	allocatable("10 10")
	must(t, os.Remove(tun))
	allocatable("0 0")
	must(t, os.WriteFile(tun, nil, 0o600)) // what is there is no device
	allocatable("10 0")
	must(t, os.Remove(tun))
	makeNode(t, tun)
	allocatable("10 10")
}

// hasTUN reports whether there is a device node among the files of the process
// with this argument.
func hasTUN(t *testing.T, argument string) bool {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	for _, path := range lines {
		line, err := os.ReadFile(path)
		if err != nil || !strings.HasSuffix(string(line), "\x00"+argument+"\x00") {
			continue // it has ended
		}
		st, err := os.Stat(filepath.Join(filepath.Dir(path), "root", "dev", "net", "tun"))
		return err == nil && st.Mode()&os.ModeCharDevice != 0
	}
	t.Errorf("no process has the argument %s", argument)
	return false
}

// allocated checks how many containers have been given a device.
func allocated(t *testing.T, m *deviceplugin.Manager, want uint64) {
	t.Helper()
	if got := m.Status()[0].Allocations; got != want {
		t.Errorf("%d containers were given devices, want %d", got, want)
	}
}

// runOn offers devices to a kubelet until end is called.
func runOn(t *testing.T, kubelet string, roots sysfs.Roots) (m *deviceplugin.Manager, end func()) {
	t.Helper()
	m, err := deviceplugin.NewManager(deviceplugin.Config{
		Folder: filepath.Join(kubelet, "device-plugins"), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}, []deviceplugin.Kind{
		NewNode(Domain+"/tun", "net/tun", roots, 10, ""),
		NewNode(Domain+"/kvm", "kvm", roots, 10, ""), // there is none
	})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { m.Run(ctx); close(done) }()
	return m, func() { cancel(); <-done }
}
