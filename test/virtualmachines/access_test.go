package virtualmachines_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/test/suites"
)

// smallImage is a container disk, see guest.SmallDisk.
const smallImage = "vmlet.test/small:1"

// reached is a VM with a shell on its console, and a web server at port 80.
const reached = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: reached, namespace: guests}
spec:
  runStrategy: Always
  template:
    spec:
      terminationGracePeriodSeconds: 120
      domain:
        memory: {guest: 192Mi}
        resources: {requests: {cpu: 10m}}
        firmware:
          kernelBoot:
            kernelArgs: console=ttyS0 root=/dev/vda1 quiet
            container: {image: "vmlet.test/linux:1", kernelPath: /boot/vmlinuz, initrdPath: /boot/initrd}
        devices:
          disks:
            - {name: root, disk: {bus: virtio}}
            - {name: cloudinit, disk: {bus: virtio}}
          interfaces:
            - {name: default, masquerade: {}, ports: [{port: 80}]}
      networks: [{name: default, pod: {}}]
      volumes:
        - {name: root, containerDisk: {image: "vmlet.test/small:1"}}
        - name: cloudinit
          cloudInitNoCloud:
            userData: |
              #!/bin/sh
              ip link set lo up; ip link set eth0 up
              ip addr add 10.0.2.2/24 dev eth0
              ip route add default via 10.0.2.1
              mkdir -p /run/www
              echo hello over port 80 > /run/www/index.html
              httpd -p 80 -h /run/www
              echo user-data is done
