package e2e

import (
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/test/guest"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// states asks for what does not fit the state, and for what is so already.
func (s *suite) states() {
	spec := s.spec("states", guest.PVHOptions{})
	v := s.create(spec)
	image := s.image()
	ask := s.operations(v, spec, image)
	refuses := func(state string, operations ...string) {
		s.t.Helper()
		for _, op := range operations {
			refused(s.t, ask[op](), codes.FailedPrecondition, v.name, state)
		}
	}
	allows := func(operations ...string) {
		s.t.Helper()
		for _, op := range operations {
			if err := ask[op](); err != nil {
				s.t.Errorf("%s: %v", op, err)
			}
		}
	}

	refuses("created", "save", "pause", "resume", "reset", "console")
	refused(s.t, ask["create another"](), codes.AlreadyExists, v.name)
	allows("create", "stop", "kill")
	v.is(created)

	allows("start", "create")
	v.count()
	refuses("running", "start", "delete")
	allows("resume", "pause", "pause")
	refuses("paused", "start", "delete")
	allows("resume", "resume")
	v.countsOn()
	allows("kill", "kill", "stop")

	v.is(stopped)
	refuses("stopped", "save", "pause", "resume", "reset", "console")
	allows("start", "save")
	v.is(saved)
	refuses("saved", "save", "pause", "resume", "reset", "console")
	allows("stop", "kill")
	v.is(saved)

	// A cold start boots afresh, and the image is no longer the VM's.
	_, err := last(s.api.StartVM(s.ctx, &nodev1.StartVMRequest{Name: v.name, Cold: true}))
	v.must(err)
	says(s.t, v.is(running), image)
	v.kill()
	if ref := v.is(stopped).GetImage(); ref != nil {
		s.t.Errorf("after a cold start the VM still has the image %v", ref)
	}
	s.verify(image)
	allows("delete")
	for _, op := range []string{"start", "save", "pause", "resume", "reset", "stop", "kill", "delete", "console"} {
		refused(s.t, ask[op](), codes.NotFound, v.name)
	}
}

// operations are all that can be asked of a VM.
func (s *suite) operations(v *vm, spec *specv1.VirtualMachineSpec, image string) map[string]func() error {
	return map[string]func() error{
		"start":  func() error { return v.start(false) },
		"save":   func() error { return v.trySave(image) },
		"pause":  func() error { _, err := s.api.PauseVM(s.ctx, &nodev1.PauseVMRequest{Name: v.name}); return err },
		"resume": func() error { _, err := s.api.ResumeVM(s.ctx, &nodev1.ResumeVMRequest{Name: v.name}); return err },
		"reset":  func() error { _, err := s.api.ResetVM(s.ctx, &nodev1.ResetVMRequest{Name: v.name}); return err },
		"stop":   func() error { _, err := s.api.StopVM(s.ctx, &nodev1.StopVMRequest{Name: v.name}); return err },
		"kill":   func() error { _, err := s.api.KillVM(s.ctx, &nodev1.KillVMRequest{Name: v.name}); return err },
		"delete": func() error { _, err := s.api.DeleteVM(s.ctx, &nodev1.DeleteVMRequest{Name: v.name}); return err },
		"create": func() error { _, err := s.api.CreateVM(s.ctx, &nodev1.CreateVMRequest{Spec: spec}); return err },
		"create another": func() error {
			other := proto.CloneOf(spec)
			other.Memory.Size = "96Mi"
			_, err := s.api.CreateVM(s.ctx, &nodev1.CreateVMRequest{Spec: other})
			return err
		},
		"console": func() error {
			stream, err := s.api.AttachConsole(s.ctx)
			s.must(err)
			s.must(stream.Send(&nodev1.AttachConsoleRequest{Name: v.name}))
			_, err = stream.Recv()
			return err
		},
	}
}
