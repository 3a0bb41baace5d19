package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/vmlet/vmlet/podnet"
	"github.com/vmlet/vmlet/podnet/namespace"
	"github.com/vmlet/vmlet/test/guest"
)

const (
	// streamPort is where the peer of a pod measures.
	streamPort = "5001"
	// streamTime is how long a stream is measured, after what it has taken to get going.
	streamTime, streamWarmUp = time.Second, time.Second / 2
	// streamsPerRun: short and many, so that what else the machine does hits all ways alike.
	streamsPerRun = 4
	// answerPatience bounds what a guest takes to boot, or to answer.
	answerPatience = 2 * time.Minute
)

// network: what one TCP connection carries between a guest and its pod's peer, through what
// vmlet makes in the pod, through a tap that is routed and nothing else, and through QEMU's own
// NAT; and what it carries if no guest is there. All of them take turns.
func (b *bench) network() error {
	ways := []*way{
		{name: "masquerade", tap: masqueradeTap, gateway: "10.0.2.1", guest: "10.0.2.2/24"},
		{name: "bare tap", tap: routedTap, gateway: "10.0.2.1", guest: "10.0.2.2/24"},
		{name: "user-mode", gateway: "10.0.2.2", guest: "10.0.2.15/24"},
		{name: "no guest", plain: true},
	}
	defer func() {
		for _, w := range ways {
			w.close()
		}
	}()
	for _, w := range ways {
		if err := w.open(b); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	for _, direction := range []string{"out", "in"} {
		rates := make([]throughput, len(ways))
		for n := -1; n < streamsPerRun*b.runs; n++ {
			for i, w := range ways {
				rate, err := w.stream(b.ctx, direction)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", w.name, direction, err)
				}
				if n >= 0 {
					rates[i] = append(rates[i], rate)
				}
			}
		}
		b.networkRow(direction, rates)
	}
	return nil
}

func (b *bench) networkRow(direction string, rates []throughput) {
	what := map[string]string{"out": "TCP from the guest to its pod's peer", "in": "TCP from the peer to the guest"}[direction]
	b.table.row(what, rates[0].String(),
		fmt.Sprintf("bare tap %s, user-mode %s, no guest %s", rates[1], rates[2], rates[3]), "–",
		fmt.Sprintf("%.2f of a bare tap, %.1f of user-mode", rates[0].median()/rates[1].median(), rates[0].median()/rates[2].median()))
}

// throughput is the counted runs of one stream, in bytes a second.
type throughput []float64

func (r throughput) median() float64 { return slices.Sorted(slices.Values(r))[len(r)/2] }

func (r throughput) String() string {
	mbit := func(rate float64) string { return fmt.Sprintf("%.0f", rate*8/1e6) }
	return fmt.Sprintf("%s Mbit/s (%s–%s)", mbit(r.median()), mbit(slices.Min(r)), mbit(slices.Max(r)))
}

// way is a pod with a guest in it, or without.
type way struct {
	name string
	// tap makes the guest's, in the pod's namespace; nil: QEMU's own NAT.
	tap func() (*os.File, error)
	// gateway and guest are the guest's addresses.
	gateway, guest string
	plain          bool

	pod, peer podNamespace
	listener  net.Listener
	console   *guestConsole
}

func (w *way) open(b *bench) (err error) {
	if w.pod, w.peer, err = wired(); err != nil {
		return err
	}
	err = w.peer.in(func() (err error) {
		w.listener, err = net.Listen("tcp", net.JoinHostPort(peerAddress, streamPort))
		return err
	})
	if err != nil || w.plain {
		return err
	}
	if w.name == "bare tap" {
		if err := w.peer.in(routeToGuest); err != nil {
			return err
		}
	}
	if err := w.pod.in(func() error { return w.boot(b) }); err != nil {
		return err
	}
	_, err = w.console.ask("address eth0 "+w.guest+" "+w.gateway, "address eth0")
	return err
}

func (w *way) close() {
	if w.console != nil {
		w.console.kill()
	}
	if w.listener != nil {
		_ = w.listener.Close()
	}
	for _, n := range []podNamespace{w.pod, w.peer} {
		if n.file != nil {
			_ = n.file.Close()
		}
	}
}

// boot starts QEMU in the namespace of the thread, as a pod's is.
func (w *way) boot(b *bench) error {
	netdev, files := "user,id=net0", []*os.File(nil)
	if w.tap != nil {
		tap, err := w.tap()
		if err != nil {
			return err
		}
		defer tap.Close()
		netdev, files = "tap,id=net0,fd=3", []*os.File{tap}
	}
	m := &b.machine
	cmd := exec.Command("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none",
		"-machine", "q35,accel=tcg", "-cpu", "max", "-m", strconv.Itoa(256),
		"-kernel", m.kernel, "-initrd", m.initrd, "-append", "console=ttyS0 quiet no_timer_check vmlet.interval=1h",
		"-netdev", netdev, "-device", "virtio-net-pci,netdev=net0,romfile=", "-serial", "stdio")
	cmd.ExtraFiles, cmd.Stderr = files, os.Stderr
	console, err := startConsole(cmd)
	if err != nil {
		return err
	}
	w.console = console
	_, err = console.answer(guest.UpLine)
	return err
}

