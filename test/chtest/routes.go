package chtest

import (
	"errors"
	"net/http"
	"os"
	"strings"
)

const prefix = "/api/v1/"

// endpoint is one call, and how it is to be called.
type endpoint struct {
	get bool
	// body is what it takes; nil: it refuses one, unless it doesn't care.
	body     shape
	careless bool // about a body
	do       func(r *request, body tree) (answer any, err error)
}

// endpoints are version 53's, as far as they are in here.
func (m *VMM) endpoints(k Knobs) map[string]endpoint {
	plain := func(do func() error) endpoint {
		return endpoint{do: func(*request, tree) (any, error) { return nil, do() }}
	}
	e := map[string]endpoint{
		"vmm.ping":     {get: true, careless: true, do: func(*request, tree) (any, error) { return m.ping(k), nil }},
		"vm.info":      {get: true, careless: true, do: func(*request, tree) (any, error) { return m.info() }},
		"vm.counters":  {get: true, careless: true, do: func(*request, tree) (any, error) { return m.counters() }},
		"vmm.shutdown": {careless: true, do: func(*request, tree) (any, error) { m.leaving = true; m.shutdownVMM(); return nil, nil }},

		"vm.boot": plain(m.boot), "vm.delete": plain(m.delete), "vm.shutdown": plain(m.shutdown), "vm.reboot": plain(m.reboot),
		"vm.pause": plain(m.pause), "vm.resume": plain(m.resume), "vm.power-button": plain(m.powerButton), "vm.nmi": plain(m.nmi),

		"vm.create":        {body: vmShape(), do: func(_ *request, t tree) (any, error) { return nil, m.create(t) }},
		"vm.resize":        {body: resizeShape(), do: func(_ *request, t tree) (any, error) { return nil, m.resize(t) }},
		"vm.resize-zone":   {body: resizeZoneShape(), do: func(_ *request, t tree) (any, error) { return nil, m.resizeZone(t) }},
		"vm.remove-device": {body: removeShape(), do: func(_ *request, t tree) (any, error) { return nil, m.removeDevice(t) }},
		"vm.snapshot":      {body: snapshotShape(), do: func(_ *request, t tree) (any, error) { return nil, m.snapshot(t) }},
		"vm.restore":       {body: restoreShape(), do: m.restoreCall},
	}
	for i, c := range []struct {
		name  string
		shape shape
	}{{"disk", diskShape()}, {"net", netShape()}, {"vsock", vsockShape()}, {"device", deviceShape()}} {
		list := deviceLists()[i]
		e["vm.add-"+c.name] = endpoint{body: c.shape, do: func(r *request, t tree) (any, error) { return m.addDevice(list, r, t) }}
	}
	return e
}

// route carries a request out if it is called as the endpoint wants it.
func (m *VMM) route(r *request, call string, k Knobs) (int, string) {
	e, ok := m.endpoints(k)[call]
	if !ok || !strings.HasPrefix(r.path, prefix) {
		return failed(&fault{http.StatusNotFound, []string{http.StatusText(http.StatusNotFound)}})
	}
	if call == "vm.create" && r.method == http.MethodPut && r.body == nil {
		return http.StatusBadRequest, "" // this one says nothing
	}
	switch r.method {
	case http.MethodGet, http.MethodPut:
		if (r.method == http.MethodGet) != e.get {
			return failed(badRequest())
		}
	default:
		// Some endpoints say why, and others nothing.
		if call == "vm.create" || call == "vm.info" || strings.HasPrefix(call, "vmm.") {
			return failed(badRequest())
		}
		return http.StatusBadRequest, ""
	}
	if !e.careless && (r.body == nil) != (e.body == nil) || call == "vm.add-device" && len(r.files) > 1 {
		return failed(badRequest())
	}
	var body tree
	if e.body != nil {
		value, err := document(r.body, e.body)
		if err != nil {
			return failed(badBody(err))
		}
		body, _ = value.(tree)
	}
	if causes, ok := k.Refuse[call]; ok {
		return failed(&fault{http.StatusInternalServerError, causes})
	}
	return m.perform(e, call, r, body)
}

func (m *VMM) perform(e endpoint, call string, r *request, body tree) (int, string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if call != "vm.snapshot" {
		m.dawdle(call)
	}
	if m.hasDied() {
		return 0, ""
	}
	answer, err := e.do(r, body)
	var f *fault
	switch {
	case errors.As(err, &f) && f.status == http.StatusBadRequest:
		return failed(f)
	case err != nil:
		return failed(refusal(call, err))
	case answer != nil:
		text, err := asJSON(answer)
		if err != nil {
			return failed(refusal(call, err))
		}
		return http.StatusOK, text
	case call == "vmm.shutdown":
		return http.StatusOK, ""
	}
	return http.StatusNoContent, ""
}

func failed(f *fault) (int, string) { return f.status, f.Error() }

func (m *VMM) ping(k Knobs) any {
	return map[string]any{"build_version": "v" + k.version(), "version": k.version(), "pid": os.Getpid(), "features": []string{"io_uring", "kvm"}}
}
