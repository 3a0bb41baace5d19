package cluster

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// AuditLog is the API server's: one line of JSON for each write, written before
// the write is answered.
func (c *Cluster) AuditLog() string { return c.path("log/audit.log") }

// Write is a write to the API, tried or done.
type Write struct {
	// Time of the answer.
	Time time.Time
	// User and UserAgent of who asked.
	User, UserAgent string
	// Verb is the API's: "create", "patch", "delete".
	Verb string
	// Group, Resource and Subresource ("", "nodes", "status") of an object.
	Group, Resource, Subresource string
	// Namespace and Name of it; an object that the API gave a name has none here.
	Namespace, Name string
	// Code is HTTP's: 201, 403.
	Code int
}

// String is for the log of a test.
func (w Write) String() string {
	return fmt.Sprintf("%s: %s %s.%s/%s %s/%s by %s (%s): %d", w.Time.Format("15:04:05.000"), w.Verb, w.Resource, w.Group,
		w.Subresource, w.Namespace, w.Name, w.User, w.UserAgent, w.Code)
}

// Writes are those in the audit log that a test is about, in their order; nil: all.
func (c *Cluster) Writes(about func(Write) bool) ([]Write, error) {
	f, err := os.Open(c.AuditLog())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var found []Write
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return found, nil // what has no end yet is being written
		}
		if err != nil {
			return nil, err
		}
		w, err := parseWrite(line)
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %s", c.AuditLog(), err, line)
		}
		if about == nil || about(w) {
			found = append(found, w)
		}
	}
}

// parseWrite reads an event (k8s.io/apiserver, audit.k8s.io/v1).
func parseWrite(line []byte) (Write, error) {
	var event struct {
		StageTimestamp  time.Time
		Verb, UserAgent string
		User            struct{ Username string }
		ObjectRef       struct{ APIGroup, Resource, Subresource, Namespace, Name string }
		ResponseStatus  struct{ Code int }
	}
	err := json.Unmarshal(line, &event)
	o := event.ObjectRef
	return Write{
		Time: event.StageTimestamp, User: event.User.Username, UserAgent: event.UserAgent, Verb: event.Verb,
		Group: o.APIGroup, Resource: o.Resource, Subresource: o.Subresource, Namespace: o.Namespace, Name: o.Name,
		Code: event.ResponseStatus.Code,
	}, err
}
