package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// TestRelay: writing goes on while nobody reads, what is too much is left out with
// a word, and all the rest arrives.
func TestRelay(t *testing.T) {
	read, write := io.Pipe()
	r := newRelay(write)
	piece := bytes.Repeat([]byte("x"), 64<<10)
	for range 3 * maxRelayed / len(piece) {
		if n, err := r.Write(piece); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	got := make(chan string)
	go func() {
		all, _ := io.ReadAll(read)
		got <- string(all)
	}()
	for range 100 { // until there is room again
		r.Write([]byte("y"))
	}
	r.Write([]byte("the end\n"))
	r.end(time.Minute)
	r.Write([]byte("too late"))
	write.Close()
	all := <-got
	if x := strings.Count(all, "x"); x < maxRelayed || x > 2*maxRelayed {
		t.Errorf("%d bytes arrived, %d are kept", x, maxRelayed)
	}
	if strings.Count(all, "bytes were dropped here") == 0 {
		t.Errorf("that something is left out is not said")
	}
}

// TestRelayWithoutReader: the end is not waited for for ever, and a reader that is
// gone ends nothing.
func TestRelayWithoutReader(t *testing.T) {
	_, write := io.Pipe()
	r := newRelay(write)
	r.Write([]byte("nobody reads this"))
	r.end(time.Millisecond)

	readEnd, writeEnd, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writeEnd.Close()
	readEnd.Close()
	r = newRelay(writeEnd)
	if _, err := r.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	r.end(time.Minute)
	select {
	case <-r.done:
	default:
		t.Error("it has not ended")
	}
	var faulty *os.PathError
	if _, err := writeEnd.Write([]byte("x")); !errors.As(err, &faulty) {
		t.Errorf("writing to nobody: %v", err)
	}
}
