package endpoints

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of a connection. Answers take as long as a scrape may; those of debug may
// be a profile of any length.
const (
	headerPatience = 5 * time.Second
	readPatience   = 10 * time.Second
	writePatience  = 30 * time.Second
	idlePatience   = 2 * time.Minute
	leavePatience  = 3 * time.Second
	maxHeader      = 32 << 10 // bytes; a token has one or two KiB
	maxConnections = 64       // at each address
	maxScrapes     = 4        // at once: with HTTP/2 one connection may ask many times
)

// Handlers answer at the addresses. All must be there whose address is.
type Handlers struct {
	Metrics, Debug, Health http.Handler
}

// Servers listen, and answer while Serve goes on.
type Servers struct {
	log *slog.Logger
	all []*server
}

type server struct {
	name     string
	listener net.Listener
	http     *http.Server
	tls      bool
}

// Listen begins to listen at the addresses of a configuration that is complete and
// valid. An error names the key; nothing listens then.
func Listen(c Config, h Handlers, logger *slog.Logger) (*Servers, error) {
	s := &Servers{log: logger}
	var errs []error
	add := func(name, address string, handler func() http.Handler, change func(*server) error) {
		if address == "" {
			return
		}
		one, err := listen(name, address, handler(), logger)
		if err == nil {
			s.all = append(s.all, one)
			err = change(one)
		}
		errs = append(errs, err)
	}
	add("metrics", c.Metrics.Address, func() http.Handler { return onlyAt("/metrics", atMost(maxScrapes, h.Metrics)) },
		func(one *server) error { return one.encrypt(c.Metrics.TLS, logger) })
	add("debug", c.Debug.Address, func() http.Handler { return onlyHere(h.Debug) }, func(one *server) error {
		one.http.WriteTimeout = 0
		return nil
	})
	add("health", c.Health.Address, func() http.Handler { return h.Health }, func(*server) error { return nil })
	if err := errors.Join(errs...); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func listen(name, address string, handler http.Handler, logger *slog.Logger) (*server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		remedy := ""
		if errors.Is(err, unix.EADDRINUSE) {
			remedy = ": another program has the port; choose another address, or off"
		}
		return nil, fmt.Errorf("configuration: endpoints.%s.address: %w%s", name, err, remedy)
	}
	return &server{
		// The kubelet's probes come like anybody else: nobody may keep them waiting.
		name: name, listener: Strangers(l, maxConnections),
		http: &http.Server{
			Handler:           recovered(handler, logger),
			ReadHeaderTimeout: headerPatience, ReadTimeout: readPatience, WriteTimeout: writePatience, IdleTimeout: idlePatience,
			MaxHeaderBytes: maxHeader,
			// Only what clients did wrong is reported here.
			ErrorLog: log.New(slogWriter{logger, name}, "", 0),
		},
	}, nil
}

// encrypt has a server speak TLS, if it is to.
func (s *server) encrypt(c TLSConfig, logger *slog.Logger) error {
	if c.Cert == "" {
		return nil
	}
	pair, err := newCertificate(c, logger)
	if err != nil {
		return fmt.Errorf("configuration: endpoints.%s.tls: %w", s.name, err)
	}
	s.tls = true
	s.http.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.get}
	return nil
}

// Addresses are those that are listened at, by name: "metrics".
func (s *Servers) Addresses() map[string]string {
	all := make(map[string]string, len(s.all))
	for _, one := range s.all {
		all[one.name] = one.listener.Addr().String()
	}
	return all
}

// Serve answers until ctx ends. When it returns nobody is answered any more.
func (s *Servers) Serve(ctx context.Context) {
	var all sync.WaitGroup
	for _, one := range s.all {
		s.log.Info("serving", "endpoint", one.name, "address", one.listener.Addr().String(), "tls", one.tls)
		all.Go(func() { s.serve(one) })
	}
	<-ctx.Done()
	s.close()
	all.Wait()
}

func (s *Servers) serve(one *server) {
	var err error
	if one.tls {
		err = one.http.ServeTLS(one.listener, "", "")
	} else {
		err = one.http.Serve(one.listener)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		s.log.Error("an endpoint answers no more", "endpoint", one.name, "error", err)
	}
}

// close lets answers under way end, for a moment.
func (s *Servers) close() {
	ctx, cancel := context.WithTimeout(context.Background(), leavePatience)
	defer cancel()
	var all sync.WaitGroup
	for _, one := range s.all {
		all.Go(func() {
			if one.http.Shutdown(ctx) != nil {
				one.http.Close()
			}
			one.listener.Close() // if it was never served
		})
	}
	all.Wait()
}

// recovered keeps a panic from being more than an answer that isn't there.
func recovered(h http.Handler, logger *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == http.ErrAbortHandler {
				panic(p) // net/http's own way of ending an answer
			}
			if p != nil {
				logger.Error("panic", "path", r.URL.Path, "panic", p)
				http.Error(w, "it failed: the log says where", http.StatusInternalServerError)
			}
		}()
		h.ServeHTTP(w, r)
	})
}

// onlyAt answers at one path, and to those who only read.
func onlyAt(path string, h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+path, h)
	return mux
}

// atMost has requests wait while so many are being answered: each answer takes memory.
func atMost(n int, h http.Handler) http.Handler {
	room := make(chan struct{}, n)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case room <- struct{}{}:
			defer func() { <-room }()
			h.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})
}

// onlyHere refuses requests that name another machine: a web page, in a browser on
// this one, could be made to send such (DNS rebinding).
func onlyHere(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "ask for it as localhost", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// slogWriter puts net/http's log into the agent's.
type slogWriter struct {
	log  *slog.Logger
	name string
}

func (w slogWriter) Write(line []byte) (int, error) {
	w.log.Debug("endpoint", "endpoint", w.name, "message", string(line))
	return len(line), nil
}
