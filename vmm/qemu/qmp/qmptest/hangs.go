package qmptest

import (
	"encoding/json"
	"io"
	"net"
)

// Hangs returns a connection to a QEMU that negotiates, takes what it is sent, and answers
// nothing more until the connection is closed. It is in memory, and so may be in a
// bubble of testing/synctest.
func Hangs() net.Conn {
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		// Errors are the client's end, and end the reading, too.
		out, in := json.NewEncoder(far), json.NewDecoder(far)
		_ = out.Encode(map[string]any{"QMP": map[string]any{
			"version": map[string]any{"qemu": map[string]int{"major": 10, "minor": 0, "micro": 2}, "package": ""}, "capabilities": []string{},
		}})
		var negotiation struct {
			ID json.RawMessage `json:"id"`
		}
		_ = in.Decode(&negotiation)
		_ = out.Encode(map[string]any{"return": struct{}{}, "id": negotiation.ID})
		_, _ = io.Copy(io.Discard, far)
	}()
	return near
}
