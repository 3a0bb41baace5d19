package helper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/lease"
	"github.com/vmlet/vmlet/podnet"
	"github.com/vmlet/vmlet/podnet/podnettest"
)

// TestMain makes a run of this program the helper, as vmlet-agent's argument does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Name {
		if err := Run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	runtime.LockOSThread() // else /proc/self may be that of a thread in a namespace of a test
	os.Exit(m.Run())
}

// patience is for what a slow machine takes its time for.
const patience = 5 * time.Minute

func start(t *testing.T) (*Client, context.Context) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("capabilities are root's")
	}
	if err := Start(); err != nil {
		t.Fatal(err)
	}
	c, err := Inherited()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	t.Cleanup(func() { c.Close() })
	if err := c.Refused(ctx); err != nil {
		t.Fatal(err)
	}
	if os.Getenv(Variable) != "" {
		t.Error("programs that are started later inherit the helper")
	}
	return c, ctx
}

func plan(interfaces ...string) podnet.Plan {
	var p podnet.Plan
	for _, name := range interfaces {
		n := podnet.Network{Binding: podnet.Bridge, Interface: name, MAC: "52:54:00:00:00:02"}
		if name == "eth0" {
			n = podnet.Network{
				Binding: podnet.Masquerade, Interface: name, MAC: "52:54:00:00:00:01", Queues: 2,
				CIDR: netip.MustParsePrefix("10.0.2.0/24"), IPv6CIDR: netip.MustParsePrefix("fd10:0:2::/120"),
			}
		}
		p.Networks = append(p.Networks, n)
	}
	return p
}

// newPod has two interfaces.
func newPod(t *testing.T) *podnettest.Namespace {
	t.Helper()
	node, pod := podnettest.New(t), podnettest.New(t)
	podnettest.Connect(1400, podnettest.End{In: node, Name: "veth0"}, podnettest.End{In: pod, Name: "eth0", Addresses: []string{"10.244.0.5/24", "fd00::5/64"}, Gateways: []string{"10.244.0.1"}})
	podnettest.Connect(9000, podnettest.End{In: node, Name: "veth1"}, podnettest.End{In: pod, Name: "net1"})
	return pod
}

