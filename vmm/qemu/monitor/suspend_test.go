package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu/qga"
	"github.com/vmlet/vmlet/vmm/qemu/qga/qgatest"
)

// TestSuspend: a guest that does so says nothing and is gone, and one that can't says why.
func TestSuspend(t *testing.T) {
	const able = `{"return": {"version": "9.0", "supported_commands": [{"name": "guest-suspend-disk", "enabled": true}]}}`
	for name, test := range map[string]struct {
		info, answer string // no answer: the VM ends
		want         string // empty: it does
		wraps        error
	}{
		"suspends":       {able, "", "", nil},
		"no swap":        {able, `{"error": {"class": "GenericError", "desc": "the requested suspend mode is not supported by the guest"}}`, "the guest can't suspend itself to disk: guest agent command guest-suspend-disk", vmm.ErrGuestCannot},
		"no command":     {`{"return": {"version": "2.0", "supported_commands": []}}`, "", "its agent 2.0 lacks guest-suspend-disk", vmm.ErrGuestCannot},
		"not allowed":    {strings.ReplaceAll(able, "true", "false"), "", "does not allow it", vmm.ErrGuestCannot},
		"refuses to say": {qgatest.NotFound, "", "guest-info", nil},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			asked := false
			var agent *qga.Client
			conn := qgatest.Serve(t, func(command string, _ json.RawMessage) string {
				if command == "guest-info" {
					return test.info
				}
				asked = command == "guest-suspend-disk"
				if test.answer == "" {
					go agent.Close()
				}
				return test.answer
			})
			var err error
			agent, err = qga.New(ctx, conn)
			if err != nil {
				t.Fatal(err)
			}
			defer agent.Close()
			err = suspend(ctx, agent)
			switch {
			case test.want == "" && (err != nil || !asked):
				t.Errorf("error %v, asked %t", err, asked)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error %v, want %q", err, test.want)
			case test.wraps != nil && !errors.Is(err, test.wraps):
				t.Errorf("error %v is no %v", err, test.wraps)
			}
		})
	}
}
