package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

const (
	// countAt is where the guest of renewals counts, in its memory and so in the file of that.
	countAt = 0x7000
	// renewals is how many there are for each run of other rows: a worst one of five says little.
	renewals = 10
)

// countingDisk is a disk whose boot sector counts in memory, as often as it can:
//
//	xor ax, ax; mov ds, ax; again: inc dword [countAt]; jmp again
func (b *bench) countingDisk() (string, error) {
	image := make([]byte, 1<<20)
	copy(image, []byte{0x31, 0xc0, 0x8e, 0xd8, 0x66, 0xff, 0x06, countAt & 0xff, countAt >> 8, 0xeb, 0xf9})
	binary.LittleEndian.PutUint16(image[510:], 0xaa55)
	path := filepath.Join(b.work, "counting.img")
	return path, os.WriteFile(path, image, 0o644)
}

// renew: how long a guest that counts without end is stopped when its VMM is renewed, with more and more memory touched.
func (b *bench) renew() error {
	disk, err := b.countingDisk()
	if err != nil {
		return err
	}
	for _, touched := range []uint64{100 << 20, 1600 << 20} {
		of := *b
		of.machine = machine{memory: 4 << 30, extra: map[string]any{
			"boot":  map[string]any{},
			"disks": []any{map[string]any{"name": "root", "path": disk, "format": "raw"}},
		}}
		if err := of.renewed(touched); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) renewed(touched uint64) error {
	made, err := b.vmlet("")()
	if err != nil {
		return err
	}
	v := made.(*vmlet)
	defer closeAll([]system{v})
	if err := v.boot(b.ctx); err != nil {
		return err
	}
	if err := v.touch(touched); err != nil {
		return err
	}
	c, err := v.counter()
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.await(b.ctx); err != nil {
		return err
	}
	var stood, said, took sample
	for range renewals * b.runs {
		c.begin()
		begin := time.Now()
		word, err := v.renew(b.ctx)
		if err != nil {
			return err
		}
		took, said = append(took, time.Since(begin)), append(said, word)
		stood = append(stood, c.longest())
	}
	c.begin()
	time.Sleep(took.median())
	b.table.row(fmt.Sprintf("renew, %d MiB of random pages: the guest is stopped", touched>>20), stood.String(), "–", "–",
		fmt.Sprintf("worst %s; by the agent's word %s; the whole renewal %s; longest without one %s; aim 30 ms", ms(slices.Max(stood)), said.String(), took.String(), ms(c.longest())))
	return nil
}

// renew renews the VM's VMM, and returns how long the guest stood still, by the agent's word.
func (v *vmlet) renew(ctx context.Context) (time.Duration, error) {
	client, err := v.client()
	if err != nil {
		return 0, err
	}
	defer client.close()
	r, err := client.RenewVM(ctx, &nodev1.RenewVMRequest{Name: "bench"})
	return time.Duration(r.GetResult().GetStoppedUs()) * time.Microsecond, err
}

// counter looks at a guest's counter every tenth of a millisecond.
type counter struct {
	mapped []byte
	max    atomic.Int64 // the longest time without a count since begin
	reset  chan struct{}
	ended  chan struct{}
}

func (v *vmlet) counter() (*counter, error) {
	path, err := v.ramFile()
	if err != nil {
		return nil, err
	}
	ram, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer ram.Close()
	c := &counter{reset: make(chan struct{}), ended: make(chan struct{})}
	if c.mapped, err = unix.Mmap(int(ram.Fd()), 0, 16*os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	go c.look()
	return c, nil
}

func (c *counter) value() uint32 {
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&c.mapped[countAt])))
}

func (c *counter) look() {
	last, since := c.value(), time.Now()
	for {
		select {
		case <-c.reset:
			last, since = c.value(), time.Now()
			c.max.Store(0)
		case <-c.ended:
			return
		default:
		}
		time.Sleep(100 * time.Microsecond)
		if now := c.value(); now != last {
			c.max.Store(max(c.max.Load(), int64(time.Since(since))))
			last, since = now, time.Now()
		}
	}
}

func (c *counter) begin()                 { c.reset <- struct{}{} }
func (c *counter) longest() time.Duration { return time.Duration(c.max.Load()) }

// await returns when the guest counts.
func (c *counter) await(ctx context.Context) error {
	for before := c.value(); c.value() == before; time.Sleep(time.Millisecond) {
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *counter) close() {
	close(c.ended)
	time.Sleep(time.Millisecond)
	_ = unix.Munmap(c.mapped)
}
