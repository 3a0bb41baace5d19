package chtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// Variable is the environment variable that has the program's [Knobs] as JSON.
// Where the environment doesn't get through, the same is read from the file that
// is named as the program is, with ".json" after it. The file is read anew at each
// request, so that a test can change its mind.
const Variable = "VMLET_CLOUD_HYPERVISOR_STANDIN"

// Knobs are what a test wants to go wrong, or otherwise than usual. The zero value
// is a version 53 of which nothing is wrong. Times are in milliseconds. Calls are
// named without their prefix: "vm.snapshot".
type Knobs struct {
	// Version is what --version and vmm.ping say; "" is 53.0.0.
	Version string `json:"version,omitempty"`
	// Slow is how long calls take before anything is done; vm.snapshot between its
	// last event and its first file.
	Slow map[string]int `json:"slow_ms,omitempty"`
	// Refuse lets calls fail with a 500 and these causes, before anything is done.
	Refuse map[string][]string `json:"refuse,omitempty"`
	// Answer is sent instead of what a call would answer, and nothing is done.
	Answer map[string]Answer `json:"answer,omitempty"`
	// Die ends the VMM at a call.
	Die map[string]Death `json:"die,omitempty"`
	// Flood is how many events that mean nothing come before each call's own.
	Flood int `json:"flood,omitempty"`
	// Spill is how many bytes of a line go to the standard error and to the terminal
	// before a call's answer, Junk how many that are no event to where events go. Hangup
	// closes the API at a call, and lives on.
	Spill  map[string]int  `json:"spill,omitempty"`
	Junk   map[string]int  `json:"junk,omitempty"`
	Hangup map[string]bool `json:"hangup,omitempty"`
	// Tick is how long the guest waits between counts; 0 is 20.
	Tick int `json:"tick_ms,omitempty"`
	// Eject is how long the guest takes to let go of a device or a CPU that is
	// removed, beyond a tick.
	Eject int `json:"eject_ms,omitempty"`
	// AnyTap takes descriptors for network devices that are no taps, for tests
	// that may make none.
	AnyTap bool `json:"any_tap,omitempty"`
}

// Answer is an answer that the real one doesn't give.
type Answer struct {
	Status int `json:"status,omitempty"` // 0: 200
	// Body is repeated until there are Size bytes.
	Body string `json:"body,omitempty"`
	Size int    `json:"size,omitempty"`
	// Raw sends the body with no status line and no headers.
	Raw bool `json:"raw,omitempty"`
	// Hang answers nothing, and leaves the connection open.
	Hang bool `json:"hang,omitempty"`
}

// Death is how the VMM ends.
type Death struct {
	Code int `json:"code,omitempty"`
	// Signal is one that it sends itself instead of leaving with a code.
	Signal int `json:"signal,omitempty"`
	// Words are its last, to standard error.
	Words string `json:"words,omitempty"`
	// Done lets the call be carried out first: the VMM dies with the answer unsent.
	Done bool `json:"done,omitempty"`
}

// parseKnobs is strict: a knob that is misspelt turns nothing.
func parseKnobs(data []byte) (Knobs, error) {
	var k Knobs
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&k); err != nil {
		return Knobs{}, fmt.Errorf("knobs: %w", err)
	}
	return k, nil
}

// programKnobs reads those of a program. One that reads half a file while a test
// writes it keeps to what it had.
func programKnobs(program, variable string) func() Knobs {
	var mu sync.Mutex
	var last Knobs
	return func() Knobs {
		mu.Lock()
		defer mu.Unlock()
		data := []byte(variable)
		if variable == "" {
			file, err := os.ReadFile(program + ".json")
			if errors.Is(err, fs.ErrNotExist) {
				return Knobs{}
			}
			data = file
		}
		if k, err := parseKnobs(data); err == nil {
			last = k
		}
		return last
	}
}

// Write puts the knobs beside a program, see [Variable].
func (k Knobs) Write(program string) error {
	data, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return fmt.Errorf("knobs: %w", err)
	}
	next := program + ".json.next"
	if err := os.WriteFile(next, append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(next, program+".json")
}

func (k Knobs) version() string {
	if k.Version != "" {
		return k.Version
	}
	return "53.0.0"
}
