package prepare

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/iso9660"
	"github.com/vmlet/vmlet/internal/iso9660/isotest"
	"github.com/vmlet/vmlet/launch"
)

// kubelet writes a volume as the kubelet does: links beside a folder that can be replaced.
func (p *pod) kubelet(files map[string]string) string {
	p.Helper()
	folder := p.TempDir()
	const stamp = "..2026_01_01_00_00_00.1"
	for name, content := range files {
		p.write(filepath.Join(folder, stamp, name), []byte(content))
		top, _, _ := strings.Cut(name, "/")
		if err := os.Symlink(filepath.Join(dataFolder, top), filepath.Join(folder, top)); err != nil && !os.IsExist(err) {
			p.Fatal(err)
		}
	}
	p.check(os.MkdirAll(filepath.Join(folder, stamp), 0o700))
	p.check(os.Symlink(stamp, filepath.Join(folder, dataFolder)))
	return folder
}

// image reads what was made.
func (p *pod) image() (label string, files map[string]string) {
	p.Helper()
	content, err := os.ReadFile(filepath.Join(p.Made, "d.iso"))
	p.check(err)
	return isotest.Read(p, content)
}

func TestFiles(t *testing.T) {
	p := newPod(t)
	want := map[string]string{"tls.crt": "a", "tls.key": "", "labels/app": "c", strings.Repeat("k", iso9660.MaxName): "d"}
	folder := p.kubelet(want)
	made, err := p.run(launch.Disk{Files: &launch.Files{Folder: folder, Label: "cfgdata"}})
	p.check(err)
	if made["format"] != "raw" || made["readOnly"] != true {
		t.Errorf("%v", made)
	}
	if label, files := p.image(); label != "cfgdata" || !maps.Equal(files, want) {
		t.Errorf("%q: %v", label, files)
	}
	// Of a folder that the kubelet has not written, and over an image that is there.
	p.write(filepath.Join(p.volume, "unattend.xml"), []byte("x"))
	_, err = p.run(launch.Disk{Files: &launch.Files{Folder: p.volume, Label: "unattendCD"}})
	p.check(err)
	if label, files := p.image(); label != "unattendCD" || !maps.Equal(files, map[string]string{"unattend.xml": "x"}) {
		t.Errorf("%q: %v", label, files)
	}
}

func TestFilesFaults(t *testing.T) {
	p := newPod(t)
	for name, test := range map[string]struct {
		fill func(folder string)
		want string
	}{
		"link out":   {func(f string) { p.check(os.Symlink("/etc/hostname", filepath.Join(f, "x"))) }, "escapes"},
		"link above": {func(f string) { p.check(os.Symlink("..", filepath.Join(f, dataFolder))) }, "escapes"},
		"fifo":       {func(f string) { p.check(unix.Mkfifo(filepath.Join(f, "x"), 0o600)) }, "no regular file"},
		"large":      {func(f string) { p.write(filepath.Join(f, "x"), make([]byte, maxFile+1)) }, "more than 2097152 bytes"},
		"many": {func(f string) {
			for i := range iso9660.MaxFiles + 1 {
				p.write(filepath.Join(f, "k"+strings.Repeat("k", i%64), strings.Repeat("n", 1+i/64)), nil)
			}
		}, "at most"},
		"large in all": {func(f string) {
			for i := range 9 {
				p.write(filepath.Join(f, strings.Repeat("n", 1+i)), make([]byte, maxFile))
			}
		}, "at most"},
		"long name": {func(f string) { p.write(filepath.Join(f, strings.Repeat("n", iso9660.MaxName+1)), nil) }, "more than 103 characters: an ISO image can't hold it: choose a shorter key"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pod{T: t, Preparer: p.Preparer}
			folder := t.TempDir()
			test.fill(folder)
			_, err := p.run(launch.Disk{Files: &launch.Files{Folder: folder, Label: "l"}})
			p.wantFault(err, "volume d: ")
			p.wantFault(err, test.want)
		})
	}
	_, err := p.run(launch.Disk{Files: &launch.Files{Folder: "/nonesuch", Label: "l"}})
	p.wantFault(err, "/nonesuch")
}

