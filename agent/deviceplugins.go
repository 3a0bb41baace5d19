package agent

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/vmlet/vmlet/agent/config"
	"github.com/vmlet/vmlet/agent/nodeobject"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/deviceplugin"
	"github.com/vmlet/vmlet/internal/uevent"
)

// offerDevices offers devices to the kubelet until ctx ends, if it is to. What a
// virt-handler offers, too, is left to it while that is on the node; a nil
// neighbour is none. What is offered at present is in now.
func offerDevices(ctx context.Context, c config.Config, log *slog.Logger, neighbour *nodeobject.Neighbour, now *offers) {
	if c.DevicePlugins.Enabled == nil || !*c.DevicePlugins.Enabled {
		return
	}
	kinds := c.DeviceKinds().Kinds()
	if neighbour == nil {
		offer(ctx, c, log, kinds, now)
		return
	}
	var theirs, ours []deviceplugin.Kind
	for _, k := range kinds {
		// A virt-handler offers what is of this domain.
		if strings.HasPrefix(k.Resource(), contract.DeviceDomain+"/") {
			theirs = append(theirs, k)
		} else {
			ours = append(ours, k)
		}
	}
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() { offer(ctx, c, log, ours, now) })
	both.Go(func() { neighbour.RunUnlessAside(ctx, func(ctx context.Context) { offer(ctx, c, log, theirs, now) }) })
}

// offer offers devices of some kinds until ctx ends.
func offer(ctx context.Context, c config.Config, log *slog.Logger, kinds []deviceplugin.Kind, now *offers) {
	changes, stop, err := uevent.Listen(ctx, "pci", "mdev", "usb", "vfio")
	if err != nil {
		log.Warn("a device that is bound to another driver is seen when its device node changes", "error", err)
	} else {
		defer stop()
	}
	m, err := deviceplugin.NewManager(deviceplugin.Config{Folder: c.DevicePlugins.Folder(), Log: log, Changes: changes}, kinds)
	if err != nil {
		log.Error("no devices are offered to the kubelet", "error", err)
		return
	}
	defer now.add(m)()
	m.Run(ctx)
}
