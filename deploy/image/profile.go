package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// profilePatch makes the patch of a KubeVirt object by which VMs run in an image, on a VMM of it.
func profilePatch(vmm, image string) string {
	return fmt.Sprintf(`# Made by deploy/image. VMs that name no VMM run on %[1]s, in this image:
#   kubectl -n vmlet patch kubevirt kubevirt --type=merge --patch-file virtualization-profile-%[1]s.yaml
# The patch replaces a list of feature gates that the object has: add its own to this one.
spec:
  configuration:
    developerConfiguration:
      featureGates: [PluginVirtualizationStacks]
    virtualizationProfile:
      name: %[1]s
      virtualizationComponents:
        vmmProcessExecutable: %[1]s
      virtLauncher:
        virtLauncherImage: %[2]s
`, vmm, image)
}

// writeProfiles writes one for each VMM that an image has beside QEMU.
func writeProfiles(o options) error {
	if o.profiles == "" {
		return nil
	}
	if err := os.MkdirAll(o.profiles, 0o755); err != nil {
		return err
	}
	for _, vmm := range o.brought() {
		file := filepath.Join(o.profiles, "virtualization-profile-"+vmm+".yaml")
		if err := os.WriteFile(file, []byte(profilePatch(vmm, o.reference)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// brought are the VMMs of the image beside QEMU.
func (o options) brought() (names []string) {
	if o.cloudHypervisor != "" {
		names = append(names, "cloud-hypervisor")
	}
	for _, d := range o.drivers {
		names = append(names, filepath.Base(d))
	}
	return names
}
