package virtualmachines_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/test/guest"
)

// debian is a VM whose size is an instancetype's and whose disk comes from a web server.
const debian = `
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: debian, namespace: guests}
spec:
  runStrategy: Always
  instancetype: {name: u1.micro}
  preference: {name: debian}
  dataVolumeTemplates:
  - metadata: {name: debian-root}
    spec:
      source: {http: {url: %q, checksum: "sha256:%x"}}
      storage: {storageClassName: local-path, resources: {requests: {storage: 3Gi}}}
  template:
    spec:
      terminationGracePeriodSeconds: 0
      domain:
        devices: {}
        firmware:
          bootloader: {bios: {}}
          kernelBoot:
            kernelArgs: %q
            container: {image: %q, kernelPath: /boot/vmlinuz, initrdPath: /boot/initrd}
      volumes:
      - {name: root, dataVolume: {name: debian-root}}
      - name: seed
        cloudInitNoCloud:
          userData: |
            #cloud-config
            runcmd:
            - echo "user-data of $(hostname) was $(printf re)ad" >/dev/ttyS0
`

// testImportedDebian: a Debian whose disk is imported boots, with the size of an instancetype, and
// reads its cloud-init.
func (v *installed) testImportedDebian(t *testing.T) {
	path, err := guest.CloudDisk(t.Context())
	if err != nil {
		t.Skip(err)
	}
	v.kubectl(t, "apply", "--server-side", "-k", "../../deploy/common-instancetypes")
	f, err := os.Open(path)
	must(t, err)
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	must(t, err)
	must(t, f.Close())
	port := offer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, path) }))
	url := fmt.Sprintf("http://%s:%s/disk.qcow2", v.Machine(), port)
	must(t, v.Apply(v.ctx, fmt.Sprintf(debian, url, sum.Sum(nil), guest.CloudDiskCmdline, linuxImage)))
	vmi := v.phase(t, "debian", kubevirtv1.PhaseRunning)
	if got := vmi.Spec.Domain.Memory; got == nil || got.Guest == nil || got.Guest.String() != "1Gi" {
		t.Errorf("the guest has the memory %+v, want its instancetype's 1Gi", got)
	}
	pod := v.podOf(t, vmi)
	var log string
	v.eventually(t, func() bool {
		log = v.kubectl(t, "logs", "-n", guests, pod.Name, "--tail=50")
		return strings.Contains(log, "user-data of debian was read")
	}, func() string { return "the guest has not read its cloud-init: " + log })
	v.kubectl(t, "delete", "vm", "debian", "-n", guests)
	v.noMachine(t, "debian")
	v.noImports(t)
	v.kubectl(t, "delete", "-k", "../../deploy/common-instancetypes")
}
