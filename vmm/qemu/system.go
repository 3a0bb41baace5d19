package qemu

import specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"

// system is what the guest reads in the tables of SMBIOS: of the system (type 1) and of
// its chassis (type 3). Its UUID is the option -uuid.
func (b *builder) system() {
	s := b.spec.GetSystem()
	system := pairs("manufacturer", s.GetManufacturer(), "product", s.GetProduct(), "version", s.GetVersion(),
		"serial", s.GetSerial(), "sku", s.GetSku(), "family", s.GetFamily())
	chassis := pairs("asset", s.GetAssetTag())
	if s != nil && b.onMicroVM() {
		b.faults.Add("system", "the machine type microvm has no SMBIOS to tell it by: leave it out, or use q35")
		return
	}
	if len(system) > 0 {
		b.arg("-smbios", "type=1,"+keyValues("", system...))
	}
	if len(chassis) > 0 {
		b.arg("-smbios", "type=3,"+keyValues("", chassis...))
	}
}

// pairs leaves out keys whose value is empty.
func pairs(all ...string) (set []string) {
	for i := 0; i+1 < len(all); i += 2 {
		if all[i+1] != "" {
			set = append(set, all[i], all[i+1])
		}
	}
	return set
}

// isPC tells whether the machine is a PC with all that belongs to one.
func (b *builder) isPC() bool { return b.family == familyQ35 || b.family == familyPC }

// lacksACPI tells whether ACPI is turned off.
func lacksACPI(f *specv1.Features) bool { return f != nil && f.Acpi != nil && !f.GetAcpi() }

// featureProperties are those of the machine that features turn on and off.
func (b *builder) featureProperties() (machine []string) {
	f := b.spec.GetFeatures()
	if lacksACPI(f) {
		machine = append(machine, "acpi", "off")
	}
	switch {
	case f == nil || f.Smm == nil:
	case b.isPC():
		machine = append(machine, "smm", onOff(f.GetSmm()))
	case f.GetSmm():
		b.faults.Add("features.smm", "the machine type %s has no system management mode: leave it out", b.machine.Name)
	}
	return machine
}
