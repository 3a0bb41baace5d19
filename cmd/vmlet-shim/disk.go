package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/filesocket"
	"github.com/vmlet/vmlet/launch/imagefile"
)

const (
	// copyMode is the first argument of a program that copies itself to where containers of
	// other images find it.
	copyMode = "copy"
	// diskMode is that of one in such a container, which hands out a file of that image.
	diskMode = "disk"
)

// copyMain copies this program; it returns the exit code.
func copyMain(args []string) int {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "vmlet-shim copy: name the file that is to be this program's copy: vmlet-shim copy TO")
		return exitUsage
	}
	if err := copySelf(args[0]); err != nil {
		fmt.Fprintln(os.Stderr, "vmlet-shim copy:", err)
		return exitFailed
	}
	return 0
}

// copySelf gives the copy its name when it is whole.
func copySelf(to string) (err error) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer self.Close()
	out, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+".*")
	if err != nil {
		return err
	}
	_, err = io.Copy(out, self)
	if err = errors.Join(err, out.Chmod(0o555), out.Close()); err == nil {
		err = os.Rename(out.Name(), to)
	}
	if err != nil {
		return errors.Join(err, os.Remove(out.Name()))
	}
	return nil
}

// handout is a file that this program hands out at a socket.
type handout struct {
	mode, socket string
	// types is a file for what the image's environment suggests; empty: nobody asks.
	types string
	// subject of open's errors, as their readers have a name of their own for it.
	subject string
	open    func() (*os.File, error)
	serve   func(context.Context, *net.UnixListener, func() (*os.File, error)) error
}

func parseDisk(args []string, output io.Writer) (handout, error) {
	h := handout{mode: diskMode, subject: "this image ", serve: filesocket.Serve}
	flags := flag.NewFlagSet("vmlet-shim disk --socket PATH [--path PATH]", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.StringVar(&h.socket, "socket", "", "the socket that is made and hands the file out, `PATH`")
	path := flags.String("path", "", "the file, `PATH` in this image; default: the only one in /disk")
	flags.StringVar(&h.types, "types", "", "where the labels are written, as JSON, that the image's environment names an instancetype and preference by, `FILE`")
	if err := flags.Parse(args); err != nil {
		return h, err
	}
	switch {
	case flags.NArg() > 0:
		return h, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case !filepath.IsAbs(h.socket):
		return h, fmt.Errorf("--socket %q is not an absolute path", h.socket)
	}
	image := imagefile.Image{Root: "/"}
	h.open = func() (*os.File, error) { return image.Open(*path) }
	return h, nil
}

// diskMain hands out a file of its image until it is asked to end; it returns the exit code.
func diskMain(args []string) int { return handoutMain(args, diskMode, parseDisk) }

// handoutMain is main of a mode that hands out a file.
func handoutMain(args []string, mode string, parse func([]string, io.Writer) (handout, error)) int {
	h, err := parse(args, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "vmlet-shim %s: %v\n", mode, err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	if err := h.run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "vmlet-shim %s: %v\n", mode, err)
		return exitFailed
	}
	return 0
}

// run hands the file out until ctx ends. That there is none is no error here: a client that asks for
// it learns so, and has better ways to say it.
func (h handout) run(ctx context.Context) error {
	if h.types != "" {
		// Written over, not replaced: it is a mount.
		if err := os.WriteFile(h.types, suggestedTypes(os.Getenv), 0o644); err != nil {
			return err
		}
	}
	listener, err := filesocket.Listen(h.socket)
	if err != nil {
		return err
	}
	if f, err := h.open(); err != nil {
		fmt.Fprintf(os.Stderr, "vmlet-shim %s: %s%v\n", h.mode, h.subject, err)
	} else {
		fmt.Fprintf(os.Stderr, "vmlet-shim %s: handing out %s at %s\n", h.mode, f.Name(), h.socket)
		f.Close()
	}
	return h.serve(ctx, listener, h.open)
}

// suggestedTypes are the labels that the variables of an image name, as JSON.
func suggestedTypes(variable func(string) string) []byte {
	labels := make(map[string]string)
	for name, label := range contract.SuggestedTypes() {
		if value := variable(name); value != "" {
			labels[label] = value
		}
	}
	text, err := json.Marshal(labels)
	if err != nil {
		panic(err) // strings can always be encoded
	}
	return text
}
