package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"github.com/vmlet/vmlet/agent/api"
	"github.com/vmlet/vmlet/cluster/nodes/nodestest"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// cluster is what a controller must know: agents, pods, and its certificate in PEM.
type cluster struct {
	Authority, Certificate, Key []byte
	Addresses                   map[string]string // by node
	Pods                        map[string][]pod  // by node
}

type pod struct{ Namespace, Name, UID string }

// simulation has the agents.
type simulation struct {
	cluster cluster
	agents  []*nodestest.Agent
	vms     [][]*nodev1.VirtualMachine // by agent
	servers []*grpc.Server
	changes int // of the last call of change
}

// simulate serves agents, each at a port of its own.
func simulate(agents, vms int) (*simulation, error) {
	authority, err := nodestest.NewAuthority()
	if err != nil {
		return nil, err
	}
	s := &simulation{cluster: cluster{
		Authority: authority.PEM(), Addresses: make(map[string]string), Pods: make(map[string][]pod),
	}}
	client, err := authority.Client()
	if err != nil {
		return nil, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(client.Certificates[0].PrivateKey)
	if err != nil {
		return nil, err
	}
	s.cluster.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: client.Certificates[0].Certificate[0]})
	s.cluster.Key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	for i := range agents {
		if err := s.add(authority, i, vms); err != nil {
			s.stop()
			return nil, err
		}
	}
	return s, nil
}

// add serves one agent.
func (s *simulation) add(authority *nodestest.Authority, i, count int) error {
	node := fmt.Sprintf("node-%d", i)
	config, err := authority.Server(node)
	if err != nil {
		return err
	}
	var vms []*nodev1.VirtualMachine
	for j := range count {
		uid := fmt.Sprintf("%08x-0000-4000-8000-%012x", i, j)
		p := pod{Namespace: "tenant-" + strconv.Itoa(i%50), Name: fmt.Sprintf("virt-launcher-web-%d-%d-abcde", i, j), UID: uid}
		s.cluster.Pods[node] = append(s.cluster.Pods[node], p)
		vms = append(vms, machine(p))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	agent := nodestest.NewAgent(vms...)
	programs := api.NewPrograms(config, api.StandardPrograms()...)
	server := api.NewServer(programs, slog.New(slog.DiscardHandler), programs.Options()...)
	nodev1.RegisterNodeServiceServer(server, agent)
	go server.Serve(l)
	s.cluster.Addresses[node] = l.Addr().String()
	s.agents, s.vms, s.servers = append(s.agents, agent), append(s.vms, vms), append(s.servers, server)
	return nil
}

func (s *simulation) stop() {
	for _, server := range s.servers {
		server.Stop()
	}
}

// change changes VMs, evenly in time. When each was is in its message.
func (s *simulation) change(ctx context.Context, rate float64, duration time.Duration) {
	ticker := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer ticker.Stop()
	over := time.After(duration)
	s.changes = 0
	for {
		select {
		case <-ticker.C:
		case <-over:
			return
		case <-ctx.Done():
			return
		}
		i := rand.IntN(len(s.agents))
		was := s.vms[i][rand.IntN(len(s.vms[i]))].GetStatus().GetPod()
		vm := machine(pod{was.GetNamespace(), was.GetName(), was.GetUid()})
		vm.Status.Message = strconv.FormatInt(time.Now().UnixNano(), 10)
		s.agents[i].Set(vm)
		s.changes++
	}
}

// machine is a VM with as much as a usual one has.
func machine(p pod) *nodev1.VirtualMachine {
	vm := nodestest.VM(p.Namespace, p.Name, p.UID, nodev1.State_STATE_RUNNING)
	now := timestamppb.Now()
	s := vm.Status
	s.CreatedAt, s.StartedAt, s.BootId = now, now, p.UID
	s.Hypervisor, s.HypervisorReason, s.VmmReason = "kvm", "KVM works on this node", "the first that can run the VM"
	s.Vmm = &nodev1.Vmm{Name: "qemu", Version: "10.0.2", Binary: "/usr/bin/qemu-system-x86_64", LazyRestore: true}
	s.Process = &nodev1.ProcessStatus{ShimPid: 4711, VmmPid: 4712, Uid: 107, Cgroup: "/kubepods.slice/kubepods-pod" + p.UID + ".slice"}
	s.Guest = &nodev1.GuestStatus{
		AgentConnected: true, AgentVersion: "9.2.0", Hostname: p.Name,
		Os: &nodev1.GuestOS{Id: "debian", Name: "Debian GNU/Linux", PrettyName: "Debian GNU/Linux 13 (trixie)", Version: "13 (trixie)", VersionId: "13", KernelRelease: "6.12.41+deb13-cloud-amd64", KernelVersion: "#1 SMP PREEMPT_DYNAMIC Debian 6.12.41-1", Machine: "x86_64"},
	}
	for i := range 3 {
		s.Guest.Interfaces = append(s.Guest.Interfaces, &nodev1.GuestInterface{
			Name: fmt.Sprintf("enp%ds0", i), Mac: "02:00:00:00:00:01", Addresses: []string{"10.0.2.15", "fe80::5054:ff:fe12:3456"},
		})
	}
	spec := &specv1.VirtualMachineSpec{Name: p.Name, Hypervisor: "kvm", Vmm: "qemu", MachineType: "pc-q35-10.0", Labels: map[string]string{"app": "web"}}
	for i := range 3 {
		spec.Disks = append(spec.Disks, &specv1.Disk{Name: fmt.Sprintf("disk%d", i), Path: fmt.Sprintf("/var/run/vmlet/disks/disk%d/disk.img", i), Format: "raw", Bus: "virtio", Cache: "none", Io: "native"})
	}
	s.EffectiveSpec = spec
	return vm
}
