package host

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// oomScore is what the agent's badness is lowered by, in thousandths of all memory
// (proc_pid_oom_score_adj(5)): it is killed after all that has not been lowered as well, and
// can still be killed, unlike with -1000.
const oomScore = -900

// SpareFromOOM has the kernel kill a process late where memory runs out. What it starts
// inherits that: shims are to, VMMs are not. proc is the process's folder in procfs. The
// error wraps fs.ErrPermission without CAP_SYS_RESOURCE.
func SpareFromOOM(proc string) error {
	path := proc + "/oom_score_adj"
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	now, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if now <= oomScore {
		return nil // who started it has seen to that
	}
	return os.WriteFile(path, strconv.AppendInt(nil, oomScore, 10), 0)
}
