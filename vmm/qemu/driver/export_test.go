package driver

import (
	"context"

	"github.com/vmlet/vmlet/shim/server/control"
)

// Reset presses the reset button, which the shim never does.
func Reset(ctx context.Context, m control.Machine) error {
	return m.(*machine).execute(ctx, "system_reset", nil, nil)
}

// AwaitReset returns when a guest that stands still has been reset.
func AwaitReset(ctx context.Context, m control.Machine) error {
	for {
		s, err := m.(*machine).status(ctx)
		if err != nil || s.Status == "prelaunch" {
			return err
		}
	}
}
