package chapi

// The types whose unknown members are kept. Each method's local type is the same
// struct without its methods, which would call themselves.

// UnmarshalJSON keeps unknown members in Extra.
func (v *VMConfig) UnmarshalJSON(data []byte) error {
	type plain VMConfig
	return decode(data, (*plain)(v), &v.Extra)
}

// MarshalJSON writes Extra, too.
func (v VMConfig) MarshalJSON() ([]byte, error) {
	type plain VMConfig
	return encode(plain(v), v.Extra)
}

// UnmarshalJSON keeps unknown members in Extra.
func (c *CPUs) UnmarshalJSON(data []byte) error {
	type plain CPUs
	return decode(data, (*plain)(c), &c.Extra)
}

// MarshalJSON writes Extra, too.
func (c CPUs) MarshalJSON() ([]byte, error) {
	type plain CPUs
	return encode(plain(c), c.Extra)
}

// UnmarshalJSON keeps unknown members in Extra.
func (c *CPUTopology) UnmarshalJSON(data []byte) error {
	type plain CPUTopology
	return decode(data, (*plain)(c), &c.Extra)
}

// MarshalJSON writes Extra, too.
func (c CPUTopology) MarshalJSON() ([]byte, error) {
	type plain CPUTopology
	return encode(plain(c), c.Extra)
}

// UnmarshalJSON keeps unknown members in Extra.
func (c *CPUAffinity) UnmarshalJSON(data []byte) error {
	type plain CPUAffinity
	return decode(data, (*plain)(c), &c.Extra)
}

// MarshalJSON writes Extra, too.
func (c CPUAffinity) MarshalJSON() ([]byte, error) {
	type plain CPUAffinity
	return encode(plain(c), c.Extra)
}

// UnmarshalJSON keeps unknown members in Extra.
func (c *CPUFeatures) UnmarshalJSON(data []byte) error {
	type plain CPUFeatures
	return decode(data, (*plain)(c), &c.Extra)
}

// MarshalJSON writes Extra, too.
func (c CPUFeatures) MarshalJSON() ([]byte, error) {
	type plain CPUFeatures
	return encode(plain(c), c.Extra)
}

// UnmarshalJSON keeps unknown members in Extra.
func (m *Memory) UnmarshalJSON(data []byte) error {
	type plain Memory
	return decode(data, (*plain)(m), &m.Extra)
}

// MarshalJSON writes Extra, too.
func (m Memory) MarshalJSON() ([]byte, error) {
	type plain Memory
	return encode(plain(m), m.Extra)
}

// UnmarshalJSON keeps unknown members in Extra.
func (m *MemoryZone) UnmarshalJSON(data []byte) error {
	type plain MemoryZone
	return decode(data, (*plain)(m), &m.Extra)
}

// MarshalJSON writes Extra, too.
func (m MemoryZone) MarshalJSON() ([]byte, error) {
	type plain MemoryZone
	return encode(plain(m), m.Extra)
}

// UnmarshalJSON keeps unknown members in Extra.
func (p *Payload) UnmarshalJSON(data []byte) error {
	type plain Payload
	return decode(data, (*plain)(p), &p.Extra)
}

// MarshalJSON writes Extra, too.
func (p Payload) MarshalJSON() ([]byte, error) {
	type plain Payload
	return encode(plain(p), p.Extra)
}

// UnmarshalJSON keeps unknown members in Extra.
func (n *NUMA) UnmarshalJSON(data []byte) error {
	type plain NUMA
	return decode(data, (*plain)(n), &n.Extra)
}

// MarshalJSON writes Extra, too.
func (n NUMA) MarshalJSON() ([]byte, error) {
	type plain NUMA
	return encode(plain(n), n.Extra)
}

// UnmarshalJSON keeps unknown members in Extra.
func (n *NUMADistance) UnmarshalJSON(data []byte) error {
	type plain NUMADistance
	return decode(data, (*plain)(n), &n.Extra)
}

// MarshalJSON writes Extra, too.
func (n NUMADistance) MarshalJSON() ([]byte, error) {
	type plain NUMADistance
	return encode(plain(n), n.Extra)
}

// UnmarshalJSON keeps unknown members in Extra.
func (p *Platform) UnmarshalJSON(data []byte) error {
	type plain Platform
	return decode(data, (*plain)(p), &p.Extra)
}

// MarshalJSON writes Extra, too.
func (p Platform) MarshalJSON() ([]byte, error) {
	type plain Platform
	return encode(plain(p), p.Extra)
}

// UnmarshalJSON keeps unknown members in Extra.
func (l *LandlockRule) UnmarshalJSON(data []byte) error {
	type plain LandlockRule
	return decode(data, (*plain)(l), &l.Extra)
}