// masqueradeTap is what vmlet makes in pods.
func masqueradeTap() (*os.File, error) {
	network := podnet.Network{
		Binding: podnet.Masquerade, Interface: podLink, MAC: "52:54:00:12:34:56",
		CIDR: netip.MustParsePrefix("10.0.2.0/24"), IPv6CIDR: netip.MustParsePrefix("fd10:0:2::/120"),
	}
	_, files, err := namespace.Make(podnet.Plan{Networks: []podnet.Network{network}}, nil)
	if err != nil {
		return nil, err
	}
	return files[0], nil
}

// routedTap has the gateway's address, and the pod forwards: no bridge, no rules.
func routedTap() (*os.File, error) {
	tap, err := openTap("tap0")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(addressed("tap0", netip.MustParseAddr("10.0.2.1"), 24), os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)); err != nil {
		return nil, errors.Join(err, tap.Close())
	}
	return tap, nil
}

// routeToGuest has the peer know the guest's network, which no NAT hides.
func routeToGuest() error {
	link, err := netlink.LinkByName(podLink)
	if err != nil {
		return err
	}
	_, network, err := net.ParseCIDR("10.0.2.0/24")
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: network, Gw: net.ParseIP(podAddress)})
}

// stream measures at the peer, in bytes a second.
func (w *way) stream(ctx context.Context, direction string) (float64, error) {
	other := make(chan error, 1)
	go func() { other <- w.connect(direction) }()
	conn, err := w.accept(other)
	if err != nil {
		return 0, err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	rate, err := measure(conn, direction)
	return rate, errors.Join(err, conn.Close(), <-other)
}

func (w *way) accept(failed <-chan error) (net.Conn, error) {
	accepted := make(chan net.Conn, 1)
	go func() {
		if conn, err := w.listener.Accept(); err == nil {
			accepted <- conn
		}
	}()
	select {
	case conn := <-accepted:
		return conn, nil
	case err := <-failed:
		return nil, fmt.Errorf("no stream: %w", err)
	}
}

// connect is the other end: the guest, or a thread in the pod.
func (w *way) connect(direction string) error {
	address := net.JoinHostPort(peerAddress, streamPort)
	if !w.plain {
		_, err := w.console.ask("stream "+direction+" "+address, "stream of")
		return err
	}
	return w.pod.in(func() error {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer conn.Close()
		block, move := make([]byte, 128<<10), conn.Write
		if direction == "in" {
			move = conn.Read
		}
		for {
			if _, err := move(block); err != nil {
				return nil // the peer has had enough
			}
		}
	})
}

// measure counts what goes through a connection once it has got going.
func measure(conn net.Conn, direction string) (float64, error) {
	block, move := make([]byte, 128<<10), conn.Read
	if direction == "in" {
		move = conn.Write
	}
	var bytes int
	counting, until := time.Time{}, time.Now().Add(streamWarmUp)
	if err := conn.SetDeadline(time.Now().Add(streamWarmUp + streamTime + answerPatience)); err != nil {
		return 0, err
	}
	for {
		n, err := move(block)
		if err != nil {
			return 0, err
		}
		bytes += n
		switch now := time.Now(); {
		case now.Before(until):
		case counting.IsZero():
			bytes, counting, until = 0, now, now.Add(streamTime)
		default:
			return float64(bytes) / now.Sub(counting).Seconds(), nil
		}
	}
}

// guestConsole is a guest's, on the standard streams of its QEMU.
type guestConsole struct {
	cmd   *exec.Cmd
	in    io.Writer
	lines chan string
}

func startConsole(cmd *exec.Cmd) (*guestConsole, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &guestConsole{cmd: cmd, in: in, lines: make(chan string, 64)}
	go func() {
		defer close(c.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			c.lines <- strings.TrimSpace(lines.Text())
		}
	}()
	return c, nil
}

// ask types a command and returns the line that answers it.
func (c *guestConsole) ask(command, begins string) (string, error) {
	if _, err := fmt.Fprintln(c.in, command); err != nil {
		return "", err
	}
	return c.answer(begins)
}

func (c *guestConsole) answer(begins string) (string, error) {
	timeout := time.After(answerPatience)
	for {
		select {
		case line, ok := <-c.lines:
			switch {
			case !ok:
				return "", errors.New("the guest has ended")
			case strings.HasPrefix(line, begins):
				return line, nil
			case strings.HasPrefix(line, "error: "):
				return "", fmt.Errorf("the guest says %q", line)
			}
		case <-timeout:
			return "", fmt.Errorf("the guest does not say %q", begins)
		}
	}
}

func (c *guestConsole) kill() {
	_ = c.cmd.Process.Kill()
	for range c.lines { // until its end
	}
	_ = c.cmd.Wait() // it was killed
}
