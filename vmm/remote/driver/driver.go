// Package driver is a VMM as the shim sees it whose driver is a program of its own: what the
// shim asks goes to that program, by the driver protocol. The program is in the image of the
// VM's pod, or was configured on the node, and is believed no more than the VMM: each call has
// a bound, and it is given descriptors and no path. Start with Remote.
package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/vmm/remote/process"
	"github.com/vmlet/vmlet/vmm/remote/wire"
)

// Remote starts the program that a plan names.
type Remote struct {
	// Log takes what the program prints; nil: slog's default.
	Log *slog.Logger
}

var (
	_ control.Driver    = Remote{}
	_ control.Explainer = Remote{}
)

// Connect starts the program as the VMM's user, and has it connect to the VMM. Agents reach it
// at wire.SocketName in the run folder.
func (r Remote) Connect(ctx context.Context, link control.Link) (control.Machine, error) {
	if link.Plan == nil || link.Plan.Driver == nil {
		return nil, errors.New("the plan names no driver's program")
	}
	listener, err := link.Listen(wire.SocketName)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	file, err := listener.File()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	p, err := process.Start(process.Options{Program: link.Plan.Driver.Program, Args: link.Plan.Driver.Args, User: link.Plan.User, Listener: file, Log: r.Log})
	if err != nil {
		return nil, err
	}
	m, err := New(ctx, p.Conn, link, p.Close)
	if err != nil {
		return nil, errors.Join(p.Explain(err), p.Close())
	}
	return m, nil
}

// Explain has the program say what the VMM's last words are about. A program that can't leaves
// them as they are.
func (r Remote) Explain(p *plan.Plan, words string) (string, *shim.Error) {
	if p.Driver == nil {
		return words, nil
	}
	driver, err := process.Start(process.Options{Program: p.Driver.Program, Args: p.Driver.Args, User: p.User, Log: r.Log})
	if err != nil {
		return words, nil
	}
	defer driver.Close()
	ctx, cancel := context.WithTimeout(context.Background(), explainTime)
	defer cancel()
	return Explain(ctx, driver.Conn, p, words)
}

// Explain asks a driver what the last words of a VMM are about.
func Explain(ctx context.Context, conn *net.UnixConn, p *plan.Plan, words string) (string, *shim.Error) {
	peer := wire.NewPeer(conn, nil)
	defer peer.Close()
	features, err := negotiate(ctx, peer)
	if err != nil || !slices.Contains(features, wire.FeatureExplain) {
		return words, nil
	}
	encoded, err := json.Marshal(p)
	if err != nil {
		return words, nil
	}
	var out wire.ExplainResponse
	if _, err := peer.Call(ctx, "Explain", wire.ExplainRequest{Plan: encoded, Words: words}, &out); err != nil || out.Readable == "" {
		return words, nil
	}
	readable := out.Readable[:min(len(out.Readable), wire.MaxMessageText)]
	if out.Message == "" {
		return readable, nil
	}
	about := &shim.Error{Code: codeOf(out.Code), Field: out.Field[:min(len(out.Field), maxField)], Message: out.Message[:min(len(out.Message), wire.MaxMessageText)]}
	for _, f := range out.Faults[:min(len(out.Faults), 1)] {
		about.Parts = append(about.Parts, f.Part())
	}
	return readable, about
}

// codeOf takes the codes that are about a specification or a file; a driver has no others to give.
func codeOf(code string) shim.Code {
	switch c := shim.Code(code); c {
	case shim.CodeInvalid, shim.CodePrecondition, shim.CodeBusy, shim.CodeUnavailable:
		return c
	}
	return shim.CodeInternal
}

func negotiate(ctx context.Context, peer *wire.Peer) ([]string, error) {
	var n wire.NegotiateResponse
	if _, err := peer.Call(ctx, "Negotiate", wire.NegotiateRequest{Versions: []int{wire.Version}, Host: "vmlet-shim"}, &n); err != nil {
		return nil, err
	}
	if n.Version != wire.Version {
		return nil, fmt.Errorf("%w: the driver %.80q chose %d, and this shim speaks %d", wire.ErrVersion, n.Driver, n.Version, wire.Version)
	}
	return n.Features, nil
}

