package configuration

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

func read(t *testing.T, text string) (Configuration, []Ignored) {
	t.Helper()
	var kv kubevirtv1.KubeVirt
	if err := yaml.UnmarshalStrict([]byte(text), &kv); err != nil {
		t.Fatal(err)
	}
	return From(&kv)
}

func TestFromNothing(t *testing.T) {
	for _, kv := range []*kubevirtv1.KubeVirt{nil, {}} {
		c, faults := From(kv)
		if len(faults) > 0 {
			t.Error(faults)
		}
		c.FeatureGates = nil
		if !reflect.DeepEqual(c, Default()) {
			t.Errorf("%+v", c)
		}
	}
}

func TestFrom(t *testing.T) {
	c, faults := read(t, `
metadata: {annotations: {alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity: ""}}
spec:
  imagePullPolicy: Always
  imagePullSecrets: [{name: registry}]
  workloads: {nodePlacement: {nodeSelector: {vms: "yes"}}}
  configuration:
    cpuModel: Haswell
    cpuRequest: 250m
    defaultRuntimeClass: slow
    evictionStrategy: LiveMigrate
    vmRolloutStrategy: Stage
    additionalGuestMemoryOverheadRatio: "1.5"
    smbios: {manufacturer: ACME}
    machineType: pc-q35-7.2
    architectureConfiguration: {defaultArchitecture: arm64, arm64: {machineType: virt-9, emulatedMachines: [virt-9]}}
    network: {defaultNetworkInterface: bridge}
    virtualMachineOptions: {disableSerialConsoleLog: {}}
    supportContainerResources: [{type: container-disk, resources: {requests: {cpu: 10m}, limits: {memory: 40M, cpu: 20m}}}]
    defaultHibernateConfig:
      {hibernateStrategy: {mode: suspendToDisk, warningTimeoutSeconds: 60, storageClassName: fast}, startStrategy: boot}
    autoCPULimitNamespaceLabelSelector: {matchLabels: {limited: "yes"}}
    developerConfiguration:
      useEmulation: true
      cpuAllocationRatio: 4
      memoryOvercommit: 150
      nodeSelectors: {a: b}
      pvcTolerateLessSpaceUpToPercent: 20
      minimumReservePVCBytes: 1048576
      featureGates: [HypervStrictCheck, ConfigurableHypervisor, PluginVirtualizationStacks]
    virtualizationProfile:
      name: own
      virtualizationComponents: {hypervisorDevice: /dev/kvm, vCpuRegex: '^CPU (\d+)/KVM$', vmmProcessExecutable: qemu-system-x86, pitPidPrefix: ''}
      virtLauncher: {virtLauncherImage: example.org/launcher:1, virtLauncherCapabilities: [NET_BIND_SERVICE], virtLauncherOverhead: 220Mi}
      pluginWebhooks:
        webhookContainerImage: example.org/webhooks:1
        validatingWebhooks: [{name: a, restServicePath: /a, rules: [{operations: [CREATE], apiGroups: [kubevirt.io], apiVersions: [v1], resources: [virtualmachines]}]}]
    hypervisorConfiguration: {name: hyperv-layered}
    obsoleteCPUModels: {Haswell: true}
    permittedHostDevices:
      pciHostDevices: [{pciVendorSelector: "10DE:1EB8", resourceName: nvidia.com/T4}]
      mediatedDevices: [{mdevNameSelector: GRID T4-1Q, resourceName: nvidia.com/GRID, externalResourceProvider: true}]
      usb: [{resourceName: kubevirt.io/stick, selectors: [{vendor: 46f4, product: "0001"}]}]
`)
	if len(faults) > 0 {
		t.Error(faults)
	}
	unlike := reflect.ValueOf(Default())
	for i, v := 0, reflect.ValueOf(c); i < v.NumField(); i++ {
		name := v.Type().Field(i).Name // PermitBridge may not be off beside bridge
		if name != "PermitBridge" && reflect.DeepEqual(v.Field(i).Interface(), unlike.Field(i).Interface()) {
			t.Errorf("%s is the default's", name)
		}
	}
	if c.MachineType["amd64"] != "pc-q35-7.2" || c.MachineType["arm64"] != "virt-9" || c.ImagePullPolicy != corev1.PullAlways ||
		!c.FeatureGates["HypervStrictCheck"] || c.Hypervisor != "mshv" || len(c.Nodes.PermittedHostDevices.USB[0].Selectors) != 1 || c.CPUAllocationRatio != 4 || c.OverheadRatio != 1.5 {
		t.Errorf("%+v", c)
	}
}

