package deviceplugin_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/vmlet/vmlet/deviceplugin"
	"github.com/vmlet/vmlet/deviceplugin/kubelettest"
)

// served is a kubelet, and a server with a thousand devices beside it.
func served(b *testing.B) *kubelettest.Kubelet {
	b.Helper()
	folder := b.TempDir()
	kubelet := kubelettest.New(folder)
	if err := kubelet.Start(); err != nil {
		b.Fatal(err)
	}
	m, err := deviceplugin.NewManager(deviceplugin.Config{Folder: folder, Log: slog.New(slog.DiscardHandler)},
		[]deviceplugin.Kind{&fakeKind{resource: resource, file: b.TempDir() + "/kind", find: func(context.Context) []deviceplugin.Device { return devices(1000) }}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { m.Run(ctx); close(done) }()
	b.Cleanup(func() { cancel(); <-done; kubelet.Stop() })
	registered(b, kubelet)
	return kubelet
}

func registered(b *testing.B, kubelet *kubelettest.Kubelet) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := kubelet.Wait(ctx, resource, func(r kubelettest.Resource) bool { return r.Registered && len(r.Healthy) > 0 }); err != nil {
		b.Fatal(err)
	}
}

// quantiles reports those of times, in microseconds.
func quantiles(b *testing.B, times []time.Duration) {
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkAllocate asks as the kubelet does, over the socket.
func BenchmarkAllocate(b *testing.B) {
	kubelet := served(b)
	var times []time.Duration
	for i := 0; b.Loop(); i++ {
		begin := time.Now()
		if _, err := kubelet.Allocate(b.Context(), resource, []string{fmt.Sprintf("d%d", i%1000)}); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(begin))
	}
	quantiles(b, times)
}

// BenchmarkRestart is the time from a kubelet's start until it has the devices.
func BenchmarkRestart(b *testing.B) {
	kubelet := served(b)
	var times []time.Duration
	for b.Loop() {
		kubelet.Stop()
		begin := time.Now()
		if err := kubelet.Start(); err != nil {
			b.Fatal(err)
		}
		registered(b, kubelet)
		times = append(times, time.Since(begin))
	}
	quantiles(b, times)
}

// BenchmarkWiped is the time until a plugin whose socket was removed is back.
func BenchmarkWiped(b *testing.B) {
	kubelet := served(b)
	var times []time.Duration
	for b.Loop() {
		before := kubelet.Resource(resource).Registrations
		begin := time.Now()
		if err := kubelet.WipePlugins(); err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		_, err := kubelet.Wait(ctx, resource, registeredAgain(before+1))
		cancel()
		if err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(begin))
	}
	quantiles(b, times)
}