// New has the driver at the other end of a connection connect to the VMM. release is called
// when the Machine is closed; conn is the Machine's from now on, also after an error.
func New(ctx context.Context, conn *net.UnixConn, link control.Link, release func() error) (control.Machine, error) {
	m := &machine{link: link, release: release}
	m.peer = wire.NewPeer(conn, m.serve)
	features, err := m.start(ctx)
	if err != nil {
		m.peer.Close()
		return nil, err
	}
	return withParts(m, features), nil
}

func (m *machine) start(ctx context.Context) ([]string, error) {
	if _, err := negotiate(ctx, m.peer); err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(m.link.Plan)
	if err != nil {
		return nil, err
	}
	request := wire.StartRequest{Plan: encoded, PID: m.link.PID, Received: len(m.link.Received), Buffered: m.link.Buffered, VCPUs: m.link.VCPUs}
	files := slices.Clone(m.link.Received)
	if m.link.Events != nil {
		defer m.link.Events.Close() // the driver's from now on
		request.Events, files = true, append(files, m.link.Events)
	}
	if m.link.Folder != nil {
		folder, err := m.link.Folder.Open(".")
		if err != nil {
			return nil, err
		}
		defer folder.Close()
		request.Folder, files = true, append(files, folder)
	}
	var answer wire.StartResponse
	if err := m.callLong(ctx, 0, "Start", request, &answer, files...); err != nil {
		return nil, err
	}
	return answer.Features, nil
}

// serve answers what the driver asks the shim: sockets that the VMM listens on, and one for
// agents. Of others it gets none, as the shim has rights there that the driver has not.
func (m *machine) serve(ctx context.Context, c *wire.Call) (any, []*os.File, error) {
	var request wire.DialRequest
	if err := c.Decode(&request); err != nil {
		return nil, nil, err
	}
	switch c.Method {
	case "GuestReset":
		if m.link.Reset != nil {
			m.link.Reset()
		}
		return nil, nil, nil
	case "Dial":
		return m.dial(ctx, request.Name)
	case "Listen":
		return m.listen(request.Name)
	}
	return nil, nil, wire.Errorf(wire.CodeUnsupported, "the shim has no %.40q", c.Method)
}

func (m *machine) dial(ctx context.Context, name string) (any, []*os.File, error) {
	listens := func(f plan.File) bool { return f.Kind == plan.FileListen && f.Path == name }
	if err := wire.SocketOf(name); err != nil {
		return nil, nil, err
	}
	if !slices.ContainsFunc(m.link.Plan.Files, listens) {
		return nil, nil, wire.Errorf(wire.CodeInvalid, "the plan has the VMM listen on no socket %q", name)
	}
	conn, err := m.link.Dial(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	return asFile(conn)
}

// maxListeners bounds how many sockets a driver may have the shim make.
const maxListeners = 4

func (m *machine) listen(name string) (any, []*os.File, error) {
	if err := wire.SocketOf(name); err != nil {
		return nil, nil, err
	}
	if m.listeners.Add(1) > maxListeners {
		return nil, nil, wire.Errorf(wire.CodeInvalid, "a driver has %d sockets at most", maxListeners)
	}
	l, err := m.link.Listen(name)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	f, err := l.File()
	if err != nil {
		return nil, nil, err
	}
	return nil, []*os.File{f}, nil
}

func asFile(conn net.Conn) (any, []*os.File, error) {
	filer, is := conn.(interface{ File() (*os.File, error) })
	if !is {
		return nil, nil, wire.Errorf(wire.CodeInternal, "the connection has no descriptor")
	}
	f, err := filer.File()
	if err != nil {
		return nil, nil, err
	}
	return nil, []*os.File{f}, nil
}