func TestIgnored(t *testing.T) {
	c, faults := read(t, `
spec:
  imageTag: v1.9.0
  certificateRotateStrategy: {selfSigned: {ca: {duration: 48h}}}
  configuration:
    migrations: {parallelMigrationsPerCluster: 3}
    additionalGuestMemoryOverheadRatio: much
    liveUpdateConfiguration: {maxHotplugRatio: 2}
    supportContainerResources:
    - {type: virtiofs, resources: {}}
    - {type: container-disk, resources: {requests: {cpu: 30m}, limits: {cpu: 20m}}}
    - {type: hotplug-disk, resources: {limits: {nvidia.com/gpu: 1}}}
    virtualMachineOptions: {disableFreePageReporting: {}}
    autoCPULimitNamespaceLabelSelector: {matchExpressions: [{key: limited, operator: Sometimes}]}
    network: {defaultNetworkInterface: slirp, permitSlirpInterface: true}
    architectureConfiguration: {s390x: {machineType: s390-ccw-virtio}}
    developerConfiguration:
      {memoryOvercommit: 5, cpuAllocationRatio: -1, featureGates: [HypervStrictCheck], disabledFeatureGates: [HypervStrictCheck]}
`)
	var fields []string
	for _, f := range faults {
		fields = append(fields, f.Field)
		if f.Reason == "" {
			t.Errorf("%s without a reason", f.Field)
		}
	}
	slices.Sort(fields)
	want := []string{
		"certificateRotateStrategy",
		"configuration.additionalGuestMemoryOverheadRatio",
		"configuration.architectureConfiguration.s390x",
		"configuration.autoCPULimitNamespaceLabelSelector",
		"configuration.developerConfiguration.cpuAllocationRatio",
		"configuration.developerConfiguration.disabledFeatureGates",
		"configuration.developerConfiguration.memoryOvercommit",
		"configuration.liveUpdateConfiguration",
		"configuration.migrations",
		"configuration.network.defaultNetworkInterface",
		"configuration.network.permitSlirpInterface",
		"configuration.supportContainerResources[container-disk]", "configuration.supportContainerResources[hotplug-disk]", "configuration.supportContainerResources[virtiofs]",
		"configuration.virtualMachineOptions.disableFreePageReporting",
		"imageTag",
	}
	if !slices.Equal(fields, want) {
		t.Errorf("%q", fields)
	}
	if len(c.Support) > 0 {
		t.Errorf("resources that were not understood are taken: %v", c.Support)
	}
	if c.MemoryOvercommit != 100 || c.CPUAllocationRatio != 10 || c.OverheadRatio != 1 || c.DefaultInterface != "masquerade" || c.FeatureGates["HypervStrictCheck"] {
		t.Errorf("%+v", c)
	}
}