`

// visitor calls the API server as virtctl does, byte for byte: paths, bodies, subprotocols.
type visitor struct {
	*installed
	config *rest.Config
	http   *http.Client
}

// visitor is the administrator, or a user that he stands in for.
func (v *installed) visitor(t *testing.T, user string) *visitor {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", v.Kubeconfig())
	must(t, err)
	config.Impersonate.UserName = user
	client, err := rest.HTTPClientFor(config)
	must(t, err)
	return &visitor{v, config, client}
}

// path of a subresource of VM or instance reached.
func path(resource, sub string) string { return pathOf(resource, "reached", sub) }

func pathOf(resource, name, sub string) string {
	return "/apis/subresources.kubevirt.io/v1/namespaces/guests/" + resource + "/" + name + "/" + sub
}

const vmResource, vmiResource = "virtualmachines", "virtualmachineinstances"

func (v *visitor) do(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	ctx, cancel := suites.Wait(v.ctx, t, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, v.config.Host+path, strings.NewReader(body))
	must(t, err)
	answer, err := v.http.Do(r)
	must(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(t, err)
	return answer.StatusCode, string(text)
}

// put wants an answer with a code and words.
func (v *visitor) put(t *testing.T, path, body string, code int, words string) {
	t.Helper()
	if got, text := v.do(t, http.MethodPut, path, body); got != code || !strings.Contains(text, words) {
		t.Fatalf("PUT %s %s: %d %s, want %d with %q", path, body, got, text, code, words)
	}
}

// dial opens a stream.
func (v *visitor) dial(t *testing.T, path string) (*websocket.Conn, int, error) {
	t.Helper()
	config, err := rest.TLSConfigFor(v.config)
	must(t, err)
	headers := http.Header{}
	if user := v.config.Impersonate.UserName; user != "" {
		headers.Set("Impersonate-User", user)
	}
	ctx, cancel := suites.Wait(v.ctx, t, patience)
	defer cancel()
	d := websocket.Dialer{TLSClientConfig: config, Subprotocols: []string{"plain.kubevirt.io"}, ReadBufferSize: 10240, WriteBufferSize: 10240}
	conn, answer, err := d.DialContext(ctx, strings.Replace(v.config.Host, "https://", "wss://", 1)+path, headers)
	code := 0
	if answer != nil {
		code = answer.StatusCode
	}
	if err == nil {
		t.Cleanup(func() { conn.Close() })
		if got := conn.Subprotocol(); got != "plain.kubevirt.io" {
			t.Errorf("%s: subprotocol %q", path, got)
		}
	}
	return conn, code, err
}

// read returns what a stream has until it ends, or has the words.
func (v *visitor) read(t *testing.T, conn *websocket.Conn, until string) (text string, err error) {
	t.Helper()
	ctx, cancel := suites.Wait(v.ctx, t, patience)
	defer cancel()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	for until == "" || !strings.Contains(text, until) {
		_, b, err := conn.ReadMessage()
		if err != nil {
			return text, err
		}
		text += string(b)
	}
	return text, nil
}

// console attaches as virtctl does: again while the answer is 400.
func (v *visitor) console(t *testing.T) *websocket.Conn {
	t.Helper()
	for {
		conn, code, err := v.dial(t, path(vmiResource, "console"))
		if err == nil {
			return conn
		}
		if code != http.StatusBadRequest && code != http.StatusNotFound {
			t.Fatalf("console: %d %v", code, err)
		}
		time.Sleep(time.Second)
	}
}

// types something, and wants an answer. It returns all that was read.
func (v *visitor) types(t *testing.T, conn *websocket.Conn, text, want string) (got string) {
	t.Helper()
	must(t, conn.WriteMessage(websocket.BinaryMessage, []byte(text+"\n")))
	got, err := v.read(t, conn, want)
	if err != nil {
		t.Fatalf("typed %q, read %q, %v, want %q", text, got, err, want)
	}
	return got
}

// testAccess: all that virtctl does with a guest, through the API server.
func (v *installed) testAccess(t *testing.T) {
	admin := v.visitor(t, "")
	must(t, v.Apply(v.ctx, reached))
	console := admin.console(t)
	v.eventually(t, func() bool {
		return strings.Contains(v.kubectl(t, "logs", "-n", guests, "-l", contract.LabelInstanceName+"=reached", "--tail=-1"), "user-data is done")
	}, func() string { return "the guest's user data is not done" })
	admin.types(t, console, "echo typed-$((40+2))", "typed-42")
	v.phase(t, "reached", kubevirtv1.PhaseRunning)
	admin.testForwarding(t)
	admin.testPausing(t)
	admin.testRenewing(t, console)
	v.testRights(t)
	another := admin.console(t)
	if _, err := admin.read(t, console, ""); !websocket.IsCloseError(err, websocket.CloseAbnormalClosure) {
		t.Errorf("a console that another client took over ended with %v, want code 1006", err)
	}
	// It begins with what is printed now: a program that waits for a prompt must not find an old one.
	if before := admin.types(t, another, "echo again-$((40+2))", "again-42"); strings.Contains(before, "typed-42") {
		t.Errorf("the console begins with what was printed before: %q", before)
	}
	admin.testReplaced(t, another)
	admin.testLives(t)
	v.remove(t, machine(t, "reached", "", idle))
	v.noMachine(t, "reached")
}

func (v *visitor) testForwarding(t *testing.T) {
	for _, resource := range []string{vmResource, vmiResource} {
		conn, _, err := v.dial(t, path(resource, "portforward/80/tcp"))
		must(t, err)
		must(t, conn.WriteMessage(websocket.BinaryMessage, []byte("GET / HTTP/1.0\r\n\r\n")))
		text, err := v.read(t, conn, "")
		answer, parse := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil)
		if parse != nil {
			t.Fatalf("%s: port 80 answered %q, %v", resource, text, err)
		}
		if body, _ := io.ReadAll(answer.Body); string(body) != "hello over port 80\n" || !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
			t.Errorf("%s: port 80 answered %q, then %v", resource, body, err)
		}
	}
	if code, text := v.do(t, http.MethodGet, path(vmiResource, "portforward/80/tcp"), ""); code != 400 {
		t.Errorf("a port without a websocket: %d %s, want 400", code, text)
	}
	if _, code, err := v.dial(t, path(vmiResource, "portforward/81/tcp")); code != 500 {
		t.Errorf("a port at which nobody listens: %d %v, want 500", code, err)
	}
}

func (v *visitor) testPausing(t *testing.T) {
	v.put(t, path(vmiResource, "pause"), `{}`, 200, "")
	v.until(t, "reached", "paused", func(vmi *kubevirtv1.VirtualMachineInstance) bool {
		return isTrue(condition(vmi.Status.Conditions, kubevirtv1.ConditionPaused))
	})
	v.put(t, path(vmiResource, "pause"), `{}`, 409, "already paused")
	if _, code, err := v.dial(t, path(vmiResource, "portforward/80/tcp")); code != 409 {
		t.Errorf("a port of a paused guest: %d %v, want 409", code, err)
	}
	v.put(t, path(vmiResource, "unpause"), `{}`, 200, "")
	v.until(t, "reached", "going on", func(vmi *kubevirtv1.VirtualMachineInstance) bool {
		return !isTrue(condition(vmi.Status.Conditions, kubevirtv1.ConditionPaused))
	})
	v.put(t, path(vmiResource, "unpause"), `{}`, 409, "not paused")
}

// testRenewing: the guest goes on in another process, with its boot, its console and its network.
func (v *visitor) testRenewing(t *testing.T, console *websocket.Conn) {
	// The console echoes the command as it was typed, without the sum.
	const ask, answered = "echo $(cat /proc/sys/kernel/random/boot_id) $((40+2))-boot", " 42-boot"
	boot := v.bootIn(t, console, ask, answered)
	v.renewing.Store(true)
	defer v.renewing.Store(false)
	for range 2 {
		v.put(t, path(vmiResource, "renew"), `{}`, 200, `"stoppedMicroseconds":`)
		if now := v.bootIn(t, console, ask, answered); now != boot {
			t.Errorf("the guest's boot is %s after a renewal, and was %s", now, boot)
		}
		v.testForwarding(t)
	}
	v.put(t, path(vmiResource, "renew"), `{"dryRun":["All"]}`, 200, "")
	v.phase(t, "reached", kubevirtv1.PhaseRunning)
}

// bootIn is the guest's boot ID, the word before the answer's last one.
func (v *visitor) bootIn(t *testing.T, console *websocket.Conn, ask, answered string) string {
	t.Helper()
	said, _, _ := strings.Cut(v.types(t, console, ask, answered), answered)
	words := strings.Fields(said)
	return words[len(words)-1]
}

// testRights: who may look may not touch, and who may edit may.
func (v *installed) testRights(t *testing.T) {
	for user, role := range map[string]string{"viewer": "view", "editor": "edit"} {
		v.kubectl(t, "create", "rolebinding", user, "--clusterrole="+role, "--user="+user, "-n", guests)
	}
	viewer, editor, nobody := v.visitor(t, "viewer"), v.visitor(t, "editor"), v.visitor(t, "nobody")
	var code int
	v.eventually(t, func() bool { // roles are aggregated by a controller
		code, _ = viewer.do(t, http.MethodGet, path(vmResource, "expand-spec"), "")
		return code == 200
	}, func() string { return fmt.Sprintf("a viewer's expand-spec is answered with %d", code) })
	for _, sub := range []string{path(vmResource, "start"), path(vmResource, "stop"), path(vmiResource, "pause"), path(vmiResource, "renew")} {
		viewer.put(t, sub, `{}`, 403, "viewer")
		nobody.put(t, sub, `{}`, 403, "nobody")
	}
	if _, code, err := viewer.dial(t, path(vmiResource, "console")); code != 403 {
		t.Errorf("a viewer's console: %d %v, want 403", code, err)
	}
	editor.put(t, path(vmResource, "start"), `{}`, 409, "already running")
	editor.put(t, path(vmiResource, "pause"), `{"dryRun":["All"]}`, 200, "")
	editor.put(t, path(vmResource, "migrate"), `{}`, 403, "editor")
	if code, text := editor.do(t, http.MethodGet, path(vmiResource, "vnc/screenshot"), ""); code != 403 {
		t.Errorf("an editor's screenshot: %d %s, want 403, as the administrator's alone", code, text)
	}
	if code, text := nobody.do(t, http.MethodGet, "/apis/subresources.kubevirt.io/v1/version", ""); code != 200 || !strings.Contains(text, `"gitVersion":"v1.9.`) {
		t.Errorf("version: %d %s", code, text)
	}
}

