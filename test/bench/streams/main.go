// Command streams tries how the controller hears of VMs, at the size of a large cluster: it
// serves the node API of many simulated agents over mutual TLS, has one controller process
// follow them, then another take over from nothing, and prints a table of times, memory and
// processor time of both ends.
//
//	go run ./test/bench/streams [-agents 1000] [-vms 3] [-events 10] [-for 60s]
//
// Agents are simulated in this process, behind the agent's own gRPC server; controllers run the
// controller's own client (cluster/nodes) in processes of theirs. A status write is a
// function that is called. It fails if the aims are missed.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"time"
)

// What is aimed at.
const (
	aimTakeOver = 15 * time.Second
	aimMemory   = 300 << 20
	aimCores    = 0.5
	aimLatency  = time.Second
)

func main() {
	agents := flag.Int("agents", 1000, "how many agents")
	vms := flag.Int("vms", 3, "how many VMs each has")
	events := flag.Float64("events", 10, "changes a second of all VMs together")
	duration := flag.Duration("for", time.Minute, "how long events are measured for each controller")
	controller := flag.Bool("controller", false, "for internal use: be a controller")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	err := error(nil)
	if *controller {
		err = control(ctx, os.Stdin, os.Stdout)
	} else {
		err = run(ctx, *agents, *vms, *events, *duration)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "streams:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, agents, vms int, events float64, duration time.Duration) error {
	sim, err := simulate(agents, vms)
	if err != nil {
		return err
	}
	defer sim.stop()
	first, err := startController(ctx, sim.cluster)
	if err != nil {
		return err
	}
	defer first.kill()
	second, err := startController(ctx, sim.cluster)
	if err != nil {
		return err
	}
	defer second.kill()
	fmt.Printf("%d agents with %d VMs each, %g changes a second in all, measured for %v\n\n", agents, vms, events, duration)
	fmt.Printf("%-34s %14s %14s\n", "", "controller", "all agents")
	misses := sim.lead(ctx, "first leader", first, events, duration)
	first.kill()
	return errors.Join(misses, sim.lead(ctx, "after its end: a new leader", second, events, duration))
}

// lead has a controller lead, and prints what that took.
func (s *simulation) lead(ctx context.Context, title string, c *controller, events float64, duration time.Duration) error {
	var all heard
	client, agents := usageOf(c.command.Process.Pid), usageOf(os.Getpid())
	if err := c.ask("lead", &all); err != nil {
		return err
	}
	clientUp, agentsUp := usageOf(c.command.Process.Pid), usageOf(os.Getpid())
	s.change(ctx, events, duration)
	clientEnd, agentsEnd := usageOf(c.command.Process.Pid), usageOf(os.Getpid())
	var l latencies
	if err := c.ask("report", &l); err != nil {
		return err
	}
	seconds := duration.Seconds()
	cores := (clientEnd.cpu - clientUp.cpu).Seconds() / seconds
	fmt.Println(title)
	row := func(what, controller, agents string) { fmt.Printf("  %-32s %14s %14s\n", what, controller, agents) }
	row("all streams complete after", all.After.Round(time.Millisecond).String(), "")
	row("processor time for that", (clientUp.cpu - client.cpu).String(), (agentsUp.cpu - agents.cpu).String())
	row("cores while VMs change", fmt.Sprintf("%.3f", cores), fmt.Sprintf("%.3f", (agentsEnd.cpu-agentsUp.cpu).Seconds()/seconds))
	row("resident, at the end", mib(clientEnd.resident), mib(agentsEnd.resident))
	row("resident, at most", mib(clientEnd.peak), mib(agentsEnd.peak))
	row("changes seen", fmt.Sprintf("%d of %d", l.Seen, s.changes), "")
	row("change to status write, median", l.Median.Round(10*time.Microsecond).String(), "")
	row("change to status write, 99 %", l.P99.Round(10*time.Microsecond).String(), "")
	row("change to status write, longest", l.Longest.Round(10*time.Microsecond).String(), "")
	fmt.Println()
	var misses error
	miss := func(missed bool, what string) {
		if missed {
			misses = errors.Join(misses, fmt.Errorf("%s: %s is more than was aimed at", title, what))
		}
	}
	miss(all.After > aimTakeOver, "the time until all streams are complete")
	miss(clientEnd.peak > aimMemory, "the controller's memory")
	miss(cores > aimCores, "the controller's processor time")
	miss(l.P99 > aimLatency, "the time from a change to a status write")
	miss(l.Seen == 0, "the number of changes that were not seen")
	return misses
}

func mib(bytes uint64) string { return fmt.Sprintf("%d MiB", bytes>>20) }

// controller is a process of its own.
type controller struct {
	command *exec.Cmd
	in      *json.Encoder
	out     *bufio.Scanner
}

func startController(ctx context.Context, cluster cluster) (*controller, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-controller")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &controller{command: cmd, in: json.NewEncoder(in), out: bufio.NewScanner(out)}
	return c, c.in.Encode(cluster)
}

// ask has the controller do something and decodes its answer.
func (c *controller) ask(what string, answer any) error {
	if err := c.in.Encode(what); err != nil {
		return err
	}
	if !c.out.Scan() {
		return fmt.Errorf("the controller has ended without an answer to %q: %w", what, errors.Join(c.out.Err(), c.command.Wait()))
	}
	return json.Unmarshal(c.out.Bytes(), answer)
}

func (c *controller) kill() {
	_ = c.command.Process.Kill() // it may have ended
	_ = c.command.Wait()
}
