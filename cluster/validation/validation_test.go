package validation

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/contract"
)

func request() Request {
	return Request{Configuration: configuration.Default(), HasCDI: true, VMMs: []string{"qemu", "cloud-hypervisor"}, Hypervisors: []string{"kvm", "emulation"}}
}

// instance has 1Gi of memory unless the spec says otherwise.
func instance(t *testing.T, text string) *kubevirtv1.VirtualMachineInstance {
	t.Helper()
	guest := resource.MustParse("1Gi")
	vmi := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}}
	vmi.Spec.Domain.Memory = &kubevirtv1.Memory{Guest: &guest}
	parse(t, text, &vmi.Spec)
	return vmi
}

func parse(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// machine has one disk in an image unless the spec says otherwise.
func machine(t *testing.T, text string) *kubevirtv1.VirtualMachine {
	t.Helper()
	vm := &kubevirtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}}
	vm.Spec.Template = &kubevirtv1.VirtualMachineInstanceTemplateSpec{Spec: instance(t, "{}").Spec}
	parse(t, text, &vm.Spec)
	if template := vm.Spec.Template; template != nil && template.Spec.Volumes == nil {
		parse(t, "[{name: root, containerDisk: {image: quay.io/example/disk}}]", &template.Spec.Volumes)
	}
	return vm
}

// compare wants one fault for each wanted line: a path, a space, and words of the message.
func compare(t *testing.T, text string, got field.ErrorList, want []string) {
	t.Helper()
	var lines []string
	for _, f := range got {
		lines = append(lines, f.Error())
	}
	for _, w := range want {
		path, words, _ := strings.Cut(w, " ")
		i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, path+": ") && strings.Contains(l, words) })
		if i < 0 {
			t.Errorf("%s: no fault %q among %q", text, w, lines)
			continue
		}
		lines = slices.Delete(lines, i, i+1)
	}
	if len(lines) > 0 {
		t.Errorf("%s: unexpected faults %q", text, lines)
	}
}

