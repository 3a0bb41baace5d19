package chtest

import (
	"errors"
	"net/http"
	"os"
	"strings"
)

const apiPath = "/api/v1/"

// endpoint is one call, and how it is to be called.
type endpoint struct {
	get      bool
	careless bool // about a body; others refuse one that they don't take
	takes    bool // a body
	// read reads the body, and returns what is then to be done.
	read func(r *request) (func() (any, error), error)
}

// taking is a call with a body.
func taking[T any](do func(r *request, body *T) (any, error)) endpoint {
	return endpoint{takes: true, read: func(r *request) (func() (any, error), error) {
		body := new(T)
		return func() (any, error) { return do(r, body) }, document(r.body, body)
	}}
}

func plain(do func() (any, error)) endpoint {
	return endpoint{read: func(*request) (func() (any, error), error) { return do, nil }}
}

func asking(do func() (any, error)) endpoint {
	e := plain(do)
	e.get, e.careless = true, true
	return e
}

func adding[T any, D interface {
	*T
	deviceConfig
}](m *VMM) endpoint {
	return taking(func(r *request, body *T) (any, error) { return m.addDevice(r, D(body)) })
}

// endpoints are version 53's, as far as they are in here.
func (m *VMM) endpoints(k Knobs) map[string]endpoint {
	e := map[string]endpoint{
		"vmm.ping": asking(func() (any, error) { return m.ping(k), nil }), "vm.info": asking(m.info), "vm.counters": asking(m.counters),

		"vm.create":      taking(func(_ *request, c *config) (any, error) { return nil, m.create(c) }),
		"vm.resize":      taking(func(_ *request, b *resizeBody) (any, error) { return nil, m.resize(b) }),
		"vm.resize-zone": taking(func(_ *request, b *resizeZoneBody) (any, error) { return nil, m.resizeZone(b) }),
		"vm.snapshot":    taking(func(_ *request, b *snapshotBody) (any, error) { return nil, m.snapshot(b) }),
		"vm.restore":     taking(func(r *request, b *restoreBody) (any, error) { return nil, m.restoreCall(r, b) }),

		"vm.add-disk": adding[diskConfig](m), "vm.add-net": adding[netConfig](m),
		"vm.add-vsock": adding[vsockConfig](m), "vm.add-device": adding[vfioConfig](m),
		"vm.remove-device": taking(func(_ *request, b *removeBody) (any, error) { return nil, m.removeDevice(b.ID) }),
	}
	for name, do := range map[string]func() error{
		"vm.boot": m.boot, "vm.delete": m.delete, "vm.shutdown": m.shutdown, "vm.reboot": m.reboot,
		"vm.pause": m.pause, "vm.resume": m.resume, "vm.power-button": m.powerButton, "vm.nmi": m.nmi, "vmm.shutdown": m.shutdownCall,
	} {
		call := plain(func() (any, error) { return nil, do() })
		call.careless = name == "vmm.shutdown"
		e[name] = call
	}
	return e
}

// route carries a request out if it is called as the endpoint wants it.
func (m *VMM) route(r *request, call string, k Knobs) (int, string) {
	e, ok := m.endpoints(k)[call]
	if !ok || !strings.HasPrefix(r.path, apiPath) {
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
	if !e.careless && (r.body == nil) == e.takes || call == "vm.add-device" && len(r.files) > 1 {
		return failed(badRequest())
	}
	do, err := e.read(r)
	if err != nil {
		return failed(badBody(err))
	}
	if causes, ok := k.Refuse[call]; ok {
		return failed(&fault{http.StatusInternalServerError, causes})
	}
	return m.perform(do, call)
}

func (m *VMM) perform(do func() (any, error), call string) (int, string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if call != "vm.snapshot" {
		m.dawdle(call)
	}
	if m.hasDied() {
		return 0, ""
	}
	answer, err := do()
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
