package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// hibernation is that of VirtualMachines: through the API, on a cluster of one node. The tests of these
// have such a cluster, and time it.
func (b *bench) hibernation() error {
	to := filepath.Join(b.work, "hibernation.json")
	test := exec.CommandContext(b.ctx, "go", "test", "-count=1", "-timeout=0", "-run=^TestVirtualMachines$/^hibernation times$",
		"./test/virtualmachines", "-times="+strconv.Itoa(b.runs), "-times-to="+to)
	test.Stdout, test.Stderr = os.Stderr, os.Stderr
	if err := test.Run(); err != nil {
		return fmt.Errorf("time hibernation: %w", err)
	}
	text, err := os.ReadFile(to)
	if err != nil {
		return fmt.Errorf("the tests timed nothing, as they can't start a cluster here: %w", err)
	}
	var times map[string]sample
	if err := json.Unmarshal(text, &times); err != nil {
		return err
	}
	b.hibernationRows(times)
	return nil
}

// hibernationRows are of what the tests have timed: a size for which the machine has no room is missing.
func (b *bench) hibernationRows(times map[string]sample) {
	row := func(what string, took, beside sample, ratio string) {
		if len(took) > 0 {
			b.table.row(what, took.String(), "–", beside.String(), ratio)
		}
	}
	pause := times["pause pod"]
	row("a pause pod, until it runs", pause, nil, "–")
	for _, touched := range []string{"100", "700"} {
		took, dd := times["hibernate 1Gi "+touched+" MiB"], times["dd "+touched+" MiB"]
		row("hibernate 1 GiB, "+touched+" MiB of random pages, until its memory is free", took, dd, ratio(took, dd)+" of dd's")
	}
	smallest := times["resume 512Mi 100 MiB"]
	for _, size := range []string{"512Mi", "1Gi", "4Gi", "8Gi"} {
		took := times["resume "+size+" 100 MiB"]
		over := (took.median() - pause.median()).Round(time.Millisecond)
		row("resume "+size+" until its next byte, 100 MiB touched", took, pause,
			fmt.Sprintf("%v over the pause pod's; %s of 512Mi's", over, ratio(took, smallest)))
	}
}