func TestInstance(t *testing.T) {
	disk := func(d string) string {
		return "{domain: {devices: {disks: [" + d + "]}}, volumes: [{name: a, containerDisk: {image: i}}, {name: b, persistentVolumeClaim: {claimName: c}}]}"
	}
	volume := func(v string) string { return "{volumes: [" + v + "]}" }
	nic := func(n string) string {
		return "{domain: {devices: {interfaces: [{name: default, " + n + "}]}}, networks: [{name: default, pod: {}}]}"
	}
	multus := func(nic, network string) string {
		return "{domain: {devices: {interfaces: [{name: default}, {name: blue, " + nic + "}]}}, networks: [{name: default, pod: {}}, {name: blue, multus: {" + network + "}}]}"
	}
	domain := func(d string) string { return "{domain: {devices: {}, " + d + "}}" }
	for _, c := range []struct {
		spec string
		want []string
	}{
		{"{}", nil},
		// Memory and resources.
		{domain("memory: null"), []string{"spec.domain.memory.guest has to be set"}},
		{domain("memory: null, resources: {requests: {memory: 64M}}"), nil},
		{domain("memory: null, resources: {limits: {memory: 64M}}"), nil},
		{domain("memory: {guest: null, hugepages: {pageSize: 2Mi}}"), []string{"spec.domain.memory.guest has to be set"}},
		{domain("memory: {guest: 1Mi}"), nil},
		{domain("memory: {guest: null}"), []string{"spec.domain.memory.guest has to be set"}},
		{domain("memory: {guest: 512k}"), []string{"spec.domain.memory.guest at least 1Mi"}},
		{domain("memory: {guest: 2Ei}"), []string{"spec.domain.memory.guest at most 1024Pi"}},
		{domain("memory: {guest: 1Ei}"), nil},
		{domain("resources: {limits: {memory: 512Mi}}"), []string{"spec.domain.memory.guest more memory than resources.limits.memory, 512Mi"}},
		{domain("resources: {requests: {memory: 1024}}"), []string{"spec.domain.resources.requests[memory] forget the unit"}},
		{domain("resources: {requests: {cpu: 2}, limits: {cpu: 1}}"), []string{"spec.domain.resources.requests[cpu] more than the limit, 1"}},
		{domain("resources: {requests: {cpu: -1}}"), []string{"spec.domain.resources.requests[cpu] 0 or more"}},
		{domain("resources: {limits: {hugepages-2Mi: 64Mi}}"), []string{"spec.domain.resources.limits[hugepages-2Mi] memory.hugepages"}},
		{domain("resources: {limits: {a_: 1}}"), []string{"spec.domain.resources.limits[a_] name part"}},
		// Processors.
		{domain("cpu: {sockets: 2, cores: 16, threads: 32}"), nil},
		{domain("cpu: {sockets: 2, cores: 16, threads: 33}"), []string{"spec.domain.cpu at most 1024 vCPUs"}},
		{domain("cpu: {sockets: 2147483647, cores: 2147483647, threads: 2147483647}"), []string{"spec.domain.cpu at most 1024 vCPUs"}},
		{domain("cpu: {sockets: 2, maxSockets: 4}"), nil},
		{domain("cpu: {sockets: 2, maxSockets: 1}"), []string{"spec.domain.cpu.maxSockets less than cpu.sockets, 2"}},
		{domain("cpu: {dedicatedCpuPlacement: true, isolateEmulatorThread: true, sockets: 2}"), nil},
		{domain("cpu: {isolateEmulatorThread: true}"), []string{"spec.domain.cpu.isolateEmulatorThread set that, too"}},
		{domain("cpu: {dedicatedCpuPlacement: true, sockets: 2, maxSockets: 2}"), nil},
		{domain("cpu: {dedicatedCpuPlacement: true, sockets: 2, maxSockets: 4}"), []string{"spec.domain.cpu.maxSockets no CPU of their own"}},
		{domain("cpu: {dedicatedCpuPlacement: true, sockets: 2}, resources: {requests: {cpu: 2}, limits: {cpu: 2000m}}"), nil},
		{domain("cpu: {dedicatedCpuPlacement: true, sockets: 2}, resources: {requests: {cpu: 1500m}, limits: {cpu: 3}}"),
			[]string{"spec.domain.resources.requests[cpu] want 2", "spec.domain.resources.limits[cpu] want 2"}},
		{domain("cpu: {dedicatedCpuPlacement: true}, resources: {limits: {cpu: 3}}"), nil},
		{domain("cpu: {dedicatedCpuPlacement: true}, resources: {requests: {cpu: 1500m}}"), []string{"spec.domain.resources.requests[cpu] want 2"}},
		{domain("cpu: {dedicatedCpuPlacement: true}, resources: {requests: {cpu: 1}, limits: {cpu: 3}}"), []string{"spec.domain.resources.requests[cpu] want 3"}},
		{domain("cpu: {dedicatedCpuPlacement: true, numa: {guestMappingPassthrough: {}}}, memory: {guest: 64Mi, hugepages: {pageSize: 2Mi}}"), nil},
		{domain("cpu: {numa: {}}"), nil},
		{domain("cpu: {numa: {guestMappingPassthrough: {}}}"), []string{
			"spec.domain.cpu.numa.guestMappingPassthrough only with cpu.dedicatedCpuPlacement", "spec.domain.cpu.numa.guestMappingPassthrough only with memory.hugepages"}},
		{domain("cpu: {maxSockets: 1025}"), []string{"spec.domain.cpu at most 1024 vCPUs"}},
		{domain("cpu: {model: Skylake-Server, features: [{name: vmx, policy: force}]}"), nil},
		{domain("cpu: {model: " + strings.Repeat("m", 53) + ", features: [{name: " + strings.Repeat("f", 53) + "}]}"), nil},
		{domain("cpu: {model: " + strings.Repeat("m", 54) + ", features: [{name: " + strings.Repeat("f", 54) + "}]}"), []string{
			"spec.domain.cpu.model at most 53 letters", "spec.domain.cpu.features[0].name at most 53 letters"}},
		{domain("cpu: {model: 'a,b', features: [{name: ''}, {name: x}, {name: x}, {name: 'a/b'}]}"), []string{
			"spec.domain.cpu.model letters", "spec.domain.cpu.features[0].name vmx", "spec.domain.cpu.features[2].name Duplicate", "spec.domain.cpu.features[3].name letters",
		}},
		// Machine type and firmware.
		{domain("machine: {type: pc-q35-7.2}"), nil},
		{domain("machine: {type: ''}"), nil},
		{domain("machine: {type: pc-i440fx-7.2}"), []string{"spec.domain.machine.type q35*, pc-q35*"}},
		{"{architecture: arm64, domain: {devices: {}, machine: {type: q35}}}", []string{"spec.domain.machine.type on arm64: virt*"}},
		{"{architecture: s390x}", []string{`spec.architecture "amd64", "arm64"`}},
		{domain("firmware: {uuid: 5d307ca9-b3ef-428c-8861-06e72d69f223, serial: a b}"), nil},
		{domain("firmware: {uuid: 5d307ca9}"), []string{"spec.domain.firmware.uuid a UUID"}},
		{domain("firmware: {uuid: '{5d307ca9-b3ef-428c-8861-06e72d69f223}'}"), []string{"spec.domain.firmware.uuid a UUID"}},
		{domain("firmware: {serial: " + strings.Repeat("a", 257) + "}"), []string{"spec.domain.firmware.serial Too long"}},
		{domain("firmware: {bootloader: {efi: {secureBoot: false}}}"), nil},
		{domain("firmware: {bootloader: {efi: {}}}"), []string{"spec.domain.firmware.bootloader.efi.secureBoot set it to false"}},
		{"{architecture: arm64, domain: {devices: {}, firmware: {bootloader: {efi: {}}}}}", nil},
		{domain("firmware: {kernelBoot: {kernelArgs: quiet, container: {image: i, kernelPath: /vmlinuz, initrdPath: /boot/initrd}}}"), nil},
		{domain("firmware: {kernelBoot: {kernelArgs: quiet}}"), []string{"spec.domain.firmware.kernelBoot.container name the image"}},
		{domain("firmware: {kernelBoot: {container: {image: '', imagePullPolicy: Often, initrdPath: a/../b}}}"), []string{
			"spec.domain.firmware.kernelBoot.container.image reference", "spec.domain.firmware.kernelBoot.container.imagePullPolicy supported values",
			"spec.domain.firmware.kernelBoot.container.initrdPath begins with",
		}},
		{domain("firmware: {kernelBoot: {container: {image: i}}}"), []string{"spec.domain.firmware.kernelBoot.container.kernelPath such as /boot/vmlinuz"}},
		{domain("firmware: {kernelBoot: {kernelArgs: " + strings.Repeat("a", 2048) + ", container: {image: i, kernelPath: /k}}}"), []string{"spec.domain.firmware.kernelBoot.kernelArgs Too long"}},
		{"{architecture: arm64, domain: {devices: {disks: [{name: a, cdrom: {bus: sata}}]}, firmware: {bootloader: {bios: {}}}, features: {smm: {}}, clock: {timer: {hpet: {}, pit: {tickPolicy: delay}}}}, volumes: [{name: a, emptyDisk: {capacity: 1Gi}}]}", []string{
			"spec.domain.firmware.bootloader.bios arm64", "spec.domain.features.smm arm64", "spec.domain.clock.timer.hpet arm64", "spec.domain.clock.timer.pit arm64", "spec.domain.devices.disks[0] no bus sata",
		}},
		{"{architecture: arm64, domain: {devices: {}, features: {smm: {enabled: false}}, clock: {timer: {hpet: {present: false}, pit: {present: false}}}}}", nil},
		{domain("features: {acpi: {enabled: false}}, firmware: {bootloader: {efi: {secureBoot: false}}}"), []string{"spec.domain.firmware.bootloader.efi needs ACPI"}},
		{domain("features: {acpi: {enabled: false}}, firmware: {bootloader: {efi: {secureBoot: false}}, kernelBoot: {container: {image: i, kernelPath: " + "/" + strings.Repeat("k", 4095) + "}}}"), []string{"spec.domain.firmware.kernelBoot.container.kernelPath Too long"}},
		// Features.
		{domain("features: {hyperv: {relaxed: {}, vapic: {}, synic: {}, synictimer: {direct: {}}, tlbflush: {}, ipi: {}, spinlocks: {spinlocks: 8191}}}"), nil},
		{domain("features: {hyperv: {synic: {}, vpindex: {enabled: false}, vendorid: {vendorid: 1234567890123}}, hypervPassthrough: {}}"), []string{
			"spec.domain.features.hyperv.vpindex.enabled synic needs it", "spec.domain.features.hyperv.vendorid.vendorid Too long", "spec.domain.features.hyperv hypervPassthrough",
		}},
		{domain("features: {hyperv: {vendorid: {vendorid: abcdefghijkl}}}"), nil},
		{domain("features: {hyperv: {evmcs: {}, vapic: {enabled: false}, synictimer: {enabled: false}, synic: {enabled: false}}}"), []string{"spec.domain.features.hyperv.vapic.enabled evmcs needs it"}},
		// Disks and volumes.
		{disk("{name: a, disk: {bus: scsi}, serial: a_b.c+d-E9, bootOrder: 1}, {name: b, cdrom: {bus: sata}, bootOrder: 2}"), nil},
		{disk("{name: a}, {name: a}, {name: x}, {name: y, cdrom: {}}"), []string{
			"spec.domain.devices.disks[1].name Duplicate", "spec.domain.devices.disks[2].name add it or remove", "spec.domain.devices.disks[3].name empty CD-ROM",
		}},
		{disk("{name: a, shareable: true}, {name: b, shareable: true, disk: {}}"), []string{"spec.domain.devices.disks[0].shareable use a persistentVolumeClaim"}},
		{disk("{name: a, disk: {readonly: true}}, {name: b, disk: {readonly: true, bus: usb}}"), []string{"spec.domain.devices.disks[0].disk.readonly no read-only SATA disk"}},
		{"{volumes: [{name: c, persistentVolumeClaim: {claimName: c, readOnly: true}}], domain: {devices: {disks: [{name: c, disk: {bus: sata}}]}}}", []string{"spec.domain.devices.disks[0].disk.readonly no read-only SATA disk"}},
		{"{volumes: [{name: c, persistentVolumeClaim: {claimName: c, readOnly: true}}], domain: {devices: {disks: [{name: c, cdrom: {}}]}}}", nil},
		{"{architecture: arm64, volumes: [{name: c, persistentVolumeClaim: {claimName: c, readOnly: true}}], domain: {devices: {disks: [{name: c}]}}}", nil},
		{disk("{name: a, serial: " + strings.Repeat("a", 257) + "}"), []string{"spec.domain.devices.disks[0].serial Too long"}},
		{disk("{name: a, cdrom: {bus: virtio}, serial: 'a b'}"), []string{`spec.domain.devices.disks[0].cdrom.bus "sata"`, "spec.domain.devices.disks[0].serial letters"}},
		{disk("{name: a, bootOrder: 1}, {name: b, bootOrder: 1}"), []string{"spec.domain.devices.disks[1].bootOrder place of spec.domain.devices.disks[0]"}},
		{volume("{name: A, emptyDisk: {capacity: 1Gi}}, {name: '', emptyDisk: {capacity: 1}}"), []string{
			"spec.volumes[0].name lowercase", "spec.volumes[1].name has to be set", "spec.volumes[1].emptyDisk.capacity at least 1Mi",
		}},
		{volume("{name: a, emptyDisk: {capacity: 1Gi}}, {name: a, emptyDisk: {capacity: 1Gi}}"), []string{"spec.volumes[1].name Duplicate"}},
		{volume("{name: " + strings.Repeat("a", 58) + ", containerDisk: {image: i}}, {name: " + strings.Repeat("b", 58) + ", emptyDisk: {capacity: 1Gi}}"), []string{"spec.volumes[0].name Too long"}},
		{volume("{name: a, containerDisk: {image: '', path: disk.img, imagePullPolicy: Often}}"), []string{
			"spec.volumes[0].containerDisk.image reference", "spec.volumes[0].containerDisk.path begins with", "spec.volumes[0].containerDisk.imagePullPolicy supported values",
		}},
		{volume("{name: a, containerDisk: {image: 'i '}}"), []string{"spec.volumes[0].containerDisk.image white space"}},
		{volume("{name: a, persistentVolumeClaim: {claimName: ''}}, {name: b, dataVolume: {name: X}}, {name: c, ephemeral: {}}, {name: d, ephemeral: {persistentVolumeClaim: {claimName: ''}}}"), []string{
			"spec.volumes[0].persistentVolumeClaim.claimName of the claim", "spec.volumes[1].dataVolume.name lowercase",
			"spec.volumes[2].ephemeral.persistentVolumeClaim has to be set", "spec.volumes[3].ephemeral.persistentVolumeClaim.claimName of the claim",
		}},
		{volume("{name: a, persistentVolumeClaim: {claimName: c}}, {name: b, dataVolume: {name: c}}, {name: c, ephemeral: {persistentVolumeClaim: {claimName: c}}}"), []string{
			"spec.volumes[1].dataVolume.name volumes[0] has this claim", "spec.volumes[2].ephemeral.persistentVolumeClaim.claimName volumes[0] has this claim",
		}},
		{volume("{name: a, ephemeral: {persistentVolumeClaim: {claimName: c}}}, {name: b, ephemeral: {persistentVolumeClaim: {claimName: c}}}, {name: c, dataVolume: {name: c}}"), []string{"spec.volumes[2].dataVolume.name volumes[0] has this claim"}},
		{"{domain: {devices: {disks: [{name: a, disk: {bus: virtio}}, {name: b, disk: {bus: virtio}}]}}, volumes: [{name: a, persistentVolumeClaim: {claimName: c, readOnly: true}}, {name: b, persistentVolumeClaim: {claimName: c, readOnly: true}}]}", nil},
		{volume("{name: a, cloudInitNoCloud: {userData: x, networkDataSecretRef: {name: n}}}, {name: b, cloudInitConfigDrive: {userDataBase64: eA==}}"), nil},
		{volume("{name: a, cloudInitNoCloud: {}}"), []string{"spec.volumes[0].cloudInitNoCloud user data or network data"}},
		{volume("{name: a, cloudInitConfigDrive: {secretRef: {}, networkDataBase64: '%'}}"), []string{"spec.volumes[0].cloudInitConfigDrive.secretRef.name of the Secret", "spec.volumes[0].cloudInitConfigDrive.networkDataBase64 not base64"}},
		{volume("{name: a, cloudInitNoCloud: {userData: " + strings.Repeat("a", 2048) + "}}"), nil},
		{volume("{name: a, cloudInitNoCloud: {userData: " + strings.Repeat("a", 2049) + ", networkDataBase64: " + strings.Repeat("YWFh", 683) + "}}"), []string{
			"spec.volumes[0].cloudInitNoCloud.userData put it into a Secret", "spec.volumes[0].cloudInitNoCloud.networkDataBase64 at most 2048 bytes",
		}},
		{volume("{name: a, configMap: {volumeLabel: " + strings.Repeat("a", 33) + "}}, {name: b, secret: {}}, {name: c, serviceAccount: {}}, {name: d, downwardAPI: {}}"), []string{
			"spec.volumes[0].configMap.name of the ConfigMap", "spec.volumes[0].configMap.volumeLabel Too long", "spec.volumes[1].secret.secretName of the Secret",
			"spec.volumes[2].serviceAccount.serviceAccountName of the ServiceAccount", "spec.volumes[3].downwardAPI.fields at least one",
		}},
		{volume("{name: a, configMap: {name: c, volumeLabel: " + strings.Repeat("a", 32) + "}}"), nil},
		{volume("{name: a, downwardAPI: {fields: [{path: labels, fieldRef: {fieldPath: metadata.labels}}, {path: ../x}]}}"), []string{"spec.volumes[0].downwardAPI.fields[1].path relative", "spec.volumes[0].downwardAPI.fields[1] exactly one"}},
		{"{serviceAccountName: x, volumes: [{name: a, serviceAccount: {serviceAccountName: y}}, {name: b, serviceAccount: {serviceAccountName: x}}]}", []string{
			"spec.volumes[0].serviceAccount.serviceAccountName want x", "spec.volumes[1].serviceAccount one ServiceAccount",
		}},
		// Networks.
		{nic("masquerade: {}, model: e1000, macAddress: 'de:ad:00:00:be:ae', ports: [{port: 80}, {port: 80, protocol: UDP}, {name: https, port: 443, protocol: TCP}]"), nil},
		{nic("bridge: {}"), nil},
		{nic("model: tulip, macAddress: 'de:ad', ports: [{port: 80, protocol: SCTP}]"), []string{
			"spec.domain.devices.interfaces[0].model supported values", "spec.domain.devices.interfaces[0].macAddress six bytes", "spec.domain.devices.interfaces[0].ports[0].protocol supported values",
		}},
		{nic("macAddress: 'df:ad:00:00:be:af'"), []string{"spec.domain.devices.interfaces[0].macAddress multicast"}},
		{nic("macAddress: '02:00:00:00:00:00'"), []string{"spec.domain.devices.interfaces[0].macAddress not an address for a guest"}},
		{nic("ports: [{name: a, port: 80}, {name: a, port: 80, protocol: TCP}, {name: a_b, port: 81}]"), []string{
			"spec.domain.devices.interfaces[0].ports[1].name Duplicate", "spec.domain.devices.interfaces[0].ports[2].name must contain",
		}},
		{nic("portRanges: [{protocol: TCP, start: 1, end: 65535}], ports: [{port: 80}]"), nil},
		{nic("portRanges: [{protocol: SCTP, start: 1, end: 64}], ports: [{port: 80}]"), []string{"spec.domain.devices.interfaces[0].portRanges[0].protocol supported values"}},
		{nic("ports: [" + strings.TrimSuffix(strings.Repeat("{port: 1}, ", 257), ", ") + "]"), []string{"spec.domain.devices.interfaces[0].ports Too many"}},
		{"{domain: {devices: {interfaces: [{name: a}, {name: b}, {name: b}]}}, networks: [{name: b, pod: {}}, {name: c, pod: {vmNetworkCIDR: 10.0.0.0/31, vmIPv6NetworkCIDR: 'fd00::/127'}}]}", []string{
			"spec.networks[1].name no interface", "spec.networks[1].pod one default network", "spec.networks[1].pod.vmNetworkCIDR 4 to 30 bits", "spec.networks[1].pod.vmIPv6NetworkCIDR 4 to 126 bits",
			"spec.domain.devices.interfaces[0].name no network", "spec.domain.devices.interfaces[2].name Duplicate",
		}},
		{"{domain: {devices: {interfaces: [{name: a}]}}, networks: [{name: a, pod: {vmNetworkCIDR: 10.1.2.3/30}}]}", nil},
		{"{domain: {devices: {interfaces: [{name: a}]}}, networks: [{name: a, pod: {vmNetworkCIDR: 0.0.0.0/3}}]}", []string{"spec.networks[0].pod.vmNetworkCIDR 4 to 30 bits"}},
		{"{domain: {devices: {interfaces: [{name: a, bootOrder: 1}], disks: [{name: d, bootOrder: 1}]}}, networks: [{name: a, pod: {vmNetworkCIDR: 'fd00::/64'}}], volumes: [{name: d, emptyDisk: {capacity: 1Gi}}]}", []string{
			"spec.networks[0].pod.vmNetworkCIDR IPv4", "spec.domain.devices.interfaces[0].bootOrder place of spec.domain.devices.disks[0]",
		}},
		// Networks of Multus.
		{multus("bridge: {}", "networkName: vlan-7"), nil},
		{multus("bridge: {}, state: down, macAddress: '02:00:00:00:00:07'", "networkName: networks/vlan.7"), nil},
		{multus("bridge: {}", "networkName: vlan, default: true"), []string{"spec.networks[1].multus.default one default network"}},
		{multus("masquerade: {}", "networkName: vlan"), []string{"spec.domain.devices.interfaces[1].masquerade use bridge"}},
		{multus("sriov: {}", "networkName: vlan"), []string{"spec.domain.devices.interfaces[1].sriov SR-IOV"}},
		{multus("binding: {name: x}", "networkName: vlan"), []string{"spec.domain.devices.interfaces[1].binding plug-ins"}},
		{multus("model: virtio", "networkName: vlan"), []string{"spec.domain.devices.interfaces[1].bridge add bridge"}},
		{multus("bridge: {}", "networkName: ''"), []string{"spec.networks[1].multus.networkName want the name"}},
		{multus("bridge: {}", "networkName: /vlan"), []string{"spec.networks[1].multus.networkName want the name"}},
		{multus("bridge: {}", "networkName: a/b/c"), []string{"spec.networks[1].multus.networkName want the name"}},
		{multus("bridge: {}", "networkName: a.b/c"), []string{"spec.networks[1].multus.networkName want the name"}},
		{"{domain: {devices: {networkInterfaceMultiqueue: true, interfaces: [{name: a, bridge: {}}]}}, networks: [{name: a, multus: {networkName: vlan, default: true}}]}", nil},
		{"{domain: {devices: {interfaces: [{name: a, masquerade: {}}]}}, networks: [{name: a, multus: {networkName: vlan, default: true}}]}", []string{"spec.domain.devices.interfaces[0].masquerade use bridge"}},
		// Other devices.
		{"{domain: {devices: {inputs: [{name: a, type: tablet}, {name: a, type: keyboard}, {type: tablet}], watchdog: {i6300esb: {}}, video: {type: qxl}}}}", []string{
			"spec.domain.devices.inputs[1].name Duplicate", "spec.domain.devices.inputs[2].name name the tablet", "spec.domain.devices.watchdog.name name the watchdog", "spec.domain.devices.video.type supported values",
		}},
		{"{domain: {devices: {autoattachGraphicsDevice: false, video: {type: vga}}}}", []string{"spec.domain.devices.video one of the two"}},
		// The guest's start, end, probes and keys.
		{"{startStrategy: Paused, terminationGracePeriodSeconds: 0}", nil},
		{"{startStrategy: Frozen, terminationGracePeriodSeconds: -1}", []string{`spec.startStrategy "Paused"`, "spec.terminationGracePeriodSeconds 0 to 86400"}},
		{"{startStrategy: Paused, livenessProbe: {tcpSocket: {port: 80}}}", []string{"spec.livenessProbe starts paused"}},
		{"{livenessProbe: {tcpSocket: {port: 0}, successThreshold: 2}, readinessProbe: {httpGet: {port: a_b, scheme: ftp}, periodSeconds: -1}}", []string{
			"spec.livenessProbe.tcpSocket.port between 1 and 65535", "spec.livenessProbe.successThreshold of a livenessProbe it is 1",
			"spec.readinessProbe.httpGet.port must contain only", "spec.readinessProbe.httpGet.scheme supported values", "spec.readinessProbe.periodSeconds 0 (the default) or more",
		}},
		{"{domain: {devices: {autoattachPodInterface: false}}, readinessProbe: {httpGet: {port: 80}}}", []string{"spec.readinessProbe no interface on the pod's network"}},
		{"{accessCredentials: [{userPassword: {source: {}, propagationMethod: {}}}, {sshPublicKey: {source: {secret: {secretName: s}}, propagationMethod: {qemuGuestAgent: {users: []}}}}]}", []string{
			"spec.accessCredentials[0].userPassword.source.secret has to be set", "spec.accessCredentials[0].userPassword.propagationMethod.qemuGuestAgent by its agent",
			"spec.accessCredentials[1].sshPublicKey.propagationMethod.qemuGuestAgent.users name the users",
		}},
		{"{accessCredentials: [{sshPublicKey: {source: {secret: {secretName: s}}, propagationMethod: {noCloud: {}}}}, {sshPublicKey: {source: {}, propagationMethod: {configDrive: {}}}}], volumes: [{name: a, cloudInitNoCloud: {userData: x}}]}", []string{
			"spec.accessCredentials[1].sshPublicKey.source.secret has to be set", "spec.accessCredentials[1].sshPublicKey.propagationMethod.configDrive add one",
		}},
		// The pod.
		{"{domain: {devices: {autoattachPodInterface: false}}, hostname: web-1, subdomain: db, dnsPolicy: None, dnsConfig: {nameservers: [1.1.1.1], searches: [a.b, _tcp.a_b]}, nodeSelector: {a/b: c}, tolerations: [{operator: Exists}], priorityClassName: high}", nil},
		{"{hostname: web.1, subdomain: A, serviceAccountName: _, schedulerName: A, priorityClassName: ' '}", []string{
			"spec.hostname dots", "spec.subdomain label", "spec.serviceAccountName subdomain", "spec.schedulerName subdomain", "spec.priorityClassName subdomain",
		}},
		{"{dnsPolicy: None}", []string{"spec.dnsConfig.nameservers at least one"}},
		{"{dnsPolicy: Some, dnsConfig: {nameservers: [a, 1.1.1.1, 1.1.1.1, 1.1.1.1], options: [{value: x}]}}", []string{
			"spec.dnsPolicy supported values", "spec.dnsConfig.nameservers Too many", "spec.dnsConfig.nameservers[0] an IP address", "spec.dnsConfig.options[0].name name the option",
		}},
		{"{dnsConfig: {searches: [a.b., 'a b', '', " + strings.Repeat("a", 63) + "." + strings.Repeat("a", 63) + "]}}", []string{
			"spec.dnsConfig.searches[1] subdomain", "spec.dnsConfig.searches[2] subdomain",
		}},
		{"{dnsConfig: {searches: [" + strings.TrimSuffix(strings.Repeat(strings.Repeat("a.", 50)+"a, ", 21), ", ") + "]}}", []string{"spec.dnsConfig.searches Too long"}},
		{"{nodeSelector: {a/b/c: d}}", []string{"spec.nodeSelector "}},
		{"{tolerations: [{effect: Sometimes, key: a}, {value: x}, {operator: Exists, value: x}, {key: a, operator: Is}, {key: a, tolerationSeconds: 1}, {key: 'a b'}]}", []string{
			"spec.tolerations[0].effect supported values", "spec.tolerations[1].operator Exists", "spec.tolerations[2].value empty",
			"spec.tolerations[3].operator supported values", "spec.tolerations[4].effect NoExecute", "spec.tolerations[5].key ",
		}},
		{"{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In}, {key: a, operator: Is}, {key: a, operator: Exists, values: [b]}, {key: a, operator: Gt}], matchFields: [{key: a, operator: In, values: [b]}]}]}}}}", []string{
			"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values needs values",
			"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[1].operator supported values",
			"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[2].values takes none",
			"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[3].values takes one",
			"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].key metadata.name",
		}},
		{"{affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, podAffinityTerm: {topologyKey: ''}}]}, podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, labelSelector: {matchLabels: {'a b': c}}}]}}}", []string{
			"spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight 1 to 100",
			"spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.topologyKey kubernetes.io/hostname",
			"spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector.matchLabels ",
		}},
		{"{affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: a}}, {weight: 100, podAffinityTerm: {topologyKey: a}}, {weight: 101, podAffinityTerm: {topologyKey: a}}]}, nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}, preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: '-', operator: Exists}]}}]}}}", []string{
			"spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[2].weight 1 to 100",
			"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms at least one",
			"spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].key ",
		}},
		{"{topologySpreadConstraints: [{maxSkew: 0, topologyKey: '', whenUnsatisfiable: Sleep}]}", []string{
			"spec.topologySpreadConstraints[0].maxSkew 1 or more", "spec.topologySpreadConstraints[0].whenUnsatisfiable supported values", "spec.topologySpreadConstraints[0].topologyKey kubernetes.io/hostname",
		}},
		{"{evictionStrategy: LiveMigrate}", nil},
		// All at once, refused fields among the others.
		{"{domain: {devices: {tpm: {}, disks: [{name: x, lun: {}}]}, memory: null}}", []string{
			"spec.domain.devices.tpm no TPM yet", "spec.domain.devices.disks[0].lun bus scsi", "spec.domain.devices.disks[0].name add it", "spec.domain.memory.guest has to be set",
		}},
	} {
		faults, warnings := Instance(instance(t, c.spec), nil, request())
		compare(t, c.spec, faults, c.want)
		warnings = slices.DeleteFunc(warnings, func(w string) bool { return remarked.MatchString(w) })
		if len(warnings) > 0 {
			t.Errorf("%s: unexpected warnings %q", c.spec, warnings)
		}
	}
}