func TestSeed(t *testing.T) {
	p := newPod(t)
	secret := p.kubelet(map[string]string{"userData": "#cloud-config\nfrom: secret\n", "networkdata": "version: 2\n"})
	keys := p.kubelet(map[string]string{"b": "ssh-ed25519 B b@x\n", "a": "# mine\nssh-rsa A a@x\n\nssh-rsa A2\n"})
	for name, test := range map[string]struct {
		seed  launch.CloudInit
		label string
		files map[string]string
		meta  string // the file of what follows
		want  string
	}{
		"NoCloud": {
			launch.CloudInit{UserData: "#!/bin/sh\n", InstanceID: "uuid", Hostname: "web", InstanceType: "u1.medium"}, "cidata",
			map[string]string{"user-data": "#!/bin/sh\n"}, "meta-data",
			`{"instance-type":"u1.medium","instance-id":"uuid","local-hostname":"web"}`,
		},
		"NoCloud, from secrets": {
			launch.CloudInit{
				UserDataFiles:    []string{filepath.Join(secret, "userdata"), filepath.Join(secret, "userData")},
				NetworkDataFiles: []string{filepath.Join(secret, "networkdata"), filepath.Join(secret, "networkData")},
				InstanceID:       "uuid", Hostname: "web", KeyFolders: []string{keys},
			}, "cidata",
			map[string]string{"user-data": "#cloud-config\nfrom: secret\n", "network-config": "version: 2\n"}, "meta-data",
			`{"instance-id":"uuid","local-hostname":"web","public-keys":{"0":"ssh-rsa A a@x","1":"ssh-rsa A2","2":"ssh-ed25519 B b@x"}}`,
		},
		"NoCloud, network alone": {
			launch.CloudInit{NetworkData: "version: 1\n", InstanceID: "uuid", Hostname: "web"}, "cidata",
			map[string]string{"user-data": "", "network-config": "version: 1\n"}, "meta-data", `{"instance-id":"uuid","local-hostname":"web"}`,
		},
		"config drive": {
			launch.CloudInit{ConfigDrive: true, UserData: "u", NetworkData: "{}", InstanceID: "web.default", Hostname: "web", UUID: "uuid", KeyFolders: []string{keys}}, "config-2",
			map[string]string{"openstack/latest/user_data": "u", "openstack/latest/network_data.json": "{}"}, "openstack/latest/meta_data.json",
			`{"instance_id":"web.default","local_hostname":"web","hostname":"web","uuid":"uuid","public_keys":{"0":"ssh-rsa A a@x","1":"ssh-rsa A2","2":"ssh-ed25519 B b@x"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pod{T: t, Preparer: p.Preparer}
			_, err := p.run(launch.Disk{CloudInit: &test.seed})
			p.check(err)
			label, files := p.image()
			if got := files[test.meta]; got != test.want || !json.Valid([]byte(got)) {
				t.Errorf("%s is\n%s, want\n%s", test.meta, got, test.want)
			}
			delete(files, test.meta)
			if label != test.label || !maps.Equal(files, test.files) {
				t.Errorf("%q: %q, want %q", label, files, test.files)
			}
		})
	}
	_, err := p.run(launch.Disk{CloudInit: &launch.CloudInit{UserDataFiles: []string{filepath.Join(keys, "userdata"), filepath.Join(keys, "userData")}}})
	p.wantFault(err, "has no key userdata or userData")
	_, err = p.run(launch.Disk{CloudInit: &launch.CloudInit{KeyFolders: []string{"/nonesuch"}}})
	p.wantFault(err, "SSH keys: open /nonesuch")
	many := p.kubelet(map[string]string{"keys": strings.Repeat("ssh-rsa A\n", maxKeys+1)})
	_, err = p.run(launch.Disk{CloudInit: &launch.CloudInit{KeyFolders: []string{many}}})
	p.wantFault(err, "more than 1024")
}
