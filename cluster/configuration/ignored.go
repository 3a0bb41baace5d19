package configuration

import (
	"reflect"
	"slices"
	"strings"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// Ignored is a setting that has no effect, and why.
type Ignored struct {
	// Field is its path below spec.
	Field  string
	Reason string
}

func (i Ignored) String() string { return "spec." + i.Field + ": " + i.Reason }

const (
	noOperator = "vmlet has no operator that installs programs: change what deploy/ has"
	notYet     = "not supported yet"
	otherwise  = "vmlet has no such part"
)

// reasons has each setting without effect, by its path below spec. All others are read by
// From.
func reasons() map[string]string {
	return map[string]string{
		"imageTag": noOperator, "imageRegistry": noOperator, "monitorNamespace": noOperator,
		"serviceMonitorNamespace": noOperator, "monitorAccount": noOperator,
		"productVersion": noOperator, "productName": noOperator, "productComponent": noOperator,
		"infra": noOperator, "customizeComponents": noOperator, "uninstallStrategy": noOperator,
		"workloadUpdateStrategy":    "VMs stay with their release until they restart",
		"certificateRotateStrategy": "vmlet renews its certificates by itself",
		"synchronizationPort":       notYet,
		"workloads.replicas":        noOperator,

		"configuration.migrations":                                              "live migration is not supported yet",
		"configuration.ovmfPath":                                                "the firmware is the launcher image's",
		"configuration.selinuxLauncherType":                                     "VMs' pods have their runtime's SELinux type",
		"configuration.supportedGuestAgentVersions":                             "a guest agent is judged by its commands, which it says itself",
		"configuration.memBalloonStatsPeriod":                                   notYet,
		"configuration.mediatedDevicesConfiguration":                            notYet,
		"configuration.minCPUModel":                                             notYet,
		"configuration.virtualMachineInstancesPerNode":                          "the kubelet's maxPods is the bound",
		"configuration.apiConfiguration":                                        noOperator,
		"configuration.webhookConfiguration":                                    noOperator,
		"configuration.controllerConfiguration":                                 noOperator,
		"configuration.handlerConfiguration":                                    noOperator,
		"configuration.tlsConfiguration":                                        "vmlet's programs speak TLS 1.3 with each other",
		"configuration.seccompConfiguration":                                    "VMs' pods have the profile RuntimeDefault",
		"configuration.vmStateStorageClass":                                     notYet,
		"configuration.virtualMachineOptions.disableFreePageReporting":          "QEMU's balloons report free pages, for all VMs",
		"configuration.ksmConfiguration":                                        "guests' memory is shared, which KSM does not merge",
		"configuration.liveUpdateConfiguration":                                 "a VM that is to grow while it runs names cpu.maxSockets itself",
		"configuration.commonInstancetypesDeployment":                           "vmlet installs none by itself: kubectl apply --server-side -k deploy/common-instancetypes",
		"configuration.defaultHibernateConfig.HibernateStrategy":                "it is written hibernateStrategy",
		"configuration.defaultHibernateConfig.StartStrategy":                    "it is written startStrategy",
		"configuration.defaultHibernateConfig.hibernateStrategy.timeoutSeconds": "it is written warningTimeoutSeconds",
		"configuration.virtTemplateDeployment":                                  otherwise,
		"configuration.instancetype":                                            "a VM names its instancetype, and keeps it as it was (reference)",
		"configuration.changedBlockTrackingLabelSelectors":                      notYet,
		"configuration.persistentReservationConfiguration":                      notYet,
		"configuration.confidentialCompute":                                     notYet,
		"configuration.roleAggregationStrategy":                                 noOperator,

		"configuration.developerConfiguration.minimumClusterTSCFrequency": notYet,
		"configuration.developerConfiguration.diskVerification":           "images are looked at by vmlet itself, within bounds of its own",
		"configuration.developerConfiguration.logVerbosity":               "vmlet's programs have a flag --log-level",
		"configuration.developerConfiguration.clusterProfiler":            "vmlet's programs can be profiled in any case, at the address of their flag --debug-address",

		"configuration.network.permitSlirpInterface": "slirp is not supported",
		"configuration.network.binding":              "network bindings by plug-ins are not supported",

		"configuration.architectureConfiguration.amd64.ovmfPath": "the firmware is the launcher image's",
		"configuration.architectureConfiguration.arm64.ovmfPath": "the firmware is the launcher image's",
		"configuration.architectureConfiguration.ppc64le":        "ppc64le is not supported",
		"configuration.architectureConfiguration.s390x":          "s390x is not supported",
	}
}

// ignored are the settings of a spec that have no effect, sorted by their paths.
func ignored(s *kubevirtv1.KubeVirtSpec) []Ignored {
	var all []Ignored
	reasons, agreed := reasons(), agreed(&s.Configuration)
	var walk func(prefix string, v reflect.Value)
	walk = func(prefix string, v reflect.Value) {
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			path, value := prefix+name, v.Field(i)
			if asksNothing(value) || agreed[path] {
				continue
			}
			if reason, is := reasons[path]; is {
				all = append(all, Ignored{path, reason})
				continue
			}
			if value.Kind() == reflect.Pointer {
				value = value.Elem()
			}
			if value.Kind() == reflect.Struct {
				walk(path+".", value)
			}
		}
	}
	walk("", reflect.ValueOf(s).Elem())
	slices.SortFunc(all, func(a, b Ignored) int { return strings.Compare(a.Field, b.Field) })
	return all
}

// agreed are settings by whose value vmlet does what it does anyway.
func agreed(c *kubevirtv1.KubeVirtConfiguration) map[string]bool {
	return map[string]bool{"configuration.seccompConfiguration": isRuntimeDefault(c.SeccompConfiguration)}
}

func isRuntimeDefault(c *kubevirtv1.SeccompConfiguration) bool {
	if c == nil || c.VirtualMachineInstanceProfile == nil {
		return true
	}
	custom := c.VirtualMachineInstanceProfile.CustomProfile
	return custom != nil && custom.RuntimeDefaultProfile && custom.LocalhostProfile == nil
}

// asksNothing says whether a setting is left out, or empty, or switched off. A struct without
// fields is a switch that is on, and an empty selector selects all.
func asksNothing(v reflect.Value) bool {
	if v.IsZero() {
		return true
	}
	switch v.Kind() {
	case reflect.Pointer:
		if e := v.Elem(); e.Kind() == reflect.Bool || e.Kind() == reflect.Struct {
			return asksNothing(e) && (e.Kind() == reflect.Bool || isOurs(e.Type()) && e.NumField() > 0)
		}
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	case reflect.Struct:
		if !isOurs(v.Type()) {
			return false
		}
		for i := range v.NumField() {
			if !asksNothing(v.Field(i)) {
				return false
			}
		}
		return true
	}
	return false
}

func isOurs(t reflect.Type) bool {
	return t.PkgPath() == reflect.TypeFor[kubevirtv1.KubeVirt]().PkgPath()
}
