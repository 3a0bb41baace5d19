package subresources

import (
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Resources of the API.
const (
	machines    = "virtualmachines"
	instances   = "virtualmachineinstances"
	expandSpec  = "expand-vm-spec"
	portForward = "portforward"
)

// action is one subresource of one resource.
type action struct {
	method, resource, subresource string
	do                            func(*Server, *call) error
	// stream: it lasts as long as its client likes.
	stream bool
}

func (a action) verb() string {
	if a.method == http.MethodPut {
		return "update"
	}
	return "get"
}

// actions are all that there are.
func actions() []action {
	const get, put = http.MethodGet, http.MethodPut
	return append([]action{
		{put, machines, "start", (*Server).start, false},
		{put, machines, "stop", (*Server).stop, false},
		{put, machines, "restart", (*Server).restart, false},
		{get, machines, "expand-spec", (*Server).expandMachine, false},
		{put, machines, "evacuate/cancel", (*Server).cancelEvacuation, false},
		{get, machines, portForward, (*Server).forwardMachine, true},
		{put, "", expandSpec, (*Server).expandGiven, false},

		{put, instances, "pause", (*Server).pause, false},
		{put, instances, "unpause", (*Server).unpause, false},
		{put, instances, "reset", (*Server).reset, false},
		{put, instances, "softreboot", (*Server).softReboot, false},
		{put, instances, "renew", (*Server).renew, false},
		{put, instances, "freeze", (*Server).freeze, false},
		{put, instances, "unfreeze", (*Server).unfreeze, false},
		{put, instances, "evacuate/cancel", (*Server).cancelEvacuation, false},
		{get, instances, "guestosinfo", (*Server).guestOSInfo, false},
		{get, instances, "userlist", (*Server).users, false},
		{get, instances, "filesystemlist", (*Server).fileSystems, false},
		{get, instances, "console", (*Server).console, true},
		{get, instances, "vnc", (*Server).vnc, true},
		{get, instances, "vnc/screenshot", (*Server).screenshot, false},
		{get, instances, portForward, (*Server).forwardInstance, true},
	}, missing()...)
}

// missing are KubeVirt's actions that vmlet has not, each with what to do.
func missing() (all []action) {
	const get, put = http.MethodGet, http.MethodPut
	for _, m := range []struct{ method, resource, subresource, what, advice string }{
		{put, machines, "migrate", "live migration", "kubectl vmlet move hibernates the VM and has it go on elsewhere"},
		{put, machines, "addvolume", "volumes added to a VM that runs", "add the volume to spec.template.spec and restart the VM"},
		{put, machines, "removevolume", "volumes removed from a VM that runs", "remove the volume from spec.template.spec and restart the VM"},
		{put, machines, "memorydump", "memory dumps", "there is nothing in their place yet"},
		{put, machines, "removememorydump", "memory dumps", "there is none to be removed"},
		{get, machines, "objectgraph", "graphs of objects", "kubectl describe vmi NAME says what it consists of"},
		{put, instances, "addvolume", "volumes added to a VM that runs", "name the volume in spec.volumes of a new instance"},
		{put, instances, "removevolume", "volumes removed from a VM that runs", "leave the volume out of spec.volumes of a new instance"},
		{put, instances, "backup", "backups", "take a snapshot of the VM's claims while it is stopped"},
		{put, instances, "redefine-checkpoint", "backups", "take a snapshot of the VM's claims while it is stopped"},
		{get, instances, "objectgraph", "graphs of objects", "kubectl describe vmi NAME says what it consists of"},
		{get, instances, "usbredir", "USB devices of clients", "use a device of the node: spec.domain.devices.hostDevices"},
		{get, instances, "vsock", "connections to VSOCK ports", "use a port of the guest's network: portforward"},
		{get, instances, "sev/fetchcertchain", "attestation of SEV guests", "attest from inside of the guest"},
		{get, instances, "sev/querylaunchmeasurement", "attestation of SEV guests", "attest from inside of the guest"},
		{put, instances, "sev/setupsession", "attestation of SEV guests", "attest from inside of the guest"},
		{put, instances, "sev/injectlaunchsecret", "attestation of SEV guests", "attest from inside of the guest"},
	} {
		all = append(all, action{m.method, m.resource, m.subresource, func(*Server, *call) error { return notImplemented(m.what, m.advice) }, false})
	}
	return all
}

// find returns the action that is asked for; nil: there is none.
func find(info *request.RequestInfo) *action {
	for _, a := range actions() {
		named := a.resource == info.Resource && a.subresource == info.Subresource && info.Name != ""
		whole := a.resource == "" && a.subresource == info.Resource && info.Name == ""
		if (named || whole) && a.verb() == info.Verb {
			return &a
		}
	}
	return nil
}

// call is one request.
type call struct {
	*http.Request
	info *request.RequestInfo
	w    http.ResponseWriter
}

func (c *call) namespace() string { return c.info.Namespace }
func (c *call) name() string      { return c.info.Name }

// user names whose share of places a call takes.
func (c *call) user() string {
	if user, known := request.UserFrom(c.Context()); known {
		return party(user.GetName())
	}
	return ""
}

// party is a user, or all ServiceAccounts of a namespace: a holder of one may make others.
func party(user string) string {
	if namespace, _, err := serviceaccount.SplitUsername(user); err == nil {
		return serviceaccount.ServiceAccountUsernamePrefix + namespace
	}
	return user
}

// serve answers a request that is allowed.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	info, _ := request.RequestInfoFrom(r.Context())
	since := time.Now()
	err := s.act(w, r, info)
	_, begun := err.(halfway)
	if err != nil && !begun {
		writeError(w, err)
	}
	user, _ := request.UserFrom(r.Context())
	s.o.Log.Info("request", "verb", info.Verb, "resource", info.Resource, "subresource", info.Subresource,
		"namespace", info.Namespace, "name", info.Name, "user", user.GetName(), "took", time.Since(since), "error", err)
	if begun {
		panic(http.ErrAbortHandler) // cuts the client off, who would take what it has for all
	}
}

// halfway is an error after a part of the answer has been sent.
type halfway struct{ error }

func (s *Server) act(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) error {
	for _, version := range versions() {
		if a := find(info); a != nil && info.APIVersion == version {
			return a.do(s, &call{Request: r, info: info, w: w})
		}
	}
	return apierrors.NewGenericServerResponse(http.StatusNotFound, info.Verb, schema.GroupResource{Group: Group, Resource: info.Resource}, info.Name,
		fmt.Sprintf("%s has no %s %s %s", info.APIVersion, r.Method, info.Resource, info.Subresource), 0, true)
}
