package agent

import (
	"errors"

	"github.com/vmlet/vmlet/agent/config"
	"github.com/vmlet/vmlet/internal/capset"
	"golang.org/x/sys/unix"
)

// Confine leaves an agent of pods' VMs with the capabilities that it needs: to
// connect to pods' sockets of any user, to enter containers by
// /proc/PID/root, and to end a shim that doesn't answer. The rest of what comes
// with a privileged container it has no use for. It doesn't return if it succeeds
// and there was something to take away: the program is executed again. The process that
// makes guests' networks is started before that.
func Confine(cfg config.Config) error {
	cfg, err := cfg.Complete()
	if err != nil || !*cfg.Pods.Enabled {
		return err
	}
	startHelper(cfg)
	err = capset.KeepOnly(unix.CAP_DAC_OVERRIDE, unix.CAP_SYS_PTRACE, unix.CAP_KILL)
	if errors.Is(err, unix.EPERM) { // not root's, or confined by others
		cfg.Log.Warn("capabilities that the agent doesn't need are left", "error", err)
		return nil
	}
	return err
}
