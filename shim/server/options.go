package server

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/internal/logfile"
	"github.com/vmlet/vmlet/shim/server/control"
)

// Options are what a shim is started with.
type Options struct {
	RunDir, StateDir, RunID string
	// Listener is the socket SocketName in RunDir, bound by the agent.
	Listener *net.UnixListener
	// Drivers by the name that a plan gives its VMM.
	Drivers map[string]control.Driver
	// Remote is the driver of plans that name a program of their own; nil: there is none.
	Remote control.Driver
	Log    *slog.Logger
	// Grace that the guest has to shut down when Run's context ends.
	Grace time.Duration
	// PressEvery is how often the power button is pressed until the guest shuts down; 0: every
	// 5 seconds.
	PressEvery time.Duration
	// ConsoleLog and VMMLog bound these logs; zero: logfile.Default.
	ConsoleLog, VMMLog logfile.Limits
	// FirstConnection is how long an agent may take to connect; 0: half a minute.
	FirstConnection time.Duration
	// CommitWithin is how long a saved guest is paused for an agent that
	// neither commits nor aborts; 0: two minutes.
	CommitWithin time.Duration
	// ClearWithin is how long a save that has failed waits for a disk to let it remove
	// what was written, and a guest that has gone on from an image for that to be closed; 0: five seconds.
	ClearWithin time.Duration
	// Linger is how long the shim waits for agents to read how the VMM ended, and for
	// clients of the console to read the last of it;
	// 0: 3 seconds.
	Linger time.Duration
	// CredentialsEvery is between two looks at what a pod's Secrets have for its guest; 0: 5
	// seconds.
	CredentialsEvery time.Duration
	// Console, if set, gets what the guest prints, beside the log. It must not block.
	Console io.Writer
	// ResolvConf has the name servers and search domains that guests get;
	// empty: /etc/resolv.conf.
	ResolvConf string
	// Pod is set in a pod: then the shim waits for agents for ever.
	Pod *Pod
}

// Pod is what a shim in a pod is there for.
type Pod struct {
	// Described is sent as it is, but for VMMs.
	Described shim.Described
	// ReadImage returns what Described.Restore.Manifest is of the image in a volume that is attached, once
	// it has made the disks that the image has; nil: the pod has no such image.
	ReadImage func(ctx context.Context, volume *os.File) (manifest []byte, err error)
	// StateDir is a folder that outlives the pod; empty: there is none.
	StateDir string
	// Sockets is the folder of sockets at which other containers of the pod hand out files: a
	// plan's path in it stands for such a file. Empty: there is none.
	Sockets string
	// Made is the folder of disks that were made in the pod, and are lost with it; empty:
	// there is none.
	Made string
	// Volumes are the folders below which a plan's paths are opened without following links:
	// others may write to what is mounted there.
	Volumes []string
	// AwaitSave is how long a shim that was asked to end waits for a save to begin, before the guest
	// is asked to shut down; 0: not at all.
	AwaitSave time.Duration
	// Credentials are brought into the guest by its agent.
	Credentials []Credential
	// Probe asks what the VMMs in the pod's image can do.
	Probe func(ctx context.Context) (json.RawMessage, error)
	// Drivers are the programs in the pod's image that speak the driver protocol; nil: it has none.
	Drivers Drivers
}

// Drivers are programs that speak the driver protocol.
type Drivers interface {
	// Names are their VMMs'.
	Names() []string
	// Start starts the one of a name with its end of a connection, which stays the caller's.
	Start(name string, end *os.File) error
}

// Credential is a folder with a Secret of the pod's, which the guest's agent brings into the
// guest.
type Credential struct {
	Folder string `json:"folder"`
	// Users may log in with the SSH keys in the folder's files. None: its files are named
	// after users, and have their passwords.
	Users []string `json:"users,omitempty"`
}

// sockets is the folder of files that other containers hand out, empty outside of a pod.
func (o *Options) sockets() string {
	if o.Pod == nil {
		return ""
	}
	return o.Pod.Sockets
}

// volumes are folders below which others may put links, none outside of a pod.
func (o *Options) volumes() []string {
	if o.Pod == nil {
		return nil
	}
	return o.Pod.Volumes
}

// watchedDevices: the pod's owner has seen that nobody has written to block devices since the image was
// saved.
func (o *Options) watchedDevices() bool {
	return o.Pod != nil && o.Pod.Described.Restore != nil && o.Pod.Described.Restore.WatchedDevices
}

// listLock is the folder of all run folders, which is root's: shims and agents lock it
// to change the access list of a file.
func (o *Options) listLock() string { return filepath.Dir(filepath.Clean(o.RunDir)) }

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}
