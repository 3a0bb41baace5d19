package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// pattern is a stretch of memory that was filled with pseudorandom words from a
// seed. The zero pattern is none.
type pattern struct {
	memory []byte
	seed   uint64
}

// fill takes "MIB SEED", both decimal, the seed not 0. It lets go of what was
// filled before.
func (p *pattern) fill(args []string) (string, error) {
	if len(args) != 2 {
		return "", errors.New("usage: mem MIB SEED")
	}
	mib, err := strconv.ParseUint(args[0], 10, 16)
	if err != nil || mib == 0 {
		return "", fmt.Errorf("mem: %q is no number of MiB", args[0])
	}
	seed, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil || seed == 0 {
		return "", fmt.Errorf("mem: %q is no seed: want a number from 1", args[1])
	}
	if p.memory != nil {
		if err := unix.Munmap(p.memory); err != nil {
			return "", fmt.Errorf("mem: %w", err)
		}
		*p = pattern{}
	}
	memory, err := unix.Mmap(-1, 0, int(mib)<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return "", fmt.Errorf("mem: %d MiB: %w", mib, err)
	}
	*p = pattern{memory, seed}
	for x, rest := seed, memory; len(rest) > 0; rest = rest[8:] {
		x = xorshift(x)
		binary.LittleEndian.PutUint64(rest, x)
	}
	return fmt.Sprintf("filled %d MiB", mib), nil
}

// verify compares memory with the pattern and answers with the sum of its words
// as they were found.
func (p *pattern) verify([]string) (string, error) {
	if p.memory == nil {
		return "", errors.New("verify: nothing was filled: use mem first")
	}
	var sum uint64
	x := p.seed
	for at := 0; at < len(p.memory); at += 8 {
		x = xorshift(x)
		found := binary.LittleEndian.Uint64(p.memory[at:])
		if found != x {
			return fmt.Sprintf("corrupt at %#x: %016x, want %016x", at, found, x), nil
		}
		sum += found
	}
	return fmt.Sprintf("verified %016x", sum), nil
}

// xorshift is one step of Marsaglia's 64-bit generator (Xorshift RNGs, Journal
// of Statistical Software 8, 2003).
func xorshift(x uint64) uint64 {
	x ^= x << 13
	x ^= x >> 7
	x ^= x << 17
	return x
}