// remarked matches warnings that TestRemarks is for.
var remarked = regexp.MustCompile(`bridge keeps the guest|kernelBoot has no effect|that cloud-init ignores`)

// TestRemarks: what is accepted and does not do what it seems to is said.
func TestRemarks(t *testing.T) {
	domain := func(d string) string { return "{domain: {devices: {}, " + d + "}}" }
	for _, c := range []struct{ spec, want string }{
		{"{domain: {devices: {interfaces: [{name: a, bridge: {}}]}}, networks: [{name: a, pod: {}}]}", "domain.devices.interfaces[0].bridge keeps the guest from being saved"},
		{"{domain: {devices: {interfaces: [{name: a, masquerade: {}}]}}, networks: [{name: a, pod: {}}], livenessProbe: {tcpSocket: {port: 80}}}", ""},
		{domain("firmware: {kernelBoot: {container: {image: i, initrdPath: /i}}}"), "domain.firmware.kernelBoot has no effect without container.kernelPath"},
		{domain("firmware: {kernelBoot: {container: {image: i, kernelPath: /k, initrdPath: /i}}}"), ""},
		{"{domain: {devices: {}}, volumes: [{name: a, cloudInitNoCloud: {userData: 'packages: [vim]'}}]}", "volumes[0].cloudInitNoCloud has user data that cloud-init ignores"},
		{"{domain: {devices: {}}, volumes: [{name: a, cloudInitNoCloud: {userData: '# cloud-config'}}]}", "volumes[0].cloudInitNoCloud has user data that cloud-init ignores"},
		{"{domain: {devices: {}}, volumes: [{name: a, cloudInitNoCloud: {userData: '%23cloud-config%0A'}}]}", "volumes[0].cloudInitNoCloud has user data that cloud-init ignores"},
		{"{domain: {devices: {}}, volumes: [{name: a, cloudInitNoCloud: {userData: '{\"ignition\": {}}'}}]}", "volumes[0].cloudInitNoCloud has user data that cloud-init ignores"},
		{"{domain: {devices: {}}, volumes: [{name: a, cloudInitConfigDrive: {userData: '{\"ignition\": {}}'}}]}", ""},
		{"{domain: {devices: {}}, volumes: [{name: a, cloudInitNoCloud: {userDataBase64: cGFja2FnZXM6IFt2aW1d}}]}", "volumes[0].cloudInitNoCloud has user data that cloud-init ignores"},
		{"{domain: {devices: {}}, volumes: [{name: a, cloudInitNoCloud: {userDataBase64: H4sIAAAAAAAAA1NOzskvTdFNzs9Ly0znAgAZt5iCDgAAAA==}}]}", ""},
		{"{domain: {devices: {}}, volumes: [{name: a, cloudInitNoCloud: {userData: \"\\n#Cloud-Config\\npackages: [vim]\"}}]}", ""},
		{"{domain: {devices: {}}, volumes: [{name: a, cloudInitNoCloud: {userData: '#!/bin/sh'}}]}", ""},
		{"{domain: {devices: {}}, volumes: [{name: a, cloudInitNoCloud: {userData: 'Content-Type: multipart/mixed; boundary=x, MIME-Version: 1.0'}}]}", ""},
		{"{domain: {devices: {}}, volumes: [{name: a, cloudInitNoCloud: {networkData: 'version: 2'}}]}", ""},
	} {
		_, ofInstance := Instance(instance(t, c.spec), nil, request())
		_, ofMachine := Machine(machine(t, "{template: {spec: "+c.spec+"}}"), nil, request())
		for place, warnings := range map[string][]string{"spec.": ofInstance, "spec.template.spec.": ofMachine} {
			var got []string
			for _, w := range warnings {
				if remarked.MatchString(w) {
					got = append(got, w)
				}
			}
			switch {
			case c.want == "" && len(got) > 0:
				t.Errorf("%s: warnings %q, want none", c.spec, got)
			case c.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], place+c.want)):
				t.Errorf("%s: warnings %q, want %s%s", c.spec, got, place, c.want)
			}
		}
	}
}

