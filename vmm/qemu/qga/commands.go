package qga

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Ask has the agent carry out a command that changes nothing, or one of no other method;
// its answer is decoded into result, which may be nil. An error that is an *Error or wraps
// ErrUnfit leaves the agent in step.
func (c *Client) Ask(ctx context.Context, command string, args, result any) error {
	if args == nil {
		args = struct{}{}
	}
	return c.within(ctx, func() error { return c.execute(command, args, result) })
}

// Ping returns when the agent has answered.
func (c *Client) Ping(ctx context.Context) error { return c.Ask(ctx, "guest-ping", nil, nil) }

// SetTime sets the guest's clock, and its hardware clock with it.
func (c *Client) SetTime(ctx context.Context, now time.Time) error {
	return c.Ask(ctx, "guest-set-time", map[string]int64{"time": now.UnixNano()}, nil)
}

// frozen is the agent's word for file systems that are (GuestFsfreezeStatus in
// qga/qapi-schema.json).
const frozen = "frozen"

// Frozen tells whether the guest's file systems are frozen.
func (c *Client) Frozen(ctx context.Context) (bool, error) {
	var status string
	err := c.Ask(ctx, "guest-fsfreeze-status", nil, &status)
	return status == frozen, err
}

// Freeze freezes all file systems. While they are frozen the agent carries out little else.
func (c *Client) Freeze(ctx context.Context) error {
	return c.Ask(ctx, "guest-fsfreeze-freeze", nil, nil)
}

// Thaw ends that; that nothing is frozen is no error.
func (c *Client) Thaw(ctx context.Context) error {
	return c.Ask(ctx, "guest-fsfreeze-thaw", nil, nil)
}

// Exec starts a program of the guest's, with its arguments, and keeps what it prints.
func (c *Client) Exec(ctx context.Context, command []string) (pid int64, err error) {
	if len(command) == 0 {
		return 0, fmt.Errorf("guest agent command guest-exec: no program is named")
	}
	args := map[string]any{"path": command[0], "capture-output": true}
	if len(command) > 1 {
		args["arg"] = command[1:]
	}
	var started struct {
		PID int64 `json:"pid"`
	}
	err = c.Ask(ctx, "guest-exec", args, &started)
	return started.PID, err
}

// ExecStatus is what has become of a program.
type ExecStatus struct {
	Exited   bool   `json:"exited"`
	ExitCode int    `json:"exitcode"`
	Signal   int    `json:"signal"`
	Output   []byte `json:"out-data"`
	Errors   []byte `json:"err-data"`
}

// Code is as a shell says it.
func (s ExecStatus) Code() int {
	if s.Signal != 0 {
		return 128 + s.Signal
	}
	return s.ExitCode
}

// ExecStatus asks for it. Of one that has ended the agent forgets all that it answers.
// What a program prints must fit into MaxReply, or the agent is out of step.
func (c *Client) ExecStatus(ctx context.Context, pid int64) (s ExecStatus, err error) {
	err = c.Ask(ctx, "guest-exec-status", map[string]int64{"pid": pid}, &s)
	return s, err
}

// refusalTime is how long an agent may take to refuse a reboot: one that reboots says nothing.
const refusalTime = 2 * time.Second

// Reboot asks the guest to reboot.
func (c *Client) Reboot(ctx context.Context) error {
	return c.unlessRefused(ctx, refusalTime, "guest-shutdown", map[string]string{"mode": "reboot"})
}

// suspendRefusalTime is how long an agent may take to find that its guest can't suspend itself:
// it tries the guest's several ways one after the other.
const suspendRefusalTime = 15 * time.Second

// SuspendDisk asks the guest to write its memory to its own disk and to power off. One that
// does so says nothing.
func (c *Client) SuspendDisk(ctx context.Context) error {
	return c.unlessRefused(ctx, suspendRefusalTime, "guest-suspend-disk", nil)
}

// unlessRefused has the agent carry out a command that it answers only if it refuses.
func (c *Client) unlessRefused(ctx context.Context, within time.Duration, command string, args any) error {
	waiting, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := c.Ask(waiting, command, args, nil)
	if refused := new(Error); err == nil || errors.As(err, &refused) || ctx.Err() != nil {
		return err
	}
	return nil
}

// SetPassword sets a user's password; it is sent as it is, over a channel that only this
// machine has.
func (c *Client) SetPassword(ctx context.Context, user, password string) error {
	return c.Ask(ctx, "guest-set-user-password", map[string]any{"username": user, "password": []byte(password), "crypted": false}, nil)
}

// AddKeys adds SSH keys to those that may log in as a user; with reset they are the only ones.
func (c *Client) AddKeys(ctx context.Context, user string, keys []string, reset bool) error {
	return c.Ask(ctx, "guest-ssh-add-authorized-keys", map[string]any{"username": user, "keys": keys, "reset": reset}, nil)
}
