package vm

import (
	"github.com/vmlet/vmlet/agent/lifecycle"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// fitReasons drops reasons that are none of a VM in this state. Why it is paused is kept while
// something is done with it after which it is paused again, such as a save.
func fitReasons(s *nodev1.VirtualMachineStatus) {
	live := lifecycle.Live(s.State)
	if !live || s.State == lifecycle.Running {
		s.PauseReason = nodev1.PauseReason_PAUSE_REASON_UNSPECIFIED
	}
	if s.State == lifecycle.Paused && s.PauseReason == nodev1.PauseReason_PAUSE_REASON_UNSPECIFIED {
		s.PauseReason = nodev1.PauseReason_PAUSE_REASON_OTHER
	}
	if s.PauseReason != nodev1.PauseReason_PAUSE_REASON_IO_ERROR {
		s.PauseDisk = ""
	}
	if live {
		s.EndReason = nodev1.EndReason_END_REASON_UNSPECIFIED
	}
}
