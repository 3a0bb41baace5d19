package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"

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

// diskOptions say which file is handed out where.
type diskOptions struct{ socket, path string }

func parseDisk(args []string, output io.Writer) (diskOptions, error) {
	var o diskOptions
	flags := flag.NewFlagSet("vmlet-shim disk --socket PATH [--path PATH]", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.StringVar(&o.socket, "socket", "", "the socket that is made and hands the file out, `PATH`")
	flags.StringVar(&o.path, "path", "", "the file, `PATH` in this image; default: the only one in /disk")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case !filepath.IsAbs(o.socket):
		return o, fmt.Errorf("--socket %q is not an absolute path", o.socket)
	}
	return o, nil
}

// diskMain hands out a file until it is asked to end; it returns the exit code. That there is
// no such file is no error here: the VM's own container has better ways to say so.
func diskMain(args []string) int {
	o, err := parseDisk(args, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vmlet-shim disk:", err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	if err := o.serve(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "vmlet-shim disk:", err)
		return exitFailed
	}
	return 0
}

func (o diskOptions) serve(ctx context.Context) error {
	listener, err := filesocket.Listen(o.socket)
	if err != nil {
		return err
	}
	image := imagefile.Image{Root: "/"}
	open := func() (*os.File, error) { return image.Open(o.path) }
	if f, err := open(); err != nil {
		fmt.Fprintln(os.Stderr, "vmlet-shim disk: this image", err)
	} else {
		fmt.Fprintf(os.Stderr, "vmlet-shim disk: handing out %s at %s\n", f.Name(), o.socket)
		f.Close()
	}
	return filesocket.Serve(ctx, listener, open)
}
