package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmlet/vmlet/deviceplugin/kubelettest"
	"github.com/vmlet/vmlet/test/suites"
)

// The devices of this machine are offered under another folder of the kubelet's.
func TestDevicesAreOffered(t *testing.T) {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	f.Close()
	dir, err := os.MkdirTemp("", "ku")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c, err := load(t, "devicePlugins: {enabled: true, kubeletDir: "+dir+", counts: {tun: 3}}")
	if err != nil {
		t.Fatal(err)
	}
	if c, err = c.complete(); err != nil {
		t.Fatal(err)
	}
	if err := c.validate(); err != nil {
		t.Fatal(err)
	}
	k := kubelettest.New(filepath.Join(dir, "device-plugins"))
	if err := k.Start(); err != nil {
		t.Fatal(err)
	}
	defer k.Stop()
	ctx, cancel := suites.Wait(t.Context(), t, patience)
	done := make(chan struct{})
	go func() { c.offerDevices(ctx, slog.New(slog.DiscardHandler), nil, new(offers)); close(done) }()
	defer func() { cancel(); <-done }()
	if _, err := k.Wait(ctx, "devices.kubevirt.io/tun", func(r kubelettest.Resource) bool { return r.Registered && len(r.Healthy) == 3 }); err != nil {
		t.Fatal(err)
	}
}

// Outside Kubernetes nothing is offered unless that is asked for.
func TestDevicesAreOfferedInPods(t *testing.T) {
	enabled := func(text string) bool {
		c, err := load(t, text)
		if err == nil {
			c, err = c.complete()
		}
		if err != nil {
			t.Fatal(err)
		}
		return *c.DevicePlugins.Enabled
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "") // so that it is restored
	os.Unsetenv("KUBERNETES_SERVICE_HOST")
	if enabled("") || !enabled("devicePlugins: {enabled: true}") {
		t.Error("outside Kubernetes")
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	if !enabled("") || enabled("devicePlugins: {enabled: false}") {
		t.Error("in a pod")
	}
}
