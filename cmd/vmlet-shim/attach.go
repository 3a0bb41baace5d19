package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/filesocket"
)

// attachMode is the first argument of a program in a pod through which a volume is attached to
// another pod's VM: it hands the volume's folder to the node's agent.
const attachMode = "attach"

func parseAttach(args []string, output io.Writer) (handout, error) {
	h := handout{mode: attachMode, serve: filesocket.ServeToRoot}
	flags := flag.NewFlagSet("vmlet-shim attach [--socket PATH] [--path PATH]", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.StringVar(&h.socket, "socket", filepath.Join(contract.VolumePath, contract.AttachmentSocket), "the socket that is made and hands the folder out, `PATH`")
	path := flags.String("path", contract.AttachedFolder, "the folder, `PATH`")
	if err := flags.Parse(args); err != nil {
		return h, err
	}
	switch {
	case flags.NArg() > 0:
		return h, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case !filepath.IsAbs(h.socket):
		return h, fmt.Errorf("--socket %q is not an absolute path", h.socket)
	case !filepath.IsAbs(*path):
		return h, fmt.Errorf("--path %q is not an absolute path", *path)
	}
	h.open = func() (*os.File, error) { return filesocket.OpenFolder(*path) }
	return h, nil
}

// attachMain hands out a folder until it is asked to end; it returns the exit code.
func attachMain(args []string) int { return handoutMain(args, attachMode, parseAttach) }
