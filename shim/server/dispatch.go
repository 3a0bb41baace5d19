package server

import (
	"encoding/json"
	"os"

	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/fault"
)

// dispatch has the room that a request is for begin it.
func (s *Server) dispatch(c *conn, r shim.Request, files []*os.File) (work, error) {
	if r.Op != shim.OpHello && !c.greeted {
		return nil, fault.New(shim.CodeVersion, "", "%s before hello", r.Op)
	}
	switch r.Op {
	case shim.OpHello:
		return decoded(r, func(args *shim.Hello) (work, error) { return s.hello(c, args) })
	case shim.OpDescribe:
		return decoded(withArgs(r), s.describe)
	case shim.OpImage:
		return s.source.beginOpenImage(files)
	case shim.OpLaunch:
		return decoded(r, func(args *shim.Launch) (work, error) { return s.launcher.beginLaunch(c, r.ID, args, files) })
	case shim.OpSave:
		return decoded(r, func(args *shim.Save) (work, error) { return s.saves.beginSave(c, r.ID, args, files) })
	case shim.OpCommit:
		return decoded(r, func(args *shim.Commit) (work, error) { return s.saves.beginCommit(c, args) })
	case shim.OpAbort:
		return s.rollback.beginAbort(c)
	case shim.OpResume:
		return s.saves.beginResume(c)
	case shim.OpStop:
		return decoded(r, s.ender.beginStop)
	case shim.OpKill:
		return decoded(withArgs(r), s.ender.beginKill)
	case shim.OpAttach:
		return decoded(r, func(args *shim.Attach) (work, error) { return s.devices.beginAttach(c, args, files) })
	case shim.OpDetach:
		return decoded(r, func(args *shim.Detach) (work, error) { return s.devices.beginDetach(c, args) })
	case shim.OpRenew:
		return decoded(r, func(args *shim.Renew) (work, error) { return s.renewals.beginRenew(c, r.ID, args, files) })
	case shim.OpConsole:
		return decoded(r, s.guests.beginConsole)
	case shim.OpDisplay:
		return decoded(r, s.guests.beginDisplay)
	case shim.OpFreeze:
		return decoded(r, s.guests.beginFreeze)
	case shim.OpThaw:
		return s.guests.beginThaw()
	case shim.OpProbe:
		return decoded(r, s.guests.beginProbe)
	case shim.OpReboot:
		return decoded(r, s.guests.beginReboot)
	case shim.OpDial:
		return decoded(r, s.guests.dial)
	case shim.OpDriver:
		return decoded(r, func(args *shim.Driver) (work, error) { return s.beginDriver(args, files) })
	case shim.OpRelease:
		return decoded(withArgs(r), s.beginRelease)
	}
	return nil, fault.New(shim.CodeInvalid, "op", "%q is unknown to this shim", r.Op)
}

// withArgs is for requests that had none in an earlier version.
func withArgs(r shim.Request) shim.Request {
	if len(r.Args) == 0 {
		r.Args = json.RawMessage("{}")
	}
	return r
}

func decoded[T any](r shim.Request, begin func(*T) (work, error)) (work, error) {
	var args T
	if err := json.Unmarshal(r.Args, &args); err != nil {
		return nil, fault.New(shim.CodeInvalid, "args", "of %s: %v", r.Op, err)
	}
	return begin(&args)
}

func (s *Server) hello(c *conn, args *shim.Hello) (work, error) {
	if args.Major != shim.VersionMajor {
		return nil, fault.New(shim.CodeVersion, "", "the agent speaks version %d.%d of the protocol, this shim %d.%d",
			args.Major, args.Minor, shim.VersionMajor, shim.VersionMinor)
	}
	c.greeted = true
	welcome := s.welcome()
	return func() (any, error) { return welcome, nil }, nil
}
