package kind

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/deviceplugin"
	"github.com/vmlet/vmlet/deviceplugin/kubelettest"
	"github.com/vmlet/vmlet/sysfs"
)

// BenchmarkHealth is the time from a device's coming or going until the kubelet
// has been told.
func BenchmarkHealth(b *testing.B) {
	dev, folder := b.TempDir(), b.TempDir()
	kubelet := kubelettest.New(folder)
	if err := kubelet.Start(); err != nil {
		b.Fatal(err)
	}
	n := NewNode(contract.ResourceKVM, "kvm", sysfs.Roots{Dev: dev}, DefaultCount, "")
	m, err := deviceplugin.NewManager(deviceplugin.Config{Folder: folder, Log: slog.New(slog.DiscardHandler)}, []deviceplugin.Kind{n})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { m.Run(ctx); close(done) }()
	defer func() { cancel(); <-done; kubelet.Stop() }()
	path := filepath.Join(dev, "kvm")
	var times []time.Duration
	change := func(change func() error, healthy int) {
		begin := time.Now()
		if err := change(); err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if _, err := kubelet.Wait(ctx, n.Resource(), func(r kubelettest.Resource) bool { return r.Registered && len(r.Healthy) == healthy }); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(begin))
	}
	for b.Loop() {
		change(func() error { return os.Symlink("/dev/null", path) }, DefaultCount)
		change(func() error { return os.Remove(path) }, 0)
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
}