func TestConfiguration(t *testing.T) {
	r := request()
	r.Configuration.PermitBridge = false
	r.Configuration.DefaultArchitecture = "arm64"
	const text = "{domain: {devices: {interfaces: [{name: a, bridge: {}}]}, machine: {type: q35}, firmware: {bootloader: {efi: {}}}}, networks: [{name: a, pod: {}}]}"
	faults, _ := Instance(instance(t, text), nil, r)
	const secondary = "{architecture: amd64, domain: {devices: {interfaces: [{name: a, bridge: {}}]}}, networks: [{name: a, multus: {networkName: b}}]}"
	other, _ := Instance(instance(t, secondary), nil, r)
	compare(t, secondary, other, nil)
	compare(t, text, faults, []string{"spec.domain.devices.interfaces[0].bridge permitBridgeInterfaceOnPodNetwork", "spec.domain.machine.type on arm64"})
}

// TestDifferences: what the guest sees otherwise is accepted with a warning.
func TestDifferences(t *testing.T) {
	const volumes = "volumes: [{name: a, emptyDisk: {capacity: 1Gi}}]"
	disk := func(d string) string { return "{domain: {devices: {disks: [{name: a, " + d + "}]}}, " + volumes + "}" }
	for _, c := range []struct{ spec, want string }{
		{disk("serial: " + strings.Repeat("a", 256)), "domain.devices.disks[0].serial: the guest sees its first 20 characters"},
		{disk("disk: {bus: scsi}, serial: " + strings.Repeat("a", 37)), "domain.devices.disks[0].serial: the guest sees its first 36 characters"},
		{disk("disk: {bus: scsi}, serial: " + strings.Repeat("a", 36)), ""},
		{disk("serial: " + strings.Repeat("a", 20)), ""},
		{"{domain: {devices: {}, machine: {type: pc-q35-rhel9.4.0}}}", "domain.machine.type: pc-q35-rhel9.4.0 is a machine type of Red Hat's QEMU alone: the guest has q35"},
	} {
		_, warnings := Instance(instance(t, c.spec), nil, request())
		_, ofMachine := Machine(machine(t, "{template: {spec: "+c.spec+"}}"), nil, request())
		for at, got := range map[string][]string{"spec.": warnings, "spec.template.spec.": ofMachine} {
			if want := []string{at + c.want}; c.want == "" && len(got) > 0 || c.want != "" && !slices.Equal(got, want) {
				t.Errorf("%s: warnings are %q, want %q", c.spec, got, want)
			}
		}
	}
}