// MarshalJSON writes Extra, too.
func (l LandlockRule) MarshalJSON() ([]byte, error) {
	type plain LandlockRule
	return encode(plain(l), l.Extra)
}

// UnmarshalJSON keeps unknown members in Extra.
func (d *Disk) UnmarshalJSON(data []byte) error {
	type plain Disk
	return decode(data, (*plain)(d), &d.Extra)
}

// MarshalJSON writes Extra, too.
func (d Disk) MarshalJSON() ([]byte, error) {
	type plain Disk
	return encode(plain(d), d.Extra)
}

// UnmarshalJSON keeps unknown members in Extra.
func (n *Net) UnmarshalJSON(data []byte) error {
	type plain Net
	return decode(data, (*plain)(n), &n.Extra)
}

// MarshalJSON writes Extra, too.
func (n Net) MarshalJSON() ([]byte, error) {
	type plain Net
	return encode(plain(n), n.Extra)
}

// UnmarshalJSON keeps unknown members in Extra.
func (r *RNG) UnmarshalJSON(data []byte) error {
	type plain RNG
	return decode(data, (*plain)(r), &r.Extra)
}

// MarshalJSON writes Extra, too.
func (r RNG) MarshalJSON() ([]byte, error) {
	type plain RNG
	return encode(plain(r), r.Extra)
}

// UnmarshalJSON keeps unknown members in Extra.
func (b *Balloon) UnmarshalJSON(data []byte) error {
	type plain Balloon
	return decode(data, (*plain)(b), &b.Extra)
}

// MarshalJSON writes Extra, too.
func (b Balloon) MarshalJSON() ([]byte, error) {
	type plain Balloon
	return encode(plain(b), b.Extra)
}

// UnmarshalJSON keeps unknown members in Extra.
func (c *Console) UnmarshalJSON(data []byte) error {
	type plain Console
	return decode(data, (*plain)(c), &c.Extra)
}

// MarshalJSON writes Extra, too.
func (c Console) MarshalJSON() ([]byte, error) {
	type plain Console
	return encode(plain(c), c.Extra)
}

// UnmarshalJSON keeps unknown members in Extra.
func (d *Device) UnmarshalJSON(data []byte) error {
	type plain Device
	return decode(data, (*plain)(d), &d.Extra)
}

// MarshalJSON writes Extra, too.
func (d Device) MarshalJSON() ([]byte, error) {
	type plain Device
	return encode(plain(d), d.Extra)
}

// UnmarshalJSON keeps unknown members in Extra.
func (v *Vsock) UnmarshalJSON(data []byte) error {
	type plain Vsock
	return decode(data, (*plain)(v), &v.Extra)
}

// MarshalJSON writes Extra, too.
func (v Vsock) MarshalJSON() ([]byte, error) {
	type plain Vsock
	return encode(plain(v), v.Extra)
}

// UnmarshalJSON keeps unknown members in Extra.
func (t *TPM) UnmarshalJSON(data []byte) error {
	type plain TPM
	return decode(data, (*plain)(t), &t.Extra)
}

// MarshalJSON writes Extra, too.
func (t TPM) MarshalJSON() ([]byte, error) {
	type plain TPM
	return encode(plain(t), t.Extra)
}

// UnmarshalJSON keeps unknown members in Extra.
func (v *VMM) UnmarshalJSON(data []byte) error {
	type plain VMM
	return decode(data, (*plain)(v), &v.Extra)
}

// MarshalJSON writes Extra, too.
func (v VMM) MarshalJSON() ([]byte, error) {
	type plain VMM
	return encode(plain(v), v.Extra)
}

// UnmarshalJSON keeps unknown members in Extra.
func (i *Info) UnmarshalJSON(data []byte) error {
	type plain Info
	return decode(data, (*plain)(i), &i.Extra)
}

// MarshalJSON writes Extra, too.
func (i Info) MarshalJSON() ([]byte, error) {
	type plain Info
	return encode(plain(i), i.Extra)
}

// UnmarshalJSON keeps unknown members in Extra.
func (d *DeviceNode) UnmarshalJSON(data []byte) error {
	type plain DeviceNode
	return decode(data, (*plain)(d), &d.Extra)
}

// MarshalJSON writes Extra, too.
func (d DeviceNode) MarshalJSON() ([]byte, error) {
	type plain DeviceNode
	return encode(plain(d), d.Extra)
}

// UnmarshalJSON keeps unknown members in Extra.
func (p *PCIDevice) UnmarshalJSON(data []byte) error {
	type plain PCIDevice
	return decode(data, (*plain)(p), &p.Extra)
}

// MarshalJSON writes Extra, too.
func (p PCIDevice) MarshalJSON() ([]byte, error) {
	type plain PCIDevice
	return encode(plain(p), p.Extra)
}
