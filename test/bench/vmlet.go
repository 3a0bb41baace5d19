package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// vmlet is an agent in a folder of its own, driven by the client as a user
// would.
type vmlet struct {
	dir          string
	machine      machine
	agent        *exec.Cmd
	log          *os.File
	restoreFlags []string
	metrics      string // their URL; "": not served
}

// vmlet returns a maker of an agent that runs this QEMU ("": the installed one).
func (b *bench) vmlet(qemu string, restoreFlags ...string) func() (system, error) {
	return func() (system, error) {
		v, err := b.agent()
		if err != nil {
			return nil, err
		}
		v.restoreFlags = restoreFlags
		return v, v.start(b.ctx, qemu)
	}
}

// agent makes the folder of an agent that is not started yet.
func (b *bench) agent() (*vmlet, error) {
	dir, err := os.MkdirTemp(b.work, "vmlet.")
	if err != nil {
		return nil, err
	}
	v := &vmlet{dir: dir, machine: b.machine}
	return v, errors.Join(os.Chmod(dir, 0o711), v.mountRun())
}

// mountRun makes the run folder what /run is on a node, a tmpfs: on a disk each of its
// files would be waited for. libvirt has its own so, too.
func (v *vmlet) mountRun() error {
	if err := os.Mkdir(v.path("run"), 0o711); err != nil {
		return err
	}
	return os.NewSyscallError("mount", unix.Mount("vmlet-run", v.path("run"), "tmpfs", 0, "mode=0711"))
}

// unmountRun is for when the agent has ended.
func (v *vmlet) unmountRun() error {
	return os.NewSyscallError("umount", unix.Unmount(v.path("run"), unix.MNT_DETACH))
}

// serveMetrics has the agent serve them at HOST:PORT.
func (v *vmlet) serveMetrics(address string) {
	v.metrics = "http://" + address + "/metrics"
	v.machine.config = map[string]any{"endpoints": map[string]any{"metrics": map[string]any{"address": address}}}
}

func (v *vmlet) start(ctx context.Context, qemu string) error {
	if err := v.configure(qemu); err != nil {
		return err
	}
	if err := v.startAgent(ctx); err != nil {
		return err
	}
	return v.create(ctx, "bench")
}

// configure writes the agent's configuration.
func (v *vmlet) configure(qemu string) error {
	config := maps.Clone(v.machine.config)
	if config == nil {
		config = map[string]any{}
	}
	if qemu != "" {
		config["qemu"] = map[string]any{"binary": qemu}
	}
	text, err := json.Marshal(config) // JSON is YAML
	if err != nil {
		return err
	}
	if err := os.WriteFile(v.path("config.yaml"), text, 0o600); err != nil {
		return err
	}
	v.log, err = os.Create(v.path("agent.log"))
	return err
}

// startAgent starts the agent and waits until it answers.
func (v *vmlet) startAgent(ctx context.Context) error {
	if err := v.spawnAgent(); err != nil {
		return err
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := v.vmlet(ctx, "node")
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the agent does not answer (its log is %s): %w", v.log.Name(), err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (v *vmlet) spawnAgent() error {
	v.agent = exec.Command("bin/vmlet-agent", "--config", v.path("config.yaml"),
		"--state-dir", v.path("state"), "--run-dir", v.path("run"))
	v.agent.Stdout, v.agent.Stderr = v.log, v.log
	return v.agent.Start()
}

// create gives the agent the machine under a name.
func (v *vmlet) create(ctx context.Context, name string) error {
	kernel := map[string]any{"path": v.machine.kernel}
	if v.machine.initrd != "" {
		kernel["initrd"], kernel["cmdline"] = v.machine.initrd, v.machine.cmdline
	}
	spec := map[string]any{
		"name": name, "hypervisor": "emulation",
		"memory": map[string]any{"size": strconv.FormatUint(v.machine.memory, 10)},
		"boot":   map[string]any{"kernel": kernel},
	}
	maps.Copy(spec, v.machine.extra)
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if err := os.WriteFile(v.path(name+".yaml"), text, 0o600); err != nil {
		return err
	}
	return v.vmlet(ctx, "create", "-f", v.path(name+".yaml"))
}

func (v *vmlet) path(name string) string { return filepath.Join(v.dir, name) }

func (v *vmlet) vmlet(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "bin/vmlet", append([]string{"--socket", v.path("run/vmlet.sock")}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("vmlet %v: %w: %s", args, err, out)
	}
	return nil
}

func (v *vmlet) name() string    { return "vmlet" }
func (v *vmlet) console() string { return v.path("state/vms/bench/console.log") }

func (v *vmlet) boot(ctx context.Context) error    { return v.vmlet(ctx, "start", "bench") }
func (v *vmlet) destroy(ctx context.Context) error { return v.vmlet(ctx, "kill", "bench") }
func (v *vmlet) save(ctx context.Context, to string) error {
	return v.vmlet(ctx, "save", "bench", to)
}
func (v *vmlet) restore(ctx context.Context, from string) error {
	return v.vmlet(ctx, append([]string{"restore", from}, v.restoreFlags...)...)
}

func (v *vmlet) processes() ([]int, error) {
	shim, err := v.shim("bench")
	return []int{v.agent.Process.Pid, shim}, err
}

// shim is the process id of a VM's shim.
func (v *vmlet) shim(name string) (int, error) {
	out, err := exec.Command("bin/vmlet", "--socket", v.path("run/vmlet.sock"), "get", name, "-o", "json").Output()
	if err != nil {
		return 0, err
	}
	var vm struct {
		Status struct {
			Process struct {
				ShimPid int `json:"shimPid,string"`
			} `json:"process"`
		} `json:"status"`
	}
	err = json.Unmarshal(out, &vm)
	return vm.Status.Process.ShimPid, err
}

func (v *vmlet) close() error {
	defer v.log.Close()
	ctx := context.Background()
	_ = v.vmlet(ctx, "kill", "bench")   // it may not run
	_ = v.vmlet(ctx, "delete", "bench") // nor exist
	return v.leave()
}

// leave ends the agent.
func (v *vmlet) leave() error {
	err := v.agent.Process.Signal(os.Interrupt)
	return errors.Join(err, v.agent.Wait(), v.unmountRun())
}
