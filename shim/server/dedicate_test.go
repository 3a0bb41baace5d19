package server

import (
	"strings"
	"testing"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
)

// TestDedicatedRefused: before anything is made.
func TestDedicatedRefused(t *testing.T) {
	s := newScene(t, nil)
	p := s.plan("well")
	p.Dedicated = &plan.Dedicated{VCPUs: 4096, IsolateEmulatorThread: true}
	_, err := s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
	wantCode(t, err, shim.CodeInvalid)
	if !strings.Contains(err.Error(), "cpu.dedicated: 4097 CPUs are wanted for 4096 vCPUs and the VMM") {
		t.Error(err)
	}
	s.noFile(s.ram)
}

// TestNearRefused: the error names the field, and the RAM is given back.
func TestNearRefused(t *testing.T) {
	s := newScene(t, nil)
	p := s.plan("well")
	p.Memory.Near = []plan.Near{{Size: 4096, VCPUs: []int{0}}} // not of huge pages
	_, err := s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
	wantCode(t, err, shim.CodeInvalid)
	if !strings.Contains(err.Error(), "numa.guestMappingPassthrough: the plan has a part of 4096 bytes at 0") {
		t.Error(err)
	}
	s.noFile(s.ram)
}