// TestIgnoredValues: of some settings it is the value that decides, and others have one that
// no VM could start with.
func TestIgnoredValues(t *testing.T) {
	const architectures, developer = "configuration.architectureConfiguration.", "configuration.developerConfiguration."
	for _, c := range []struct {
		name, configuration string
		want                []string
	}{
		{"what vmlet does anyway", "{vmRolloutStrategy: Stage, hypervisors: [{name: kvm}], seccompConfiguration: {virtualMachineInstanceProfile: {customProfile: {runtimeDefaultProfile: true}}}}", nil},
		{"other seccomp profile", "{seccompConfiguration: {virtualMachineInstanceProfile: {customProfile: {runtimeDefaultProfile: true, localhostProfile: a}}}}", []string{"configuration.seccompConfiguration"}},
		{"no seccomp profile", "{seccompConfiguration: {virtualMachineInstanceProfile: {}}}", nil},
		{"other hypervisor", "{hypervisors: [{name: hyperv-direct}]}", []string{"configuration.hypervisors"}},
		{"off", "{network: {permitSlirpInterface: false}, commonInstancetypesDeployment: {enabled: false}, virtTemplateDeployment: {enabled: false}}", nil},
		{"on", "{commonInstancetypesDeployment: {enabled: true}}", []string{"configuration.commonInstancetypesDeployment"}},
		{"empty", "{migrations: {}, tlsConfiguration: {ciphers: []}, supportedGuestAgentVersions: [], obsoleteCPUModels: {}}", nil},
		{"zero that means none", "{memBalloonStatsPeriod: 0}", []string{"configuration.memBalloonStatsPeriod"}},
		{"selector of all", "{ksmConfiguration: {nodeLabelSelector: {}}}", []string{"configuration.ksmConfiguration"}},
		{"gates", "{developerConfiguration: {featureGates: [A, HypervStrictCheck, B], disabledFeatureGates: [C]}}",
			[]string{developer + "featureGates: A, B: ", developer + "disabledFeatureGates: C: "}},
		{"bridge that is not permitted", "{network: {defaultNetworkInterface: bridge, permitBridgeInterfaceOnPodNetwork: false}}", []string{"configuration.network.defaultNetworkInterface"}},
		{"machine type that is not allowed", "{machineType: pc}", []string{architectures + "amd64.machineType: \"pc\""}},
		{"machine type without the default", "{architectureConfiguration: {amd64: {emulatedMachines: [pc-q35-7.2]}}}", []string{architectures + "amd64.emulatedMachines"}},
		{"machine type that is allowed", "{architectureConfiguration: {amd64: {machineType: pc-q35-7.2, emulatedMachines: [pc-q35-7.2]}}}", nil},
		{"architecture", "{architectureConfiguration: {defaultArchitecture: s390x}}", []string{architectures + "defaultArchitecture"}},
	} {
		got, faults := read(t, "spec: {configuration: "+c.configuration+"}")
		for _, want := range c.want {
			if !slices.ContainsFunc(faults, func(f Ignored) bool { return strings.HasPrefix(f.Field+": "+f.Reason, want) }) {
				t.Errorf("%s: %q is not among %v", c.name, want, faults)
			}
		}
		if len(faults) != len(c.want) {
			t.Errorf("%s: ignored are %v, want %d", c.name, faults, len(c.want))
		}
		if got.DefaultInterface != "masquerade" || got.DefaultArchitecture != "amd64" || !got.Emulates("amd64", got.MachineType["amd64"]) {
			t.Errorf("%s: VMs could not start with %s, %s and %s", c.name, got.DefaultInterface, got.DefaultArchitecture, got.MachineType["amd64"])
		}
	}
}

// TestEverySetting: each setting is read, or has a reason why it is not.
func TestEverySetting(t *testing.T) {
	left, found := reasons(), 0
	var walk func(prefix string, of reflect.Type)
	walk = func(prefix string, of reflect.Type) {
		for i := range of.NumField() {
			field := of.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			path := prefix + name
			if _, is := left[path]; is {
				delete(left, path)
				continue
			}
			inner := field.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Struct && inner.PkgPath() == reflect.TypeFor[kubevirtv1.KubeVirt]().PkgPath() {
				walk(path+".", inner)
				continue
			}
			if found++; !readSettings()[path] {
				t.Errorf("%s is neither read nor in reasons", path)
			}
		}
	}
	walk("", reflect.TypeFor[kubevirtv1.KubeVirtSpec]())
	if len(left) > 0 {
		t.Errorf("there is no %q", slices.Sorted(maps.Keys(left)))
	}
	if found != len(readSettings()) {
		t.Errorf("%d of the settings that are read are there", found)
	}
}

