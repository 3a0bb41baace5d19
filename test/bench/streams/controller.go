package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/vmlet/vmlet/cluster/nodes"
	"k8s.io/apimachinery/pkg/types"
)

// heard is when all agents were.
type heard struct{ After time.Duration }

// latencies are those from a change at the agent to the call of write.
type latencies struct {
	Seen                 int
	Median, P99, Longest time.Duration
}

// follower is a controller that leads, or waits until it does.
type follower struct {
	agents *nodes.Agents
	nodeOf map[types.UID]string

	mu    sync.Mutex
	taken []time.Duration
	last  map[types.UID]string
	heard map[types.UID]bool
	all   chan struct{} // closed when all pods' VMs have been heard of
}

// control answers what it is asked until its input ends.
func control(ctx context.Context, in io.Reader, out io.Writer) error {
	asked, answer := json.NewDecoder(in), json.NewEncoder(out)
	var c cluster
	if err := asked.Decode(&c); err != nil {
		return err
	}
	f, err := newFollower(c)
	if err != nil {
		return err
	}
	for {
		var what string
		if err := asked.Decode(&what); err != nil {
			return nil // nobody asks any more
		}
		switch what {
		case "lead":
			begin := time.Now()
			go f.agents.Start(ctx)
			go f.follow(ctx)
			<-f.all
			err = answer.Encode(heard{time.Since(begin)})
		case "report":
			err = answer.Encode(f.latencies())
		}
		if err != nil {
			return err
		}
	}
}

func newFollower(c cluster) (*follower, error) {
	pair, err := tls.X509KeyPair(c.Certificate, c.Key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.Authority)
	f := &follower{
		agents: nodes.New(nodes.Options{
			TLS: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS13},
			Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		}),
		nodeOf: make(map[types.UID]string), last: make(map[types.UID]string),
		heard: make(map[types.UID]bool), all: make(chan struct{}),
	}
	endpoints := make(map[string]nodes.Endpoint)
	for node, address := range c.Addresses {
		endpoints[node] = nodes.Endpoint{Address: address}
	}
	f.agents.SetAgents(endpoints)
	for node, pods := range c.Pods {
		for _, p := range pods {
			f.nodeOf[types.UID(p.UID)] = node
			f.agents.SetPod(node, nodes.PodKey{Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)})
		}
	}
	return f, nil
}

// follow writes the status of each pod of which something new is known.
func (f *follower) follow(ctx context.Context) {
	for {
		select {
		case pod := <-f.agents.Changed():
			if w := f.agents.Report(f.nodeOf[pod.UID], pod.UID); w.Current && w.VM != nil {
				f.write(pod.UID, w.VM.GetStatus().GetMessage())
			}
		case <-ctx.Done():
			return
		}
	}
}

// write stands for a status write.
func (f *follower) write(pod types.UID, message string) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	was, known := f.last[pod]
	f.last[pod] = message
	if at, err := strconv.ParseInt(message, 10, 64); err == nil && known && was != message {
		f.taken = append(f.taken, now.Sub(time.Unix(0, at)))
	}
	if f.heard[pod] {
		return
	}
	f.heard[pod] = true
	if len(f.heard) == len(f.nodeOf) {
		close(f.all)
	}
}

func (f *follower) latencies() latencies {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.taken) == 0 {
		return latencies{}
	}
	slices.Sort(f.taken)
	n := len(f.taken)
	return latencies{Seen: n, Median: f.taken[n/2], P99: f.taken[n*99/100], Longest: f.taken[n-1]}
}
