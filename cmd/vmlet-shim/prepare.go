package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/atomicfile"
	"github.com/vmlet/vmlet/launch"
	"github.com/vmlet/vmlet/launch/prepare"
	"github.com/vmlet/vmlet/shim"
)

// prepareMode is the first argument of the child that makes a pod's disks: what it takes is
// given back with it, and the shim stays small.
const prepareMode = "prepare"

// maxPreparation bounds the preparation's file, in bytes: it is an annotation, and all of an
// object's annotations have 256 KiB.
const maxPreparation = 256 << 10

// folders are a pod's, in which disks are made.
type folders struct{ made, sockets string }

func (f *folders) flags(flags *flag.FlagSet) {
	flags.StringVar(&f.made, "made", contract.MadeFolder, "where disks and the finished specification are made, `DIR`")
	flags.StringVar(&f.sockets, "sockets", contract.SocketsFolder, "where other containers hand out files, `DIR`")
}

// specification is where the finished one is.
func (f *folders) specification() string { return filepath.Join(f.made, contract.SpecificationFile) }

type prepareOptions struct {
	folders
	preparation, specification string
}

func parsePrepare(args []string, output io.Writer) (prepareOptions, error) {
	var o prepareOptions
	flags := flag.NewFlagSet("vmlet-shim prepare --preparation FILE SPECIFICATION", flag.ContinueOnError)
	flags.SetOutput(output)
	o.flags(flags)
	flags.StringVar(&o.preparation, "preparation", "", "what is made, `FILE`")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.specification = flags.Arg(0); flags.NArg() != 1 || o.preparation == "" {
		return o, errors.New("name the specification's file, and the --preparation's")
	}
	return o, nil
}

// prepareMain makes the disks; it returns the exit code. Its standard error is the record of why it could not,
// for the process that started it.
func prepareMain(args []string) int {
	o, err := parsePrepare(args, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil {
		err = o.run(context.Background())
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s\n", failure(err).Encode())
		return exitFailed
	}
	return 0
}

// failure is how a VM ended that an error kept from starting.
func failure(err error) contract.Ending {
	return contract.Ending{Message: err.Error(), Faults: contract.FaultsOf(err)}
}

func (o prepareOptions) run(ctx context.Context) error {
	specification, err := readBounded(o.specification, shim.MaxPodSpecification)
	if err != nil {
		return err
	}
	text, err := readBounded(o.preparation, maxPreparation)
	if err != nil {
		return err
	}
	var what launch.Preparation
	if err := json.Unmarshal(text, &what); err != nil {
		return fmt.Errorf("%s: %w", o.preparation, err)
	}
	finished, err := prepare.Preparer{Made: o.made, Sockets: o.sockets}.Run(ctx, what, specification)
	if err != nil {
		return err
	}
	return atomicfile.Replace(o.folders.specification(), finished, 0o600)
}

// prepare has a child make the disks, and goes on with the specification that comes of it.
// Where ctx ends first the child is killed.
func (o *podOptions) prepare(ctx context.Context) error {
	if o.preparation == "" {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, prepareMode, "--preparation", o.preparation, "--made", o.made, "--sockets", o.sockets, o.specification)
	said := &limited{room: maxSaid}
	cmd.Stderr = said
	cmd.WaitDelay = pipesPatience
	if err := cmd.Run(); err != nil {
		if text := bytes.TrimSpace(said.kept.Bytes()); len(text) > 0 {
			e := contract.ReadEnding(string(text))
			return &contract.Quoted{Sentence: e.Message, Parts: e.Faults}
		}
		return fmt.Errorf("making the disks: %w", err)
	}
	o.specification = o.folders.specification()
	return nil
}
