package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmlet/vmlet/sysfs"
)

// rootFlags are those of commands that read the machine themselves, so that
// they can read a tree from another one.
func rootFlags(flags *pflag.FlagSet) *sysfs.Roots {
	roots := new(sysfs.Roots)
	flags.StringVar(&roots.Sys, "sysfs-root", "/sys", "read this `FOLDER` in place of /sys")
	flags.StringVar(&roots.Proc, "proc-root", "/proc", "read this `FOLDER` in place of /proc")
	flags.StringVar(&roots.Dev, "dev-root", "/dev", "look for devices in this `FOLDER` in place of /dev")
	for _, name := range []string{"sysfs-root", "proc-root", "dev-root"} {
		// Completed with folders. It fails for flags that aren't there.
		_ = flags.SetAnnotation(name, cobra.BashCompSubdirsInDir, []string{})
	}
	return roots
}

// checkRoots returns an error that names the first folder that isn't there. The
// facts would be missing one by one otherwise. Of a tree that was captured on another
// machine only /sys has to be there: many such trees have no /proc.
func (a *nodeCommands) checkRoots(flags *pflag.FlagSet, r sysfs.Roots) error {
	for _, root := range []struct{ flag, path string }{
		{"sysfs-root", r.SysPath()}, {"proc-root", r.ProcPath()}, {"dev-root", r.DevPath()},
	} {
		info, err := os.Stat(root.path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && root.flag != "sysfs-root" && flags.Changed("sysfs-root"):
			a.notef("vmlet: --%s: there is no folder %s: what only its files say is unknown", root.flag, root.path)
			continue
		case err == nil && !info.IsDir():
			err = fmt.Errorf("%s is not a folder", root.path)
		}
		if err != nil {
			return fmt.Errorf("--%s: %w", root.flag, err)
		}
	}
	a.noteMixedRoots(flags)
	return nil
}

// noteMixedRoots tells the user who gives one root of two.
func (a *nodeCommands) noteMixedRoots(flags *pflag.FlagSet) {
	if flags.Changed("sysfs-root") != flags.Changed("proc-root") {
		a.notef("vmlet: two machines may be mixed: give --sysfs-root and --proc-root together")
	}
}
