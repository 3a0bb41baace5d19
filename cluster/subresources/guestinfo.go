package subresources

import (
	"errors"
	"io"
	"net/http"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

var errPausedProbe = errors.New("pausing VMIs with LivenessProbe is currently not supported, but for one with guestAgentPing")

// withoutAgent is for calls that need the guest's agent: as KubeVirt, it is an internal error if
// there is none.
func withoutAgent(err error) error {
	if s, is := status.FromError(err); is && s.Code() == codes.FailedPrecondition {
		return internal("%s", bounded(s.Message()))
	}
	return err
}

// guestSays asks the guest's agent.
func (s *Server) guestSays(c *call) (*nodev1.GetGuestResponse, error) {
	vmi, err := s.instance(c)
	switch {
	case err != nil:
		return nil, err
	case vmi.Status.Phase != kubevirtv1.PhaseRunning:
		return nil, internal("VMI is not running, but %s", phaseOf(vmi))
	}
	g, err := s.guest(c.Context(), vmi)
	if err != nil {
		return nil, err
	}
	defer g.done()
	says, err := g.agent.GetGuest(c.Context(), &nodev1.GetGuestRequest{Name: g.name})
	return says, agentError(vmi.Name, withoutAgent(err))
}

func (s *Server) guestOSInfo(c *call) error {
	says, err := s.guestSays(c)
	if err == nil {
		writeJSON(c.w, http.StatusOK, infoOf(says))
	}
	return err
}

func (s *Server) users(c *call) error {
	says, err := s.guestSays(c)
	if err == nil {
		writeJSON(c.w, http.StatusOK, userList{typed("VirtualMachineInstanceGuestOSUserList"), usersOf(says)})
	}
	return err
}

func (s *Server) fileSystems(c *call) error {
	says, err := s.guestSays(c)
	if err == nil {
		writeJSON(c.w, http.StatusOK, fileSystemList{typed("VirtualMachineInstanceFileSystemList"), fileSystemsOf(says)})
	}
	return err
}

// screenshot answers with a PNG, and keeps nothing of it.
func (s *Server) screenshot(c *call) error {
	leave, err := s.pictures.enter(c.user())
	if err != nil {
		return err
	}
	defer leave()
	vmi, err := s.displayed(c)
	if err != nil {
		return err
	}
	move, _ := strconv.ParseBool(c.URL.Query().Get("moveCursor")) // anything else is no
	g, err := s.guest(c.Context(), vmi)
	if err != nil {
		return err
	}
	defer g.done()
	parts, err := g.agent.TakeScreenshot(c.Context(), &nodev1.TakeScreenshotRequest{Name: g.name, MovePointer: move})
	if err != nil {
		return agentError(vmi.Name, err)
	}
	part, err := parts.Recv() // says whether there is a picture
	if err != nil {
		return agentError(vmi.Name, err)
	}
	c.w.Header().Set("Content-Type", "image/png")
	for ; err == nil; part, err = parts.Recv() {
		if _, err := c.w.Write(part.GetData()); err != nil {
			return halfway{err}
		}
	}
	if !errors.Is(err, io.EOF) {
		return halfway{agentError(vmi.Name, err)}
	}
	return nil
}