// TestMake: taps and sockets of several networks come back, in their order, from several
// calls at once.
func TestMake(t *testing.T) {
	c, ctx := start(t)
	results := make(chan error)
	const pods = 6
	for range pods {
		pod := newPod(t)
		go func() { results <- makeIn(ctx, c, pod) }()
	}
	for range pods {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

func makeIn(ctx context.Context, c *Client, pod *podnettest.Namespace) error {
	for range 2 { // again, as in a container that is started again
		made, files, err := c.Make(ctx, pod.File, plan("eth0", "net1"))
		if err != nil {
			return err
		}
		want := []string{"tap-eth0", "tap-eth0", "", "", "", "tap-net1", "", "", ""}
		if len(files) != len(want) || len(made.Networks) != 2 || made.Networks[0].Taps != 2 || made.Networks[1].Taps != 1 || made.Networks[0].MTU != 1400 || made.Networks[1].MTU != 9000 {
			return fmt.Errorf("%d files, %+v", len(files), made)
		}
		for i, f := range files {
			if got := tapOf(f); got != want[i] {
				return fmt.Errorf("file %d is tap %q, want %q", i, got, want[i])
			}
		}
		lease.SocketsOf(files[2:5]).Close()
		closeAll(files)
	}
	return nil
}

func tapOf(f *os.File) string {
	req, err := unix.NewIfreq("")
	if err == nil {
		err = unix.IoctlIfreq(int(f.Fd()), unix.TUNGETIFF, req)
	}
	if err != nil {
		return ""
	}
	return req.Name()
}

// TestHostile: what no agent sends is refused in words, and the helper goes on.
func TestHostile(t *testing.T) {
	c, ctx := start(t)
	pod := newPod(t)
	open := func(path string) *os.File {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	marshal := func(p podnet.Plan) []byte {
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	path := plan("eth0")
	path.Networks[0].Interface = "../../../kernel"
	for name, test := range map[string]struct {
		ns   *os.File
		body []byte
		want string
	}{
		"the node's namespace":   {open("/proc/self/ns/net"), marshal(plan("eth0")), "node's own"},
		"a mount namespace":      {open("/proc/self/ns/mnt"), marshal(plan("eth0")), "not that of a network namespace"},
		"a file":                 {open("/proc/self/status"), marshal(plan("eth0")), "not that of a network namespace"},
		"a folder":               {open("/"), marshal(plan("eth0")), "not that of a network namespace"},
		"no JSON":                {pod.File, []byte("{"), "the plan"},
		"no plan":                {pod.File, []byte("{}"), "networks: 0"},
		"a path for a name":      {pod.File, marshal(path), "networks[0].interface"},
		"an interface not there": {pod.File, marshal(plan("eth7")), "there is no interface eth7"},
		"more than a plan has":   {pod.File, append(marshal(plan("eth0")), make([]byte, maxPlan)...), ErrEnded.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			_, files, err := c.call(ctx, test.ns, test.body)
			closeAll(files)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
	_, files, err := c.Make(ctx, pod.File, plan("eth7"))
	closeAll(files)
	if parts := contract.FaultsOf(err); len(parts) != 1 || parts[0].Reason != contract.FaultNoInterface || parts[0].Object != "eth7" {
		t.Errorf("in parts: %+v", parts)
	}
	_, files, err = c.Make(ctx, pod.File, plan("eth0"))
	closeAll(files)
	if err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestPassing: what may be over soon is told from what is not.
func TestPassing(t *testing.T) {
	c, ctx := start(t)
	pod := newPod(t)
	p := plan("net1") // its tap has one queue, which is one's alone
	_, files, err := c.Make(ctx, pod.File, p)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(files)
	if _, _, err := c.Make(ctx, pod.File, p); !podnet.IsPassing(err) || !strings.Contains(err.Error(), "TUNSETIFF") {
		t.Errorf("a tap that is in use: %v", err)
	}
	if _, _, err := c.Make(ctx, pod.File, plan("eth7")); err == nil || podnet.IsPassing(err) {
		t.Errorf("an interface that is not there: %v", err)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if _, _, err := c.Make(over, pod.File, plan("eth0")); !podnet.IsPassing(err) {
		t.Errorf("a call that took too long: %v", err)
	}
}

// TestEndWaits: when the agent has gone, what was begun is carried out.
func TestEndWaits(t *testing.T) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	control, err := connOf(os.NewFile(uintptr(ends[0]), "agent"))
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	unix.Close(ends[1])
	s := &server{slots: make(chan struct{}, atOnce)}
	s.slots <- struct{}{} // a plan that is being carried out
	done := make(chan error, 1)
	go func() { done <- s.serve(control) }()
	for len(s.slots) < atOnce {
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v", err)
		default:
			runtime.Gosched()
		}
	}
	<-s.slots
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestRights: the helper has four capabilities, none to get, and a filter.
func TestRights(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("capabilities are root's")
	}
	if err := Start(); err != nil {
		t.Fatal(err)
	}
	_, pid, _ := strings.Cut(os.Getenv(Variable), ":")
	c, err := Inherited()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.Refused(ctx); err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		t.Fatal(err)
	}
	four := fmt.Sprintf("%016x", uint64(1<<unix.CAP_NET_ADMIN|1<<unix.CAP_SYS_ADMIN|1<<unix.CAP_NET_RAW|1<<unix.CAP_NET_BIND_SERVICE))
	for line, want := range map[string]string{"CapPrm": four, "CapEff": four, "CapBnd": four, "CapInh": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2"} {
		if !strings.Contains(string(status), "\n"+line+":\t"+want+"\n") {
			t.Errorf("%s is not %s: %s", line, want, status)
		}
	}
	c.Close()
	select {
	case <-c.Ended():
	case <-ctx.Done():
		t.Error("the helper's end is not noticed")
	}
	if _, _, err := c.Make(ctx, newPod(t).File, plan("eth0")); !podnet.IsPassing(err) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("of a helper that has ended: %v", err)
	}
}

// TestMost: a call carries the most ports and descriptors of a plan.
func TestMost(t *testing.T) {
	c, ctx := start(t)
	p := plan("eth0")
	for n := range podnet.MaxPorts {
		p.Networks[0].Ports = append(p.Networks[0].Ports, podnet.Ports{Protocol: "udp", First: uint16(60000 + n), Last: 65535})
	}
	p.Networks[0].Queues = podnet.MaxQueues
	_, files, err := c.Make(ctx, newPod(t).File, p)
	closeAll(files)
	if err != nil {
		t.Fatal(err)
	}
	if want := podnet.MaxQueues + lease.SocketCount; len(files) != want {
		t.Errorf("%d files, want %d", len(files), want)
	}
}
