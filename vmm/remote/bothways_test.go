package remote_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/vmlet/vmlet/internal/unixsocket"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/vmtest"
	"github.com/vmlet/vmlet/vmm/driverkit"
	"github.com/vmlet/vmlet/vmm/qemu"
	"github.com/vmlet/vmlet/vmm/qemu/qemutest"
	"github.com/vmlet/vmlet/vmm/remote"

	"google.golang.org/protobuf/proto"
)

// pair are two ends of a connection in this process.
func pair(t testing.TB) (own, other *net.UnixConn) {
	t.Helper()
	a, f, err := unixsocket.Pair("test")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	return a.(*net.UnixConn), b.(*net.UnixConn)
}

// throughProtocol puts a VMM behind the protocol, and the protocol behind a VMM.
func throughProtocol(t testing.TB, v vmm.VMM) *remote.VMM {
	t.Helper()
	r := remote.New(remote.Config{
		Name: v.Name(), Driver: plan.Driver{Program: "/usr/libexec/driver"},
		Open: func() (*net.UnixConn, func() error, error) {
			own, other := pair(t)
			go func() { _ = driverkit.Serve(context.Background(), other, driverkit.Stack{Version: "test", VMM: v}) }()
			return own, nil, nil
		},
	})
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// known is a VMM without its program.
type known struct{ info vmm.Info }

func (k known) Info(context.Context) (vmm.Info, error) { return k.info, nil }
func (k known) CheckImage(_ context.Context, m *memory.Manifest) error {
	if m.VMM.Version != k.info.Version {
		return errors.New("another version")
	}
	return nil
}

func (k known) Connect(context.Context, vmm.Dialer) (vmm.Monitor, error) {
	return nil, errors.ErrUnsupported
}

type knownQEMU struct {
	qemu.QEMU
	known
}

type knownCH struct {
	cloudhypervisor.CloudHypervisor
	known
}

// TestPlansAreTheSameByTheProtocol: what the two VMMs plan for each of their golden cases is
// the same when the request has gone to a driver, and the plan has come back and was judged.
func TestPlansAreTheSameByTheProtocol(t *testing.T) {
	for _, c := range qemutest.Cases() {
		for _, fixture := range qemutest.Infos(c) {
			t.Run("qemu/"+c.Name+"-"+fixture, func(t *testing.T) {
				info := qemutest.Fixture(t, "../qemu/testdata", fixture)
				v := knownQEMU{known: known{info: info}}
				samePlan(t, v, throughProtocol(t, v), c.Request(info))
			})
		}
	}
	for _, c := range vmtest.Cases() {
		t.Run("cloud-hypervisor/"+c.Name, func(t *testing.T) {
			r := c.Request(t)
			v := knownCH{known: known{info: r.Info}}
			samePlan(t, v, throughProtocol(t, v), r)
		})
	}
}

func samePlan(t *testing.T, direct vmm.VMM, behind *remote.VMM, r vmm.PlanRequest) {
	t.Helper()
	copied := r
	copied.Spec = proto.CloneOf(r.Spec)
	want, err := direct.Plan(r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := behind.Plan(copied)
	if err != nil {
		t.Fatal(err)
	}
	if got.Driver == nil {
		t.Error("the plan names no driver")
	}
	got.Driver = nil
	if w, g := text(t, want), text(t, got); w != g {
		t.Errorf("plan is\n%s\nwant\n%s", g, w)
	}
	wantManifest, err := direct.Manifest(r)
	if err != nil {
		t.Fatal(err)
	}
	gotManifest, err := behind.Manifest(copied)
	if err != nil {
		t.Fatal(err)
	}
	wantManifest.Specification, gotManifest.Specification = nil, nil // JSON of protobuf has random spaces
	if w, g := text(t, wantManifest), text(t, gotManifest); w != g {
		t.Errorf("manifest is\n%s\nwant\n%s", g, w)
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestPureHalfIsTheSameByTheProtocol compares all else that depends on no VM.
func TestPureHalfIsTheSameByTheProtocol(t *testing.T) {
	direct := knownQEMU{known: known{info: qemutest.Fixture(t, "../qemu/testdata", qemutest.Infos(qemutest.Cases()[0])[0])}}
	behind := throughProtocol(t, direct)
	info, err := behind.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.Version != direct.info.Version || info.LazyRestore != direct.info.LazyRestore {
		t.Errorf("version %q, lazy %v, want %q, %v", info.Version, info.LazyRestore, direct.info.Version, direct.info.LazyRestore)
	}
	if w, g := vmm.MemoryCostsOf(direct.QEMU), behind.MemoryCosts(); w != g {
		t.Errorf("costs are %+v, want %+v", g, w)
	}
	w, g := direct.Defaults("amd64"), behind.Defaults("amd64")
	if !proto.Equal(w.Layer, g.Layer) {
		t.Errorf("defaults are %v, want %v", g.Layer, w.Layer)
	}
	if !proto.Equal(w.Disk, g.Disk) {
		t.Errorf("defaults of disks are %v, want %v", g.Disk, w.Disk)
	}
	w.Layer, g.Layer, w.Disk, g.Disk = nil, nil, nil, nil
	if w != g {
		t.Errorf("defaults are %+v, want %+v", g, w)
	}
	s := qemutest.Complete("cpu: {model: host}\nmachineType: microvm\nhostDevices: [{pciAddress: '0000:01:00.0'}]\n", "amd64", "kvm")
	if want, got := direct.Validate(s, "amd64"), behind.Validate(s, "amd64"); text(t, want) != text(t, got) {
		t.Errorf("faults are %v, want %v", got, want)
	}
	if want, got := direct.RefuseSave(s), behind.RefuseSave(s); (want == nil) != (got == nil) || want != nil && want.Error() != got.Error() {
		t.Errorf("a save is refused with %v, want %v", got, want)
	}
	if err := behind.CheckImage(t.Context(), &memory.Manifest{VMM: memory.VMM{Name: "qemu", Version: direct.info.Version}}); err != nil {
		t.Error(err)
	}
	if err := behind.CheckImage(t.Context(), &memory.Manifest{VMM: memory.VMM{Name: "qemu", Version: "1"}}); err == nil {
		t.Error("an image of another version is taken")
	}
}

var _ control.Driver = (*fakeDriver)(nil)

// awaits bounds a test.
const awaits = 20 * time.Second

// temporary is an open file of no content.
func temporary(t *testing.T) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
