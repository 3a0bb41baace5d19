package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/test/guest"
)

// TestQuickStart runs the commands of docs/tutorial-node.md as they stand there, but
// for what needs a network, changes the machine or needs a terminal. The disk that takes
// the place of the download has no boot loader, so the VM also gets a kernel.
func TestQuickStart(t *testing.T) {
	if why := unfit(); why != "" {
		t.Skip(why)
	}
	disk, err := guest.Cached("cloud-disk", "disk.qcow2")
	if err != nil {
		t.Skip(err)
	}
	kernel, initrd, err := guest.Linux(t.Context())
	if err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "quick-") // not t.TempDir: a socket's path is to fit into its address
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Symlink(bin, filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("users: {first: %d, count: %d}\n", firstUID+uidsPerProcess*uint32(os.Getpid()%1000)+uidsPerNode*nodes.Add(1), uidsPerNode)
	if err := os.WriteFile(filepath.Join(dir, "agent.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	commands := strings.ReplaceAll(quickStart(t), "/srv/vmlet", filepath.Join(dir, "srv"))
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", surroundings+commands+"vmlet list -o wide\n")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "VMLET_SOCKET="+filepath.Join(dir, "run", "vmlet.sock"),
		"DIR="+dir, "DISK="+disk, "KERNEL="+kernel, "INITRD="+initrd)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "srv", "agent.log"))
		t.Fatalf("%v\n%s%s\nthe agent's log:\n%s", err, &out, &complaints, log)
	}
	if !regexp.MustCompile(`(?m)^web-1 +stopped `).MatchString(out.String()) {
		t.Errorf("web-1 is not stopped at the end:\n%s%s", &out, &complaints)
	}
	if strings.Contains(complaints.String(), "level=") {
		t.Errorf("the agent's log is on the user's terminal:\n%s", &complaints)
	}
}

// surroundings stand in for what the commands find on a user's machine.
const surroundings = `
apt-get() { :; }
make() { :; }
curl() { cp "$DISK" "${!###*/}"; }
vmlet() {
	case $1 in
	run) "$DIR/bin/vmlet" "$@" --kernel "$KERNEL" --initrd "$INITRD" --cmdline "console=ttyS0 quiet" ;;
	console) "$DIR/bin/vmlet" logs --follow web-1 | grep -q -m 1 "^count" ;; # a person logs in
	*) "$DIR/bin/vmlet" "$@" ;;
	esac
}
vmlet-agent() { exec "$DIR/bin/vmlet-agent" --state-dir "$DIR/state" --run-dir "$DIR/run" --config "$DIR/agent.yaml"; }
trap 'vmlet kill web-1 2>/dev/null || :; kill %1; wait' EXIT
mkdir "$DIR/run" "$DIR/state"
chmod 711 "$DIR"
`

// quickStart returns the commands of docs/tutorial-node.md, but for the demo.
func quickStart(t *testing.T) string {
	t.Helper()
	tutorial, err := os.ReadFile("../../docs/tutorial-node.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(tutorial), "\n## Run a real guest\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var commands strings.Builder
	for _, block := range regexp.MustCompile("(?s)\n```sh\n(.*?\n)```\n").FindAllStringSubmatch(section, -1) {
		commands.WriteString(block[1])
	}
	return commands.String()
}
