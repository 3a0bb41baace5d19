package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmlet/vmlet/agent/config"
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
	yes := true
	c, err := config.Config{DevicePlugins: config.DevicePluginsConfig{Enabled: &yes, KubeletDir: dir, Counts: map[string]int{"tun": 3}}}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	k := kubelettest.New(filepath.Join(dir, "device-plugins"))
	if err := k.Start(); err != nil {
		t.Fatal(err)
	}
	defer k.Stop()
	ctx, cancel := suites.Wait(t.Context(), t, patience)
	done := make(chan struct{})
	go func() { offerDevices(ctx, c, slog.New(slog.DiscardHandler), nil, new(offers)); close(done) }()
	defer func() { cancel(); <-done }()
	if _, err := k.Wait(ctx, "devices.kubevirt.io/tun", func(r kubelettest.Resource) bool { return r.Registered && len(r.Healthy) == 3 }); err != nil {
		t.Fatal(err)
	}
}
