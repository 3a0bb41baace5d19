package fault

import (
	"errors"
	"strings"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/spec"
)

// Parts returns what an error says in parts, without what stands in front of them, such as the VM's name. None: it
// is one sentence, or more follows.
func Parts(err error) (all []contract.Fault) {
	var fields spec.FieldErrors
	var fromShim *shim.Error
	switch {
	case errors.As(err, &fields) && strings.HasSuffix(err.Error(), fields.Error()):
		for _, f := range fields {
			all = append(all, f.Fault())
		}
	case errors.As(err, &fromShim) && fromShim.Field != "" && strings.HasSuffix(err.Error(), fromShim.Error()):
		all = []contract.Fault{{Field: fromShim.Field, Text: fromShim.Message}}
	}
	return all
}
