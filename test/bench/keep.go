package main

import (
	"context"
	"fmt"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/guest"
	"os"
	"time"
)

// keepRunning: how long a guest stands still that goes on after its save, beside the
// whole save, for more and more memory touched.
func (b *bench) keepRunning() error {
	b, err := b.tiny(guest.PVHOptions{}, 4<<30)
	if err != nil {
		return err
	}
	for _, touched := range []uint64{100 << 20, 400 << 20, 1600 << 20} {
		if err := b.keptRunning(touched); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) keptRunning(touched uint64) error {
	made, err := b.vmlet("")()
	if err != nil {
		return err
	}
	v := made.(*vmlet)
	defer closeAll([]system{v})
	if _, err := b.untilNextByte(v.console(), func() error { return v.boot(b.ctx) }); err != nil {
		return err
	}
	if err := v.touch(touched); err != nil {
		return err
	}
	var stops, saves sample
	for n := -1; n < b.runs; n++ {
		to := b.image("kept", n)
		begin := time.Now()
		stopped, err := v.saveAndKeep(b.ctx, to)
		took := time.Since(begin)
		if rerr := os.RemoveAll(to); err == nil {
			err = rerr
		}
		if err != nil {
			return err
		}
		if n >= 0 {
			stops, saves = append(stops, stopped), append(saves, took)
		}
	}
	b.table.row(fmt.Sprintf("save --keep-running, %d MiB of random pages: the guest stands still", touched>>20), stops.String(), "–", "–",
		fmt.Sprintf("the whole save %s: %s times as long", saves, ratio(saves, stops)))
	return nil
}

// saveAndKeep saves the VM, which goes on, and returns how long it stood still, by the
// agent's word.
func (v *vmlet) saveAndKeep(ctx context.Context, to string) (time.Duration, error) {
	client, err := v.client()
	if err != nil {
		return 0, err
	}
	defer client.close()
	stream, err := client.SaveVM(ctx, &nodev1.SaveVMRequest{Name: "bench", Directory: to, KeepRunning: true})
	if err != nil {
		return 0, err
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return 0, fmt.Errorf("save into %s: %w", to, err)
		}
		if result := r.GetResult(); result != nil {
			return time.Duration(result.GetStoppedMs()) * time.Millisecond, nil
		}
	}
}