func TestMachine(t *testing.T) {
	const template = "spec.dataVolumeTemplates[0]"
	root := "template: {spec: {domain: {devices: {}, memory: {guest: 1Gi}}, volumes: [{name: root, dataVolume: {name: dv}}]}}"
	for _, c := range []struct {
		spec     string
		want     []string
		warnings []string
	}{
		{"{runStrategy: Always}", nil, nil},
		{"{running: true}", nil, []string{"spec.running is deprecated"}},
		{"{runStrategy: Sometimes}", []string{`spec.runStrategy "Always", "RerunOnFailure", "Manual", "Halted", "Once"`}, nil},
		{"{runStrategy: ''}", []string{`spec.runStrategy "Always", "RerunOnFailure"`}, nil},
		{"{runStrategy: Hibernate, hibernateStrategy: {mode: Save, warningTimeoutSeconds: 5, claimName: c, storageClassName: s}, startStrategy: Restore}", nil, nil},
		{"{runStrategy: Hibernate, hibernateStrategy: {mode: suspendToDisk}, startStrategy: boot}", nil, nil},
		{"{hibernateStrategy: {mode: save}, startStrategy: restore}", nil, nil},
		{"{runStrategy: Hibernate, hibernateStrategy: {mode: Nap}, startStrategy: Paused}", []string{`spec.hibernateStrategy.mode "Save", "SuspendToDisk"`, `spec.startStrategy "Restore", "Boot"`}, nil},
		{"{hibernateStrategy: {claimName: A_b, storageClassName: C_d}}", []string{"spec.hibernateStrategy.claimName ", "spec.hibernateStrategy.storageClassName "}, nil},
		{"{hibernateStrategy: {claimName: dv}, " + root + "}", []string{"spec.hibernateStrategy.claimName one of the VM's disks"}, nil},
		{"{template: null}", []string{"spec.template has to be set"}, nil},
		{"{template: {metadata: {labels: {'a b': c}, annotations: {'a b': c}}}}", []string{"spec.template.metadata.labels ", "spec.template.metadata.annotations "}, nil},
		{"{template: {spec: {domain: {devices: {tpm: {}}}}}}", []string{"spec.template.spec.domain.devices.tpm no TPM"}, nil},
		{"{template: {spec: {domain: {devices: {disks: [{name: x}]}}}}}", []string{"spec.template.spec.domain.devices.disks[0].name no volume"}, nil},
		{"{instancetype: {name: u1.small}, template: {spec: {domain: {devices: {}, memory: null}}}}", nil, nil},
		{"{template: {spec: {domain: {devices: {}, memory: null}}}}", nil, []string{"spec.template.spec.domain.memory.guest is not set"}},
		{"{template: {spec: {domain: {devices: {tpm: {}}, memory: null}}}}", []string{"spec.template.spec.domain.devices.tpm no TPM"}, []string{"spec.template.spec.domain.memory.guest is not set"}},
		{"{dataVolumeTemplates: [{metadata: {name: dv}, spec: {source: {blank: {}}, storage: {}}}], " + root + "}", nil, nil},
		{"{dataVolumeTemplates: [{metadata: {name: dv}, spec: {pvc: {dataSource: {kind: VolumeSnapshot, name: s}}}}], " + root + "}", nil, nil},
		{"{dataVolumeTemplates: [{metadata: {name: dv}, spec: {storage: {dataSourceRef: {kind: VolumeSnapshot, name: s}}}}], " + root + "}", nil, nil},
		{"{dataVolumeTemplates: [{metadata: {name: dv}, spec: {storage: {dataSource: {kind: VolumeSnapshot, name: s}}}}], " + root + "}", nil, nil},
		{"{dataVolumeTemplates: [{metadata: {name: dv}, spec: {storage: {}}}], " + root + "}", []string{template + ".spec exactly one of source"}, nil},
		{"{dataVolumeTemplates: [{spec: {source: {blank: {}}, sourceRef: {kind: DataSource, name: x}, pvc: {}}}], " + root + "}", []string{template + ".metadata.name needs a name", template + ".spec exactly one of source"}, nil},
		{"{dataVolumeTemplates: [{metadata: {name: other}, spec: {source: {blank: {}}}}], " + root + "}", []string{template + ".metadata.name no volume uses", template + ".spec exactly one of storage"}, nil},
		{"{dataVolumeTemplates: [{metadata: {name: dv}, spec: {source: {blank: {}}, pvc: {}}}, {metadata: {name: dv}, spec: {source: {blank: {}}, pvc: {}}}], " + root + "}", []string{"spec.dataVolumeTemplates[1].metadata.name Duplicate"}, nil},
		{"{template: {metadata: {annotations: {hooks.kubevirt.io/hookSidecars: x, kubevirt.io/libvirt-log-filters: y, vmlet.io/vmm: xen, vmlet.io/hypervisor: kvm, vmlet.io/vhost-net: sometimes}}}}", []string{
			"spec.template.metadata.annotations[hooks.kubevirt.io/hookSidecars] hook sidecars", `spec.template.metadata.annotations[vmlet.io/vmm] "auto", "qemu", "cloud-hypervisor"`,
			`spec.template.metadata.annotations[vmlet.io/vhost-net] "true", "false"`,
		}, []string{"spec.template.metadata.annotations[kubevirt.io/libvirt-log-filters] is ignored"}},
		{"{template: {metadata: {annotations: {k8s.v1.cni.cncf.io/networks: a, v1.multus-cni.io/default-network: b}}, spec: {domain: {devices: {interfaces: [{name: a}]}}, networks: [{name: a, pod: {}}]}}}", nil, nil},
		{"{template: {metadata: {annotations: {k8s.v1.cni.cncf.io/networks: a, v1.multus-cni.io/default-network: b}}, spec: {domain: {devices: {interfaces: [{name: a, bridge: {}}, {name: b}]}}, networks: [{name: a, multus: {networkName: a}}, {name: b, pod: {}}]}}}", []string{
			"spec.template.metadata.annotations[k8s.v1.cni.cncf.io/networks] add a network",
		}, nil},
		{"{template: {metadata: {annotations: {k8s.v1.cni.cncf.io/networks: a, v1.multus-cni.io/default-network: b}}, spec: {domain: {devices: {interfaces: [{name: a, bridge: {}}]}}, networks: [{name: a, multus: {networkName: a, default: true}}]}}}", []string{
			"spec.template.metadata.annotations[v1.multus-cni.io/default-network] remove the annotation",
		}, []string{"spec.template.spec.domain.devices.interfaces[0].bridge keeps the guest from being saved"}},
		{"{template: {metadata: {annotations: {vmlet.io/disk-size.a: 20Gi, vmlet.io/disk-size.b: 1G}}, spec: {volumes: [{name: a, containerDisk: {image: i}}, {name: b, ephemeral: {persistentVolumeClaim: {claimName: c}}}]}}}", nil, nil},
		{"{template: {metadata: {annotations: {vmlet.io/disk-size.a: large, vmlet.io/disk-size.b: 1Gi, vmlet.io/disk-size.c: 0}}, spec: {volumes: [{name: a, containerDisk: {image: i}}, {name: b, emptyDisk: {capacity: 1Gi}}]}}}", []string{
			"spec.template.metadata.annotations[vmlet.io/disk-size.a] want a size", "spec.template.metadata.annotations[vmlet.io/disk-size.b] there is no containerDisk",
			"spec.template.metadata.annotations[vmlet.io/disk-size.c] there is no containerDisk", "spec.template.metadata.annotations[vmlet.io/disk-size.c] want a size",
		}, nil},
	} {
		faults, warnings := Machine(machine(t, c.spec), nil, request())
		compare(t, c.spec, faults, c.want)
		if !slices.EqualFunc(warnings, c.warnings, strings.HasPrefix) {
			t.Errorf("%s: warnings are %q, want %q", c.spec, warnings, c.warnings)
		}
	}
	r := request()
	r.HasCDI = false
	sized := "storage: {resources: {requests: {storage: 1Gi}}}"
	for spec, want := range map[string][]string{
		"{source: {blank: {}}, " + sized + "}":                                                                                    nil,
		"{source: {blank: {}}, storage: {}}":                                                                                      {template + ".spec.storage.resources.requests.storage how large"},
		"{source: {s3: {url: 's3://b/o'}}, contentType: archive, " + sized + "}":                                                  {template + ".spec.contentType an archive needs CDI", template + ".spec.source.s3 this source needs CDI"},
		"{sourceRef: {kind: DataSource, name: debian}, " + sized + "}":                                                            {template + ".spec.sourceRef a DataSource needs CDI"},
		"{pvc: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}}, dataSource: {kind: VolumeSnapshot, name: s}}}": nil,
	} {
		vm := machine(t, "{dataVolumeTemplates: [{metadata: {name: dv}, spec: "+spec+"}], "+root+"}")
		faults, _ := Machine(vm, nil, r)
		compare(t, "without CDI: "+spec, faults, want)
	}
}

