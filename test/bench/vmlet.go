package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// vmlet is an agent in a folder of its own, driven by the client as a user
// would.
type vmlet struct {
	dir          string
	machine      machine
	agent        *exec.Cmd
	log          *os.File
	restoreFlags []string
}

// vmlet returns a maker of an agent that runs this QEMU ("": the installed one).
func (b *bench) vmlet(qemu string, restoreFlags ...string) func() (system, error) {
	return func() (system, error) {
		dir, err := os.MkdirTemp(b.work, "vmlet.")
		if err != nil {
			return nil, err
		}
		if err := os.Chmod(dir, 0o711); err != nil {
			return nil, err
		}
		v := &vmlet{dir: dir, machine: b.machine, restoreFlags: restoreFlags}
		return v, v.start(b.ctx, qemu)
	}
}

func (v *vmlet) start(ctx context.Context, qemu string) error {
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
	if v.log, err = os.Create(v.path("agent.log")); err != nil {
		return err
	}
	v.agent = exec.Command("bin/vmlet", "agent", "--config", v.path("config.yaml"),
		"--state-dir", v.path("state"), "--run-dir", v.path("run"))
	v.agent.Stdout, v.agent.Stderr = v.log, v.log
	if err := v.agent.Start(); err != nil {
		return err
	}
	return v.create(ctx)
}

// create waits for the agent and gives it the machine.
func (v *vmlet) create(ctx context.Context) error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := v.vmlet(ctx, "node")
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the agent does not answer (its log is %s): %w", v.log.Name(), err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	kernel := map[string]any{"path": v.machine.kernel}
	if v.machine.initrd != "" {
		kernel["initrd"], kernel["cmdline"] = v.machine.initrd, v.machine.cmdline
	}
	spec := map[string]any{
		"name": "bench", "hypervisor": "emulation",
		"memory": map[string]any{"size": strconv.FormatUint(v.machine.memory, 10)},
		"boot":   map[string]any{"kernel": kernel},
	}
	maps.Copy(spec, v.machine.extra)
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if err := os.WriteFile(v.path("vm.yaml"), text, 0o600); err != nil {
		return err
	}
	return v.vmlet(ctx, "create", "-f", v.path("vm.yaml"))
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
	out, err := exec.Command("bin/vmlet", "--socket", v.path("run/vmlet.sock"), "get", "bench", "-o", "json").Output()
	if err != nil {
		return nil, err
	}
	var vm struct {
		Status struct {
			Process struct {
				ShimPid int `json:"shimPid,string"`
			} `json:"process"`
		} `json:"status"`
	}
	if err := json.Unmarshal(out, &vm); err != nil {
		return nil, err
	}
	return []int{v.agent.Process.Pid, vm.Status.Process.ShimPid}, nil
}

func (v *vmlet) close() error {
	defer v.log.Close()
	ctx := context.Background()
	_ = v.vmlet(ctx, "kill", "bench")   // it may not run
	_ = v.vmlet(ctx, "delete", "bench") // nor exist
	if err := v.agent.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	return v.agent.Wait()
}
