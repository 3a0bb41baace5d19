package qmp

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrDisconnected is the end of the connection, whatever brought it about:
	// it wraps that cause, such as io.EOF, syscall.ECONNRESET, syscall.EPIPE,
	// net.ErrClosed after [Client.Close], or ErrProtocol.
	ErrDisconnected = errors.New("monitor disconnected")

	// ErrProtocol means that the other side sent what is not QMP. The
	// connection has ended with it.
	ErrProtocol = errors.New("not the QEMU machine protocol")

	// ErrMessageTooLong is an ErrProtocol: a message went beyond the bound that
	// WithMaxMessageSize sets.
	ErrMessageTooLong = fmt.Errorf("%w: message too long", ErrProtocol)

	// ErrNoGreeting means that the connection was made and no greeting came
	// before the context ended. It wraps the context's error.
	ErrNoGreeting = errors.New("no greeting")

	// ErrNotSent means that a call failed before any of it was sent, so that
	// the command has not been carried out and will not be. Other errors that
	// are no *Error leave that open.
	ErrNotSent = errors.New("command not sent")

	// ErrSilent means that QEMU has not answered for as long as WithPatience says. The
	// connection is as good as before: a reply that comes later is dropped.
	ErrSilent = errors.New("QEMU has not answered")

	// ErrSubscriptionClosed is returned by Next after the subscription's Close.
	ErrSubscriptionClosed = errors.New("subscription closed")
)

// ErrorClass is the class of an error that QEMU replied with (QapiErrorClass in
// QEMU's qapi/error.json). Classes are for programs and stay; the descriptions are
// for people and change. A class is an error itself, so that
//
//	errors.Is(err, qmp.DeviceNotFound)
//
// asks for the class of an [*Error] anywhere in err. Unknown classes are carried.
type ErrorClass string

// The classes that QEMU has. Most errors are GenericError.
const (
	GenericError    ErrorClass = "GenericError"
	CommandNotFound ErrorClass = "CommandNotFound"
	DeviceNotActive ErrorClass = "DeviceNotActive"
	DeviceNotFound  ErrorClass = "DeviceNotFound"
	KVMMissingCap   ErrorClass = "KVMMissingCap"
)

// Error returns the class's name.
func (c ErrorClass) Error() string { return string(c) }

// Error is QEMU's refusal of a command: the command arrived and failed.
type Error struct {
	Command string     // the command that failed
	Class   ErrorClass // what programs decide by
	Desc    string     // what QEMU says to people, cut after 4 KiB
}

// maxDesc bounds what is kept of a refusal's words, in bytes: they are a line or two to
// a person, and may have a path in them.
const maxDesc = 4 << 10

func clip(desc string) string {
	if len(desc) <= maxDesc {
		return desc
	}
	return strings.ToValidUTF8(desc[:maxDesc], "") + "..."
}

// Error names the command, the class unless it is the generic one, and QEMU's words.
func (e *Error) Error() string {
	if e.Class == GenericError {
		return fmt.Sprintf("QMP command %s: %s", e.Command, e.Desc)
	}
	return fmt.Sprintf("QMP command %s: %s (%s)", e.Command, e.Desc, e.Class)
}

// Unwrap returns the class, for errors.Is.
func (e *Error) Unwrap() error { return e.Class }

// MissedError tells a subscriber that it fell behind: so many events were
// dropped since the last one it had. The subscription goes on after it.
type MissedError struct {
	Dropped uint64
}

// Error gives the number of events lost.
func (e *MissedError) Error() string {
	return fmt.Sprintf("subscriber fell behind: %d events were dropped", e.Dropped)
}

func disconnected(cause error) error {
	return fmt.Errorf("%w: %w", ErrDisconnected, cause)
}
