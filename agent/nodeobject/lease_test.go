package nodeobject

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/vmlet/vmlet/agent/kube"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/rest"
)

// leases is an API server that has one Lease, and refuses what the real one does:
// one that is made twice, and an update of an older version.
type leases struct {
	t     *testing.T
	lease *coordinationv1.Lease
	asked []string
}

func (s *leases) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked = append(s.asked, r.Method)
	fail := func(code int, reason string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason})
	}
	var body coordinationv1.Lease
	if r.Method != http.MethodGet {
		scheme := runtime.NewScheme()
		if err := coordinationv1.AddToScheme(scheme); err != nil {
			s.t.Error(err)
		}
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			s.t.Error(err)
		}
		if _, _, err := protobuf.NewSerializer(scheme, scheme).Decode(raw, nil, &body); err != nil {
			s.t.Error(err)
		}
	}
	switch {
	case r.Method != http.MethodPost && s.lease == nil:
		fail(http.StatusNotFound, "NotFound")
		return
	case r.Method == http.MethodPost && s.lease != nil:
		fail(http.StatusConflict, "AlreadyExists")
		return
	case r.Method == http.MethodPut && body.ResourceVersion != s.lease.ResourceVersion:
		fail(http.StatusConflict, "Conflict")
		return
	case r.Method != http.MethodGet:
		s.store(body)
	}
	w.Header().Set("Content-Type", "application/json")
	answer := s.lease.DeepCopy()
	answer.APIVersion, answer.Kind = "coordination.k8s.io/v1", "Lease"
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		s.t.Error(err)
	}
}

func (s *leases) store(body coordinationv1.Lease) {
	version := 1
	if s.lease != nil {
		version, _ = strconv.Atoi(s.lease.ResourceVersion)
		version++
	}
	body.ResourceVersion = strconv.Itoa(version)
	s.lease = &body
}

// The Lease is made once, renewed without being read, and read again when
// somebody else has written it or taken it away.
func TestLease(t *testing.T) {
	s := &leases{t: t}
	server := httptest.NewServer(s)
	defer server.Close()
	client, err := kube.NewFor(&rest.Config{Host: server.URL}, "n1", "vmlet")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	watch := NewWatch(client, log)
	watch.wrote(newFakeNode().object())
	l := newLease(client, watch, &counters{}, log)
	now := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		name   string
		before func()
		want   []string
	}{
		{"made", func() {}, []string{"GET", "POST"}},
		{"renewed", func() {}, []string{"PUT"}},
		{"written by another", func() { s.store(*s.lease) }, []string{"PUT", "GET", "PUT"}},
		{"taken away", func() { s.lease = nil }, []string{"PUT", "GET", "POST"}},
		{"an agent before this one", func() { l.known = nil }, []string{"GET", "PUT"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.before()
			s.asked, now = nil, now.Add(leaseRenewal)
			if err := l.keep(context.Background(), now); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(s.asked, c.want) {
				t.Errorf("asked %v, want %v", s.asked, c.want)
			}
			spec := s.lease.Spec
			if !spec.RenewTime.Time.Equal(now) || *spec.HolderIdentity != "n1" || *spec.LeaseDurationSeconds != 120 || spec.AcquireTime == nil ||
				s.lease.Name != "n1" || s.lease.Namespace != "vmlet" || s.lease.OwnerReferences[0].UID != "u1" {
				t.Errorf("%+v", s.lease)
			}
		})
	}
}
