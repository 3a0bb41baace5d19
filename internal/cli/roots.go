package cli

import (
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
	return roots
}
