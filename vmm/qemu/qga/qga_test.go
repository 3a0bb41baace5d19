package qga

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// request is what the fake agent reads.
type request struct {
	Execute   string           `json:"execute"`
	Arguments map[string]int64 `json:"arguments"`
}

// serve answers each request with what reply returns, in a goroutine that ends
// with the connection.
func serve(t *testing.T, reply func(r request) string) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer theirs.Close()
		lines := bufio.NewReader(theirs)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			// As the agent does, drop what was before a sentinel.
			if at := bytes.LastIndexByte(line, sentinel); at >= 0 {
				line = line[at+1:]
			}
			var r request
			if err := json.Unmarshal(line, &r); err != nil {
				t.Errorf("the client sent %q: %v", line, err)
				return
			}
			if _, err := theirs.Write([]byte(reply(r))); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		ours.Close()
		<-done
	})
	return ours
}

func inStep(r request) string { return fmt.Sprintf("\xff{\"return\": %d}\n", r.Arguments["id"]) }

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestSetTime(t *testing.T) {
	want := time.Date(2026, 2, 3, 4, 5, 6, 7, time.UTC)
	var got int64
	conn := serve(t, func(r request) string {
		if r.Execute == "guest-sync-delimited" {
			// What an earlier client had asked for, and its own synchronising.
			return "{\"return\": {}}\n\xff{\"return\": 17}\n\xff\n" + inStep(r)[1:]
		}
		if r.Execute != "guest-set-time" {
			t.Errorf("unexpected command %s", r.Execute)
		}
		got = r.Arguments["time"]
		return "{\"return\": {}}\n"
	})
	c, err := New(testContext(t), conn)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetTime(testContext(t), want); err != nil {
		t.Fatal(err)
	}
	if got != want.UnixNano() {
		t.Errorf("the agent was told %d, want %d", got, want.UnixNano())
	}
}

func TestRefusal(t *testing.T) {
	conn := serve(t, func(r request) string {
		if r.Execute == "guest-sync-delimited" {
			return inStep(r)
		}
		return `{"error": {"class": "CommandNotFound", "desc": "disabled"}}` + "\n"
	})
	c, err := New(testContext(t), conn)
	if err != nil {
		t.Fatal(err)
	}
	var refused *Error
	if err := c.SetTime(testContext(t), time.Now()); !errors.As(err, &refused) || refused.Class != "CommandNotFound" {
		t.Errorf("error %v, want the agent's", err)
	}
}

// TestHostile: whatever the guest says, it ends with an error and little memory.
func TestHostile(t *testing.T) {
	for name, reply := range map[string]string{
		"endless noise":       strings.Repeat("x", maxStale+10),
		"endless line":        "\xff" + strings.Repeat("x", MaxReply+10) + "\n",
		"endless other ids":   strings.Repeat("\xff{\"return\": 1}\n", maxStale/10),
		"endless empty lines": "\xff" + strings.Repeat("\n", 1<<10) + strings.Repeat(" ", MaxReply+10) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			conn := serve(t, func(request) string { return reply })
			if _, err := New(testContext(t), conn); !errors.Is(err, ErrProtocol) {
				t.Errorf("error %v, want ErrProtocol", err)
			}
		})
	}
	for name, reply := range map[string]string{
		"not JSON":  "hello\n",
		"no reply":  "{}\n",
		"a list":    "[]\n",
		"too long":  strings.Repeat("x", MaxReply+10) + "\n",
		"bad error": `{"error": 5}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			conn := serve(t, func(r request) string {
				if r.Execute == "guest-sync-delimited" {
					return inStep(r)
				}
				return reply
			})
			c, err := New(testContext(t), conn)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.SetTime(testContext(t), time.Now()); !errors.Is(err, ErrProtocol) {
				t.Errorf("error %v, want ErrProtocol", err)
			}
		})
	}
}

// TestSilence: an agent that says nothing costs what the context allows.
func TestSilence(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	conn := serve(t, func(request) string {
		cancel(errors.New("enough"))
		return ""
	})
	if _, err := New(ctx, conn); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
}

func FuzzReply(f *testing.F) {
	f.Add([]byte("\xff{\"return\": 1}\n"))
	f.Add([]byte("{\"error\": {}}\n\xff\n\n"))
	f.Fuzz(func(t *testing.T, reply []byte) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			lines := bufio.NewReader(theirs)
			if _, err := lines.ReadBytes('\n'); err == nil {
				theirs.Write(reply)
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if c, err := New(ctx, ours); err == nil {
			_, _ = c.ExecStatus(ctx, 1) // an error, as a rule
			c.Close()
		}
	})
}
