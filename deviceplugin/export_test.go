package deviceplugin

// For tests from outside.
var Sweep = sweep

// ServerOf is the server of a resource.
func ServerOf(m *Manager, resource string) *Server {
	for _, r := range m.runners {
		if r.kind.Resource() == resource {
			return r.server
		}
	}
	return nil
}
