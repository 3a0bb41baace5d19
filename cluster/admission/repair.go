package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// undecodable lets an object through that a mutating webhook can't decode: it comes before the
// object's definition is looked at, which refuses all such fields, by their paths.
type undecodable struct{ next admission.Handler }

func (u undecodable) Handle(ctx context.Context, request admission.Request) admission.Response {
	answer := u.next.Handle(ctx, request)
	if !answer.Allowed && answer.Result != nil && answer.Result.Code == http.StatusBadRequest {
		return admission.Allowed("")
	}
	return answer
}

// repairs are a patch for what a VirtualMachine's definition would refuse and KubeVirt, whose webhook writes
// the spec again as it is decoded, accepts: fractions as quantities (cpu: 0.5), and a template without a
// domain or its devices.
func repairs(raw []byte, vm *kubevirtv1.VirtualMachine) ([]jsonpatch.Operation, error) {
	all, err := missing(raw)
	if err != nil || !fraction.Match(raw) {
		return all, err
	}
	text, err := json.Marshal(vm)
	if err != nil {
		return nil, err
	}
	var written, decoded map[string]any
	if err := json.Unmarshal(text, &decoded); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&written); err != nil {
		return nil, err
	}
	return append(all, fractions("/spec", written["spec"], decoded["spec"])...), nil
}

// fraction is how a number begins that is not whole; it may be in a text. Most VMs have none, and are not
// decoded once more for it.
var fraction = regexp.MustCompile(`[:,\[]\s*-?\d+[.eE]`)

// missing adds to a VirtualMachine's template what a VM without devices has.
func missing(raw []byte) ([]jsonpatch.Operation, error) {
	var vm struct {
		Spec struct {
			Template struct {
				Spec *struct {
					Domain *struct {
						Devices *struct{} `json:"devices"`
					} `json:"domain"`
				} `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &vm); err != nil {
		return nil, err
	}
	path, value := "/spec/template/spec", map[string]any{}
	switch spec := vm.Spec.Template.Spec; {
	case spec == nil:
		value["domain"] = map[string]any{"devices": map[string]any{}}
	case spec.Domain == nil:
		path, value["devices"] = path+"/domain", map[string]any{}
	case spec.Domain.Devices == nil:
		path += "/domain/devices"
	default:
		return nil, nil
	}
	return []jsonpatch.Operation{jsonpatch.NewOperation("add", path, value)}, nil
}

// fractions writes numbers as the strings as which they are decoded, which a quantity has to be unless it is whole.
func fractions(at string, written, decoded any) (all []jsonpatch.Operation) {
	switch w := written.(type) {
	case map[string]any:
		d, _ := decoded.(map[string]any)
		for name, value := range w {
			all = append(all, fractions(at+"/"+pointer.Replace(name), value, d[name])...)
		}
	case []any:
		d, _ := decoded.([]any)
		for n, value := range w[:min(len(w), len(d))] {
			all = append(all, fractions(at+"/"+strconv.Itoa(n), value, d[n])...)
		}
	case json.Number:
		if text, is := decoded.(string); is && strings.ContainsAny(w.String(), ".eE") {
			all = append(all, jsonpatch.NewOperation("replace", at, text))
		}
	}
	return all
}

// pointer escapes a name in a path of a patch (RFC 6901).
var pointer = strings.NewReplacer("~", "~0", "/", "~1")
