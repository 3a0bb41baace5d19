package helper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/capset"
	"github.com/vmlet/vmlet/internal/seccomp"
	"github.com/vmlet/vmlet/lease"
	"github.com/vmlet/vmlet/lease/socket"
	"github.com/vmlet/vmlet/podnet"
	"github.com/vmlet/vmlet/podnet/namespace"
)

// controlFile is the descriptor of the helper's socket.
const controlFile = 3

const (
	// atOnce is how many plans are carried out side by side: the kernel's lock of networks
	// lets little more.
	atOnce = 4
	// memoryLimit is what Go may use: a plan takes some 100 KiB.
	memoryLimit = 16 << 20
	// maxThreads ends the program if more threads are needed than any load explains.
	maxThreads = 64
)

// Run is the helper's program. It returns when the agent has closed its end of the socket.
// The program is executed once more by it, to give up capabilities.
func Run() error {
	forbidden, err := forbiddenNamespaces()
	if err != nil {
		return err
	}
	if err := capset.KeepOnly(unix.CAP_NET_ADMIN, unix.CAP_SYS_ADMIN, unix.CAP_NET_RAW, unix.CAP_NET_BIND_SERVICE); err != nil {
		return err
	}
	// The main thread can't be thrown away: nothing that enters a namespace is to run on it.
	runtime.LockOSThread()
	debug.SetMemoryLimit(memoryLimit)
	debug.SetMaxThreads(maxThreads)
	control, err := connOf(os.NewFile(controlFile, "agent"))
	if err != nil {
		return fmt.Errorf("it is the agent that starts this: descriptor %d: %w", controlFile, err)
	}
	defer control.Close()
	s := &server{slots: make(chan struct{}, atOnce), forbidden: forbidden}
	if err := s.begin(); err != nil {
		return errors.Join(err, sendAnswer(control, refusal(err), nil))
	}
	if err := sendAnswer(control, answer{}, nil); err != nil {
		return err
	}
	return s.serve(control)
}

// server carries plans out.
type server struct {
	slots chan struct{}
	// forbidden are the namespaces of the helper itself and of the node's first process.
	forbidden []identity
}

// begin finds out whether this node lets the helper work, and restricts it.
func (s *server) begin() error {
	if err := try(); err != nil {
		return err
	}
	return seccomp.Install(calls())
}

// forbiddenVariable has forbiddenNamespaces for the program that is executed with fewer
// capabilities: it may not look at the node's first process.
const forbiddenVariable = "VMLET_NETWORK_FORBIDDEN"

// forbiddenNamespaces are those of this process and of the node's first one, or what it sees
// as such.
func forbiddenNamespaces() (all []identity, err error) {
	noted := os.Getenv(forbiddenVariable)
	if noted != "" {
		err := json.Unmarshal([]byte(noted), &all)
		return all, err
	}
	for _, path := range []string{"/proc/self/ns/net", "/proc/1/ns/net"} {
		f, err := os.Open(path)
		if errors.Is(err, os.ErrPermission) {
			continue // hidden by anyone who confines the agent, too
		}
		if err != nil {
			return nil, err
		}
		id, err := identify(f)
		f.Close()
		if err != nil {
			return nil, err
		}
		all = append(all, id)
	}
	text, err := json.Marshal(all)
	return all, errors.Join(err, os.Setenv(forbiddenVariable, string(text)))
}

// serve takes calls until the agent has gone, and what it has begun is ended: a bridge that
// is half made would cost a pod its address.
func (s *server) serve(control *net.UnixConn) error {
	for {
		s.slots <- struct{}{}
		body, files, err := receiveMessage(control, maxPlan, filesPerCall)
		switch {
		case errors.Is(err, errMessage):
			<-s.slots // the agent's call ends, as nobody has its socket
		case err != nil:
			for range cap(s.slots) - 1 {
				s.slots <- struct{}{}
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		default:
			go func() {
				s.handle(body, files)
				<-s.slots
			}()
		}
	}
}

// handle answers one call.
func (s *server) handle(body []byte, files []*os.File) {
	defer closeAll(files)
	if len(files) != filesPerCall {
		return // nobody to tell
	}
	reply, err := connOf(files[1])
	if err != nil {
		return
	}
	defer reply.Close() // after the files, which the agent waits for
	made, opened, err := s.carryOut(body, files[0])
	defer closeAll(opened)
	a := answer{Made: made}
	if err != nil {
		a = refusal(err)
	}
	if err := sendAnswer(reply, a, opened); err != nil {
		fmt.Fprintln(os.Stderr, "vmlet-agent", Name+": failed to answer:", err)
	}
}

// refusal is the answer to what could not be done.
func refusal(err error) answer {
	text := err.Error()
	return answer{Error: text[:min(len(text), maxReason)], Parts: contract.BoundFaults(contract.FaultsOf(err)), Passing: podnet.IsPassing(err)}
}

func sendAnswer(conn *net.UnixConn, a answer, files []*os.File) error {
	body, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return send(conn, body, files)
}

// carryOut makes a plan on a thread that ends with it.
func (s *server) carryOut(body []byte, ns *os.File) (made podnet.Made, files []*os.File, err error) {
	var plan podnet.Plan
	if err := json.Unmarshal(body, &plan); err != nil {
		return made, nil, fmt.Errorf("the plan: %w", err)
	}
	if err := plan.Check(); err != nil {
		return made, nil, fmt.Errorf("the plan: %w", err)
	}
	if err := s.admit(ns); err != nil {
		return made, nil, err
	}
	err = onThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering the pod's network namespace: %w", err)
		}
		made, files, err = namespace.Make(plan, sockets)
		return err
	})
	return made, files, err
}

// onThread runs f on a thread that nothing else runs on before or after.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

// admit wants a network namespace, and one that no pod shares with the node.
func (s *server) admit(ns *os.File) error {
	kind, err := unix.IoctlRetInt(int(ns.Fd()), unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWNET {
		return errors.New("the descriptor is not that of a network namespace")
	}
	id, err := identify(ns)
	if err != nil {
		return err
	}
	for _, f := range s.forbidden {
		if id == f {
			return errors.New("it is the node's own network namespace")
		}
	}
	return nil
}

// identity tells namespaces apart (ioctl_ns(2)).
type identity struct{ Device, Inode uint64 }

func identify(ns *os.File) (identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(ns.Fd()), &st); err != nil {
		return identity{}, fmt.Errorf("a network namespace: %w", err)
	}
	return identity{uint64(st.Dev), st.Ino}, nil
}

// sockets opens those of package lease.
func sockets(bridge, mac string) ([]*os.File, error) {
	guest, err := lease.ParseMAC(mac)
	if err != nil {
		return nil, err
	}
	opened, err := socket.Open(bridge, guest)
	if err != nil {
		return nil, err
	}
	return opened.Files(), nil
}