func TestMachineUpdateReportsNewFaultsAlone(t *testing.T) {
	old := machine(t, "{running: true, template: {spec: {domain: {devices: {tpm: {}}}}}}")
	for _, c := range []struct {
		spec     string
		want     []string
		warnings int
	}{
		{"{running: true, template: {spec: {domain: {devices: {tpm: {}}}}}}", nil, 0},
		{"{runStrategy: Halted, template: {spec: {domain: {devices: {tpm: {}}}}}}", nil, 0},
		{"{running: false, template: {spec: {domain: {devices: {tpm: {}}}}}}", nil, 1},
		{"{running: true, template: {spec: {domain: {devices: {tpm: {}, sound: {name: a}}}}}}", []string{"spec.template.spec.domain.devices.sound sound"}, 1},
	} {
		faults, warnings := Machine(machine(t, c.spec), old, request())
		compare(t, c.spec, faults, c.want)
		if len(warnings) != c.warnings {
			t.Errorf("%s: warnings are %q, want %d", c.spec, warnings, c.warnings)
		}
	}
}

func TestInstanceUpdate(t *testing.T) {
	yes := true
	change := func(edit func(*kubevirtv1.VirtualMachineInstance)) *kubevirtv1.VirtualMachineInstance {
		vmi := instance(t, "{domain: {cpu: {cores: 2}, devices: {rng: {}}}, hostname: a}")
		vmi.Labels = map[string]string{"kubevirt.io/nodeName": "n1", "app": "web"}
		vmi.Annotations = map[string]string{contract.AnnotationHypervisor: "kvm", contract.AnnotationVMM: "of/old"}
		edit(vmi)
		return vmi
	}
	for name, c := range map[string]struct {
		edit  func(*kubevirtv1.VirtualMachineInstance)
		owner bool
		want  []string
	}{
		"nothing":       {edit: func(*kubevirtv1.VirtualMachineInstance) {}},
		"equal memory":  {edit: func(v *kubevirtv1.VirtualMachineInstance) { *v.Spec.Domain.Memory.Guest = resource.MustParse("1024Mi") }},
		"user's labels": {edit: func(v *kubevirtv1.VirtualMachineInstance) { v.Labels["app"], v.Labels["kubevirt.io/vm"] = "db", "x" }},
		"spec": {edit: func(v *kubevirtv1.VirtualMachineInstance) {
			v.Spec.Domain.CPU.Cores, v.Spec.Domain.Devices.Rng, v.Spec.Hostname = 4, nil, "b"
		}, want: []string{"spec.domain.cpu.cores delete it and create it", "spec.domain.devices.rng delete", "spec.hostname delete"}},
		"spec of a VM's": {owner: true, edit: func(v *kubevirtv1.VirtualMachineInstance) { v.Spec.Domain.Devices.Disks = []kubevirtv1.Disk{{}} },
			want: []string{"spec.domain.devices.disks change spec.template of the VirtualMachine web and restart it"}},
		"controllers' labels": {edit: func(v *kubevirtv1.VirtualMachineInstance) {
			v.Labels["kubevirt.io/nodeName"], v.Labels["kubevirt.io/created-by"] = "n2", "x"
		}, want: []string{"metadata.labels[kubevirt.io/nodeName] controllers alone", "metadata.labels[kubevirt.io/created-by] controllers alone"}},
		"annotations": {edit: func(v *kubevirtv1.VirtualMachineInstance) {
			v.Annotations[contract.AnnotationHypervisor], v.Annotations[contract.AnnotationVhostNet], v.Annotations["a"] = "x/y z", "maybe", "b"
		}, want: []string{"metadata.annotations[vmlet.io/hypervisor] kvm", "metadata.annotations[vmlet.io/vhost-net] true"}},
		"another sound annotation": {edit: func(v *kubevirtv1.VirtualMachineInstance) { v.Annotations[contract.AnnotationHypervisor] = "emulation" }},
		"controllers' labels removed": {edit: func(v *kubevirtv1.VirtualMachineInstance) { v.Labels = nil },
			want: []string{"metadata.labels[kubevirt.io/nodeName] controllers alone"}},
	} {
		old, vmi := change(func(*kubevirtv1.VirtualMachineInstance) {}), change(c.edit)
		if c.owner {
			old.OwnerReferences = []metav1.OwnerReference{{Kind: "VirtualMachine", Name: "web", Controller: &yes}}
		}
		r := request()
		faults, _ := Instance(vmi, old, r)
		compare(t, name, faults, c.want)
		r.Own = true
		faults, _ = Instance(vmi, old, r)
		compare(t, name+", by a controller", faults, nil)
	}
}

