package machineflags

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// apply returns the YAML of the specification that the flags make of a base.
func apply(t *testing.T, base string, args ...string) (string, error) {
	t.Helper()
	from := &specv1.VirtualMachineSpec{}
	if base != "" {
		var err error
		if from, err = spec.Parse([]byte(base), "base"); err != nil {
			t.Fatal(err)
		}
	}
	before, err := spec.Marshal(from)
	if err != nil {
		t.Fatal(err)
	}
	var f Flags
	set := pflag.NewFlagSet("run", pflag.ContinueOnError)
	f.Register(set, []string{"kvm"}, []string{"qemu"})
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	s, err := f.Apply(from, set)
	if after, merr := spec.Marshal(from); merr != nil || string(after) != string(before) {
		t.Errorf("the base was changed: %s (%v)", after, merr)
	}
	if err != nil {
		return "", err
	}
	out, err := spec.Marshal(s)
	return string(out), err
}

func TestApply(t *testing.T) {
	t.Chdir(t.TempDir())
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("ud", []byte("#cloud-config\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, base string
		args       []string
		want       string
	}{
		{"nothing", "", nil, "{}\n"},
		{"scalars", "", []string{"--name=a", "--hypervisor=kvm", "--vmm=qemu", "--machine=microvm", "--cpu-model=max", "--firmware=uefi", "--memory=1Gi", "--cpus=3"},
			"boot:\n  firmware: uefi\ncpu:\n  cores: 3\n  model: max\nhypervisor: kvm\nmachineType: microvm\nmemory:\n  size: 1Gi\nname: a\nvmm: qemu\n"},
		{"kernel", "", []string{"--kernel=k", "--initrd=/i", "--cmdline=a=b,c d"},
			"boot:\n  kernel:\n    cmdline: a=b,c d\n    initrd: /i\n    path: DIR/k\n"},
		{"disk", "", []string{"--disk=a,,b.img,format=qcow2,bus=scsi,cache=unsafe,serial=S=1,name=root,boot-order=1,readonly,backing=qcow2:c,backing=raw:/d,,e"},
			"disks:\n- backingFiles:\n  - format: qcow2\n    path: DIR/c\n  - format: raw\n    path: /d,e\n  bootOrder: 1\n  bus: scsi\n  cache: unsafe\n  format: qcow2\n  name: root\n  path: DIR/a,b.img\n  readOnly: true\n  serial: S=1\n"},
		{"disk writable", "", []string{"--disk=/a,readonly=false"}, "disks:\n- path: /a\n"},
		{"cdrom", "", []string{"--cdrom=/x.iso,bus=usb"}, "disks:\n- bus: usb\n  path: /x.iso\n  type: cdrom\n"},
		{"nets", "", []string{"--net=user,hostfwd=tcp:127.0.0.1:2222:22,hostfwd=udp:53:5353,hostfwd=[::1]:80:80,hostfwd=tcp::81:81", "--net=tap=t0,mac=52:54:00:00:00:01,model=e1000e,name=n", "--net=bridge=br0"},
			"networks:\n- user:\n    ports:\n    - guestPort: 22\n      hostAddress: 127.0.0.1\n      hostPort: 2222\n      protocol: tcp\n    - guestPort: 5353\n      hostPort: 53\n      protocol: udp\n    - guestPort: 80\n      hostAddress: ::1\n      hostPort: 80\n    - guestPort: 81\n      hostPort: 81\n      protocol: tcp\n" +
				"- mac: \"52:54:00:00:00:01\"\n  model: e1000e\n  name: \"n\"\n  tap:\n    device: t0\n- tap:\n    bridge: br0\n"},
		{"labels", "labels: {a: x}", []string{"--label=a=b=c", "--label=d="}, "labels:\n  a: b=c\n  d: \"\"\n"},
		{"cloud-init", "cloudInit: {metaData: m}", []string{"--cloud-init=ud"}, "cloudInit:\n  metaData: m\n  userData: |\n    #cloud-config\n"},
		{"on a base", "name: a\ncpu: {model: host, sockets: 2}\ndisks: [{path: /a}]\nboot: {kernel: {path: /k, cmdline: x}}",
			[]string{"--cpus=4", "--disk=/b", "--cmdline=y"},
			"boot:\n  kernel:\n    cmdline: \"y\"\n    path: /k\ncpu:\n  cores: 4\n  model: host\ndisks:\n- path: /a\n- path: /b\nname: a\n"},
		{"no network", "networks: [{user: {}}]", []string{"--net=none"}, "{}\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := apply(t, test.base, test.args...)
			if err != nil {
				t.Fatal(err)
			}
			if want := strings.ReplaceAll(test.want, "DIR", dir); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestApplyRefuses(t *testing.T) {
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, make([]byte, spec.MaxSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ arg, want string }{
		{"--label=a", "KEY=VALUE"},
		{"--label==v", "KEY=VALUE"},
		{"--memory=lots", "--memory"},
		{"--cpus=0", "one at least"},
		{"--cmdline=x", "--kernel"},
		{"--kernel=", "--kernel: a path"},
		{"--disk=", "--disk: a path"},
		{"--disk=/a,b", `"b" is no option`},
		{"--disk=/a,format", "format=VALUE"},
		{"--disk=/a,format=", "a value is wanted"},
		{"--disk=/a,format=raw,format=raw", "twice"},
		{"--disk=/a,readonly=maybe", "true or false"},
		{"--disk=/a,boot-order=first", "a number"},
		{"--disk=/a,backing=/b", "FORMAT:PATH"},
		{"--disk=/a,", `"" is no option`},
		{"--cdrom=/a,x=y", "--cdrom /a,x=y"},
		{"--net=wifi", "user, tap=NAME"},
		{"--net=user=x", "user, tap=NAME"},
		{"--net=tap", "user, tap=NAME"},
		{"--net=tap=", "user, tap=NAME"},
		{"--net=tap=a,hostfwd=1:1", `"hostfwd" is no option`},
		{"--net=user,hostfwd=22", "HOSTPORT:GUESTPORT"},
		{"--net=user,hostfwd=0:22", `"0" is no port`},
		{"--net=user,hostfwd=65536:22", `"65536" is no port`},
		{"--net=user,hostfwd=1:", `"" is no port`},
		{"--net=user,hostfwd=host:1:2", `"host" is no IP address`},
		{"--net=user,hostfwd=::1:1:2", "in brackets"},
		{"--net=user,hostfwd=[127.0.0.1]:1:2", "in brackets"},
		{"--net=user,hostfwd=sctp:1:2", `"sctp" is no IP address`},
		{"--cloud-init=/nonexistent", "--cloud-init: open /nonexistent"},
		{"--network-config=" + big, "larger than"},
	} {
		t.Run(test.arg, func(t *testing.T) {
			if got, err := apply(t, "", test.arg); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %q and the error %v, want %q", got, err, test.want)
			}
		})
	}
	if _, err := apply(t, "", "--net=none", "--net=user"); err == nil {
		t.Error("--net none beside another")
	}
}

func TestSplitOptions(t *testing.T) {
	for in, want := range map[string][]string{
		"": {""}, "a": {"a"}, "a,b": {"a", "b"}, "a,,b": {"a,b"}, "a,,,b": {"a,", "b"}, ",": {"", ""}, ",,": {","},
	} {
		if got := splitOptions(in); !reflect.DeepEqual(got, want) {
			t.Errorf("splitOptions(%q) = %q, want %q", in, got, want)
		}
	}
}
