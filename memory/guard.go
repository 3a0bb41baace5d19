package memory

import (
	"fmt"
	"runtime/debug"
)

// copyGuarded copies into a mapping. The SIGBUS of a file that was truncated,
// or of a control group that has no huge pages left, is an error rather than
// the end of the process. The setting is of this goroutine alone.
func copyGuarded(dst, src []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface {
			error
			Addr() uintptr // only faults have one
		}:
			err = fmt.Errorf("the mapped file was truncated, or has no huge pages left: %w", r)
		default:
			panic(r)
		}
	}()
	copy(dst, src)
	return nil
}