func TestReservedLabelsOfANewInstance(t *testing.T) {
	vmi := instance(t, "{}")
	vmi.Labels = map[string]string{"kubevirt.io/created-by": "x", "kubevirt.io/domain": "web", "kubevirt.io/size": "small"}
	r := request()
	faults, _ := Instance(vmi, nil, r)
	compare(t, "by a user", faults, []string{"metadata.labels[kubevirt.io/created-by] controllers alone"})
	r.Own = true
	faults, _ = Instance(vmi, nil, r)
	compare(t, "by a controller", faults, nil)
}

func TestDeletedObjectsPass(t *testing.T) {
	now := metav1.Now()
	vm, vmi := machine(t, "{template: null}"), instance(t, "{domain: {devices: {tpm: {}}}}")
	vm.DeletionTimestamp, vmi.DeletionTimestamp = &now, &now
	faults, _ := Machine(vm, nil, request())
	compare(t, "machine", faults, nil)
	faults, _ = Instance(vmi, instance(t, "{}"), request())
	compare(t, "instance", faults, nil)
}

// TestPlan: what no VMM can do is reported by the fields that it comes from, in instances and in templates.
func TestPlan(t *testing.T) {
	const disk = "volumes: [{name: a, emptyDisk: {capacity: 1Gi}}]}"
	for _, c := range []struct{ vmm, hypervisor, spec, want string }{
		{"cloud-hypervisor", "kvm", "{domain: {devices: {disks: [{name: a, cdrom: {}}]}}, " + disk, "spec.domain.devices.disks[0] or set the annotation vmlet.io/vmm: qemu"},
		{"cloud-hypervisor", "kvm", "{domain: {devices: {disks: [{name: a, disk: {bus: sata}}]}}, " + disk, "spec.domain.devices.disks[0].disk.bus or set the annotation vmlet.io/vmm: qemu"},
		{"cloud-hypervisor", "emulation", "{domain: {devices: {}}, volumes: []}", "metadata.annotations[vmlet.io/hypervisor] cloud-hypervisor"},
		{"qemu", "kvm", "{domain: {devices: {disks: [{name: a}]}}, volumes: [{name: a, persistentVolumeClaim: {claimName: c, readOnly: true}}]}", "spec.domain.devices.disks[0].disk.readonly want the bus virtio"},
		{"qemu", "kvm", "{domain: {devices: {}}}", ""},
	} {
		vmi := instance(t, c.spec)
		vmi.Annotations = map[string]string{contract.AnnotationVMM: c.vmm, contract.AnnotationHypervisor: c.hypervisor}
		faults, _ := Instance(vmi, nil, request())
		var want []string
		if c.want != "" {
			want = []string{c.want}
		}
		compare(t, c.spec, faults, want)
		vm := machine(t, "{runStrategy: Halted, template: {spec: "+c.spec+"}}")
		vm.Spec.Template.Annotations = vmi.Annotations
		for i := range want {
			want[i] = strings.Replace(strings.Replace(want[i], "spec", "spec.template.spec", 1), "metadata.", "spec.template.metadata.", 1)
		}
		faults, _ = Machine(vm, nil, request())
		compare(t, "machine: "+c.spec, faults, want)
	}
}