// readSettings are those that TestFrom sets.
func readSettings() map[string]bool {
	all := make(map[string]bool)
	for _, path := range []string{
		"imagePullPolicy", "imagePullSecrets",
		"workloads.nodePlacement.nodeSelector", "workloads.nodePlacement.affinity", "workloads.nodePlacement.tolerations",
		"configuration.cpuModel", "configuration.cpuRequest", "configuration.defaultRuntimeClass", "configuration.evictionStrategy", "configuration.vmRolloutStrategy",
		"configuration.additionalGuestMemoryOverheadRatio", "configuration.autoCPULimitNamespaceLabelSelector",
		"configuration.smbios.manufacturer", "configuration.smbios.product", "configuration.smbios.version",
		"configuration.smbios.sku", "configuration.smbios.family",
		"configuration.machineType", "configuration.emulatedMachines", "configuration.imagePullPolicy",
		"configuration.architectureConfiguration.defaultArchitecture",
		"configuration.architectureConfiguration.amd64.machineType", "configuration.architectureConfiguration.amd64.emulatedMachines",
		"configuration.architectureConfiguration.arm64.machineType", "configuration.architectureConfiguration.arm64.emulatedMachines",
		"configuration.network.defaultNetworkInterface", "configuration.network.permitBridgeInterfaceOnPodNetwork",
		"configuration.developerConfiguration.useEmulation", "configuration.developerConfiguration.cpuAllocationRatio",
		"configuration.developerConfiguration.memoryOvercommit", "configuration.developerConfiguration.nodeSelectors",
		"configuration.developerConfiguration.pvcTolerateLessSpaceUpToPercent", "configuration.developerConfiguration.minimumReservePVCBytes",
		"configuration.defaultHibernateConfig.hibernateStrategy.mode", "configuration.defaultHibernateConfig.hibernateStrategy.warningTimeoutSeconds",
		"configuration.defaultHibernateConfig.hibernateStrategy.storageClassName", "configuration.defaultHibernateConfig.startStrategy",
		"configuration.developerConfiguration.featureGates", "configuration.developerConfiguration.disabledFeatureGates",
		"configuration.hypervisorConfiguration.name", "configuration.hypervisors", "configuration.obsoleteCPUModels",
		"configuration.permittedHostDevices.pciHostDevices", "configuration.permittedHostDevices.mediatedDevices", "configuration.permittedHostDevices.usb",
		"configuration.supportContainerResources",
		"configuration.virtualizationProfile.name",
		"configuration.virtualizationProfile.virtualizationComponents.hypervisorDevice",
		"configuration.virtualizationProfile.virtualizationComponents.vCpuRegex",
		"configuration.virtualizationProfile.virtualizationComponents.vmmDaemonProcess",
		"configuration.virtualizationProfile.virtualizationComponents.vmmProcessExecutable",
		"configuration.virtualizationProfile.virtualizationComponents.pitPidPrefix",
		"configuration.virtualizationProfile.virtLauncher.virtLauncherImage",
		"configuration.virtualizationProfile.virtLauncher.virtLauncherCapabilities",
		"configuration.virtualizationProfile.virtLauncher.virtLauncherOverhead",
		"configuration.virtualizationProfile.pluginWebhooks.webhookContainerImage",
		"configuration.virtualizationProfile.pluginWebhooks.validatingWebhooks",
		"configuration.virtualizationProfile.pluginWebhooks.mutatingWebhooks",
	} {
		all[path] = true
	}
	return all
}