// testReplaced: a replica that goes says so to its streams, and others serve on.
func (v *visitor) testReplaced(t *testing.T, console *websocket.Conn) {
	v.kubectl(t, "rollout", "restart", "deployment/vmlet-api", "-n", "vmlet")
	_, err := v.read(t, console, "")
	var closed *websocket.CloseError
	if !errors.As(err, &closed) || closed.Code != websocket.CloseGoingAway || !strings.Contains(closed.Text, "connect again") {
		t.Errorf("the console of a replica that was replaced ended with %v, want code 1001 and what to do", err)
	}
	must(t, v.RolledOut(v.ctx, "vmlet", "deployment/vmlet-api"))
	v.types(t, v.console(t), "echo still-$((40+2))", "still-42")
}

// testLives: restart at once, stop with a shorter grace period, start.
func (v *visitor) testLives(t *testing.T) {
	vmi := v.phase(t, "reached", kubevirtv1.PhaseRunning)
	v.put(t, path(vmResource, "restart"), `{"gracePeriodSeconds":5}`, 400, "the only value is 0")
	v.put(t, path(vmResource, "restart"), `{"gracePeriodSeconds":0}`, 202, "")
	v.another(t, vmi)
	v.put(t, path(vmResource, "stop"), `{"gracePeriod":1}`, 202, "")
	v.noInstance(t, "reached")
	v.printed(t, "reached", kubevirtv1.StatusStopped)
	v.put(t, path(vmResource, "stop"), `{}`, 409, "not running")
	v.put(t, path(vmResource, "start"), `{"paused":true}`, 202, "")
	v.printed(t, "reached", kubevirtv1.StatusPaused)
	v.put(t, path(vmiResource, "unpause"), `{}`, 200, "")
	v.printed(t, "reached", kubevirtv1.StatusRunning)
	v.put(t, path(vmResource, "start"), `{}`, 409, "already running")
}

// testAPIAway: where no vmlet-api is left, namespaces go all the same.
func (v *installed) testAPIAway(t *testing.T) {
	services := []string{"get", "apiservices", "-l", "app.kubernetes.io/part-of=vmlet", "-o", "name"}
	v.kubectl(t, "scale", "deployment/vmlet-api", "-n", "vmlet", "--replicas=0")
	v.eventually(t, func() bool { return v.kubectl(t, services...) == "" }, func() string {
		return "without a vmlet-api there are still " + v.kubectl(t, services...)
	})
	v.kubectl(t, "create", "namespace", "brief")
	v.kubectl(t, "delete", "namespace", "brief", "--timeout=24h")
	v.kubectl(t, "scale", "deployment/vmlet-api", "-n", "vmlet", "--replicas=2")
	must(t, v.RolledOut(v.ctx, "vmlet", "deployment/vmlet-api"))
	v.kubectl(t, "wait", "--for=condition=Available", "--timeout=24h", "apiservice/v1.subresources.kubevirt.io", "apiservice/v1alpha3.subresources.kubevirt.io")
}