// TestBindingAdvice: what the refusal of a way to connect an interface advises is not refused in turn, on
// any network, and by nothing that is saved.
func TestBindingAdvice(t *testing.T) {
	for _, network := range []string{"pod: {}", "multus: {networkName: a}", "multus: {networkName: a, default: true}"} {
		with := func(binding string) string {
			return "{domain: {devices: {interfaces: [{name: a, " + binding + "}]}}, networks: [{name: a, " + network + "}]}"
		}
		advised, advice := "bridge: {}", "on a network of Multus bridge"
		if network == "pod: {}" {
			advised, advice = "masquerade: {}", "masquerade on the pod network"
		}
		for _, refused := range []string{"sriov: {}", "passtBinding: {}", "binding: {name: x}", "slirp: {}", "macvtap: {}", "passt: {}"} {
			name, _, _ := strings.Cut(refused, ":")
			faults, _ := Instance(instance(t, with(refused)), nil, request())
			compare(t, network, faults, []string{"spec.domain.devices.interfaces[0]." + name + " " + advice})
		}
		faults, _ := Instance(instance(t, with(advised)), nil, request())
		compare(t, network, faults, nil)
	}
	vm := machine(t, "{runStrategy: Hibernate, template: {spec: {domain: {devices: {interfaces: [{name: a, bridge: {}}]}}, networks: [{name: a, multus: {networkName: a, default: true}}]}}}")
	faults, _ := Machine(vm, nil, request())
	compare(t, "saved", faults, []string{"spec.template.spec.domain.devices.interfaces[0].bridge take multus.default from the network"})
	vm.Spec.Template.Spec.Networks[0].Multus.Default = false
	faults, _ = Machine(vm, nil, request())
	compare(t, "saved, as advised", faults, nil)
}

// TestPlanBesideOtherFaults: what no VMM can do is reported with what is refused, and nothing
// twice.
func TestPlanBesideOtherFaults(t *testing.T) {
	const text = "{domain: {devices: {tpm: {}, disks: [{name: a}, {name: h}]}}, volumes: [{name: a, persistentVolumeClaim: {claimName: c, readOnly: true}}, {name: h, hostDisk: {path: /h, type: Disk}}]}"
	want := []string{"spec.domain.devices.tpm no TPM", "spec.volumes[1].hostDisk files of the node", "spec.domain.devices.disks[0].disk.readonly want the bus virtio"}
	faults, _ := Instance(instance(t, text), nil, request())
	compare(t, "instance", faults, want)
	for i := range want {
		want[i] = strings.Replace(want[i], "spec", "spec.template.spec", 1)
	}
	faults, _ = Machine(machine(t, "{template: {spec: "+text+"}}"), nil, request())
	compare(t, "machine", faults, want)

	vmi := instance(t, strings.Replace(strings.Replace(text, "tpm: {}, ", "", 1), ", {name: h, hostDisk: {path: /h, type: Disk}}]", "], hostname: .", 1))
	vmi.Spec.Domain.Devices.Disks = vmi.Spec.Domain.Devices.Disks[:1]
	faults, _ = Instance(vmi, nil, request())
	compare(t, "what is at fault itself is not planned for", faults, []string{"spec.hostname "})
	vmi = instance(t, "{domain: {devices: {}}}")
	vmi.Annotations = map[string]string{contract.AnnotationVMM: "xen"}
	faults, _ = Instance(vmi, nil, request())
	compare(t, "an unknown VMM", faults, []string{"metadata.annotations[vmlet.io/vmm] supported values"})
}

func TestAnswersAreBounded(t *testing.T) {
	text := "{domain: {devices: {inputs: [" + strings.TrimSuffix(strings.Repeat("{type: tablet}, ", 1000), ", ") + "]}}}"
	if faults, _ := Instance(instance(t, text), nil, request()); len(faults) != most {
		t.Errorf("an instance with 1000 faults: %d are reported, want %d", len(faults), most)
	}
}

// FuzzValidation: no object that decodes makes admission panic.
func FuzzValidation(f *testing.F) {
	f.Add(`{"spec":{"running":true,"template":{"spec":{"domain":{"devices":{"disks":[{"name":"a","cdrom":{}}],"interfaces":[{"name":"n","ports":[{}]}]}},"volumes":[{"name":"a","ephemeral":{}}]}}}}`)
	f.Add(`{"spec":{"domain":{"cpu":{"features":[{}]},"features":{"hyperv":{"synictimer":{}}},"firmware":{"kernelBoot":{"container":{}},"bootloader":{"efi":{}}},"devices":{"watchdog":{}}},"accessCredentials":[{"sshPublicKey":{}},{}],"affinity":{"nodeAffinity":{}}}}`)
	f.Add(`{"metadata":{"labels":{"a":"b"}},"spec":{"dataVolumeTemplates":[{}],"template":{"spec":{"livenessProbe":{"httpGet":{}},"topologySpreadConstraints":[{}],"tolerations":[{}],"networks":[{"pod":{}}],"volumes":[{"downwardAPI":{"fields":[{}]}}]}}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		r := request()
		var vm kubevirtv1.VirtualMachine
		if yaml.Unmarshal([]byte(text), &vm) == nil {
			Machine(&vm, nil, r)
			Machine(&vm, new(kubevirtv1.VirtualMachine), r)
		}
		var vmi kubevirtv1.VirtualMachineInstance
		if yaml.Unmarshal([]byte(text), &vmi) == nil {
			Instance(&vmi, nil, r)
			Instance(&vmi, new(kubevirtv1.VirtualMachineInstance), r)
		}
	})
}
