package podvm

import (
	"log/slog"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"golang.org/x/time/rate"
)

// repeatInterval is how often a throttledLog repeats a message.
const repeatInterval = time.Hour

// throttledLog logs each message once, and then at intervals, whatever its error says: what
// it is about can fail as often, and as differently, as it likes. It is for one goroutine.
type throttledLog struct {
	log      *slog.Logger
	messages map[string]*rate.Sometimes
}

func newThrottledLog(log *slog.Logger) *throttledLog {
	return &throttledLog{log: log, messages: make(map[string]*rate.Sometimes)}
}

// warn logs a message, which is constant, and why; args are as slog's.
func (l *throttledLog) warn(message string, why error, args ...any) {
	seldom := l.messages[message]
	if seldom == nil {
		seldom = &rate.Sometimes{First: 1, Interval: repeatInterval}
		l.messages[message] = seldom
	}
	seldom.Do(func() { l.log.Warn(message, append(args, "error", fault.Clip(why.Error(), fault.MaxLogged))...) })
}
