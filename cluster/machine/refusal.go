package machine

import (
	"fmt"
)

// refused is a fault that the VM's owner has to mend.
type refused struct{ event, message string }

func (r refused) Error() string { return r.message }

func refusal(event, format string, args ...any) error {
	return refused{event, fmt.Sprintf(format, args...)}
}
