package pods

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/vmlet/vmlet/internal/unixsocket"
	"k8s.io/apimachinery/pkg/types"
)

// Peer is the process at the other end of a unix socket, as this process's
// namespaces have it.
type Peer struct {
	PID int
	UID uint32
}

// PeerOf asks the kernel (SO_PEERCRED, unix(7)): of a socket that was connected to,
// it is who called listen(2).
func PeerOf(conn *net.UnixConn) (Peer, error) {
	cred, err := unixsocket.Peer(conn)
	if err != nil {
		return Peer{}, err
	}
	if cred.Pid <= 0 {
		return Peer{}, errors.New("the process that has the socket is in no PID namespace of the agent's: the agent's pod needs hostPID: true")
	}
	return Peer{PID: int(cred.Pid), UID: cred.Uid}, nil
}

// Place is where a process of a pod is, by its cgroup.
type Place struct {
	Pod types.UID
	// Container is the runtime's id of the container.
	Container string
	// Cgroups are its paths by controller; cgroup v2's has the empty name.
	Cgroups map[string]string
}

// PlaceOf reads /proc/PID/cgroup below proc. The kubelet and the runtime have made
// the cgroups, and no process of a pod can leave them.
func PlaceOf(proc string, pid int) (Place, error) {
	path := fmt.Sprintf("%s/%d/cgroup", proc, pid)
	content, err := os.ReadFile(path)
	if err != nil {
		return Place{}, err
	}
	p, err := parsePlace(string(content))
	if err != nil {
		return p, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// parsePlace knows the names of both of the kubelet's drivers: ".../podUID/ID" of
// cgroupfs and "...-podUID.slice/RUNTIME-ID.scope" of systemd, where a UID has
// underscores for its dashes.
func parsePlace(content string) (Place, error) {
	pod := regexp.MustCompile(`(?:^|/|-)pod([0-9a-fA-F]{8}(?:[-_][0-9a-fA-F]{4}){3}[-_][0-9a-fA-F]{12}|[0-9a-f]{32})(?:\.slice)?/(?:[a-z-]+-)?([0-9a-f]{16,64})(?:\.scope)?(?:/|$)`)
	p := Place{Cgroups: make(map[string]string)}
	for line := range strings.Lines(content) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for _, controller := range strings.Split(parts[1], ",") {
			p.Cgroups[controller] = parts[2]
		}
		m := pod.FindStringSubmatch(parts[2])
		if m == nil {
			continue
		}
		uid := types.UID(strings.ReplaceAll(m[1], "_", "-"))
		if p.Pod != "" && (p.Pod != uid || p.Container != m[2]) {
			return Place{}, errors.New("its hierarchies name several pods")
		}
		p.Pod, p.Container = uid, m[2]
	}
	if p.Pod == "" {
		return Place{}, errors.New("the process is in no container of a pod")
	}
	return p, nil
}

// ChildPID is the number here of the child of a process that has another number
// in its own PID namespace; 0: there is none. proc is /proc.
//
// The kernel may not list a process's children (CONFIG_PROC_CHILDREN): all processes are
// looked at where the child is not in that list.
func ChildPID(proc string, parent, inside int) int {
	for _, pid := range listedChildren(proc, parent) {
		if pid, is := childOf(proc, pid, parent, inside); is {
			return pid
		}
	}
	processes, err := os.ReadDir(proc)
	if err != nil {
		return 0
	}
	for _, p := range processes {
		if pid, is := childOf(proc, p.Name(), parent, inside); is {
			return pid
		}
	}
	return 0
}

// listedChildren are the numbers of the children that the kernel lists of each thread.
func listedChildren(proc string, parent int) (pids []string) {
	lists, _ := filepath.Glob(filepath.Join(proc, strconv.Itoa(parent), "task/*/children")) // the pattern is right
	for _, list := range lists {
		content, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		pids = append(pids, strings.Fields(string(content))...)
	}
	return pids
}

// childOf says whether what is in /proc under a name is that child.
func childOf(proc, name string, parent, inside int) (pid int, is bool) {
	pid, err := strconv.Atoi(name)
	if err != nil {
		return 0, false
	}
	content, err := os.ReadFile(filepath.Join(proc, name, "status"))
	if err != nil {
		return 0, false // it has ended meanwhile
	}
	status := statusFields(string(content))
	numbers := strings.Fields(status["NSpid"])
	return pid, status["PPid"] == strconv.Itoa(parent) && len(numbers) > 0 && numbers[len(numbers)-1] == strconv.Itoa(inside)
}

// statusFields are those of /proc/PID/status by name (proc_pid_status(5)).
func statusFields(content string) map[string]string {
	out := make(map[string]string)
	for line := range strings.Lines(content) {
		if name, value, found := strings.Cut(line, ":"); found {
			out[name] = strings.TrimSpace(value)
		}
	}
	return out
}
