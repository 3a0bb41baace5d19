package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/vmlet/vmlet/endpoints"
)

const (
	// headerPatience bounds a TLS handshake, and a request's header; idlePatience a connection
	// without requests.
	headerPatience = 10 * time.Second
	idlePatience   = 2 * time.Minute
	// leavePatience is for streams to end with a reason, and for requests to end at all: less
	// than a manager waits for its parts.
	leavePatience = 5 * time.Second
	// maxHeader is in bytes; a user's groups are in those that the API server passes on. In
	// memory a header may take ten times that.
	maxHeader = 64 << 10
	// maxStrangers are the connections at a port of clients that have not authenticated.
	maxStrangers = 128
)

// server serves one of vmlet-api's ports.
type server struct {
	// flag names the port.
	flag string
	port int
	http *http.Server
	// begin is called once the port listens, leave before requests are waited for; both may be nil.
	begin, leave func(context.Context)
}

func newServer(flag string, port int, handler http.Handler, config *tls.Config, log *slog.Logger) *server {
	config.MinVersion = tls.VersionTLS12
	// Websockets come through the API server that way, and a connection has one request at a time.
	config.NextProtos = []string{"http/1.1"}
	return &server{flag: flag, port: port, http: &http.Server{
		Handler: handler, TLSConfig: config, ReadHeaderTimeout: headerPatience, IdleTimeout: idlePatience,
		MaxHeaderBytes: maxHeader, ConnContext: endpoints.KeepConnection,
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // no HTTP/2
		ErrorLog:     slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
}

// Start serves until ctx ends: it is a manager's Runnable.
func (s *server) Start(ctx context.Context) error {
	l, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(s.port)))
	if err != nil {
		return fmt.Errorf("%s: %w", s.flag, err)
	}
	return s.serve(ctx, l)
}

func (s *server) serve(ctx context.Context, l net.Listener) error {
	if s.begin != nil {
		s.begin(ctx)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.http.ServeTLS(endpoints.Strangers(l, maxStrangers), "", "") }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leavePatience)
	defer cancel()
	if s.leave != nil {
		s.leave(last)
	}
	if err := s.http.Shutdown(last); err != nil {
		s.http.Close()
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// NeedLeaderElection returns false: each replica serves.
func (s *server) NeedLeaderElection() bool { return false }

// answers reports whether somebody completes a TLS handshake at the port.
func (s *server) answers(ctx context.Context) error {
	// It is this program's own port: whose certificate it has does not matter.
	d := &tls.Dialer{NetDialer: &net.Dialer{Timeout: headerPatience}, Config: &tls.Config{InsecureSkipVerify: true}}
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort("localhost", strconv.Itoa(s.port)))
	if err != nil {
		return fmt.Errorf("failed to connect to the port of %s: %w", s.flag, err)
	}
	return c.Close()
}
