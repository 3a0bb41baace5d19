package main

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// What guest.ReadWitness reads: two blocks, the record and what was found in its place.
const (
	witnessBlock     = 4096
	witnessRecord    = "witness %s %d end\n"
	witnessIntrusion = "boot %s wrote record %d and found in its place: %s"
)

// witness counts on a disk for as long as the machine runs, past all caches of the guest. Each record has
// the ID of this boot and a number above that of the record before it, of whichever boot. A record that
// this boot did not write, after it has written one, is another writer's: that is noted beside it.
func witness(device string, every time.Duration) error {
	disk, err := os.OpenFile(device, os.O_RDWR|unix.O_DIRECT|unix.O_DSYNC, 0)
	if err != nil {
		return err
	}
	defer disk.Close()
	block, err := unix.Mmap(-1, 0, witnessBlock, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // aligned
	if err != nil {
		return err
	}
	put := func(text string, at int64) error {
		clear(block)
		copy(block, text)
		_, err := disk.WriteAt(block, at)
		return err
	}
	boot := attribute("/proc/sys/kernel/random/boot_id")
	var last string
	number, noted := 0, false
	for tick := time.NewTicker(every); ; <-tick.C {
		if _, err := disk.ReadAt(block, 0); err != nil {
			return err
		}
		found := string(bytes.TrimRight(block, "\x00"))
		if last != "" && found != last && !noted {
			if err := put(fmt.Sprintf(witnessIntrusion, boot, number, found), witnessBlock); err != nil {
				return err
			}
			noted = true
		}
		var other string
		var n int
		_, _ = fmt.Sscanf(found, witnessRecord, &other, &n) // none is there at first
		number = max(number, n) + 1
		last = fmt.Sprintf(witnessRecord, boot, number)
		if err := put(last, 0); err != nil {
			return err
		}
	}
}
