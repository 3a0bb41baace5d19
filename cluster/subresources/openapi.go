package subresources

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// openAPI describes the actions of all versions.
func openAPI() *spec.Swagger {
	s := &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger: "2.0", Info: &spec.Info{InfoProps: spec.InfoProps{Title: Group, Version: versions()[0]}},
		Paths: &spec.Paths{Paths: make(map[string]spec.PathItem)},
	}}
	for _, version := range versions() {
		for _, a := range actions() {
			for _, path := range a.paths(version) {
				s.Paths.Paths[path.text] = path.item(a, version)
			}
		}
	}
	return s
}

// of is the part of a document that is about one version.
func of(version string, s *spec.Swagger) *spec.Swagger {
	part := *s
	part.Paths = &spec.Paths{Paths: make(map[string]spec.PathItem)}
	for path, item := range s.Paths.Paths {
		if strings.HasPrefix(path, "/apis/"+Group+"/"+version+"/") {
			part.Paths.Paths[path] = item
		}
	}
	return &part
}

// path is one with variables in braces.
type path struct {
	text      string
	variables []string
	// id tells the operation from those of the action's other paths.
	id string
}

func (a action) paths(version string) []path {
	root := "/apis/" + Group + "/" + version + "/namespaces/{namespace}/"
	named := path{root + a.resource + "/{name}/" + a.subresource, []string{"namespace", "name"}, ""}
	switch {
	case a.resource == "":
		return []path{{root + a.subresource, []string{"namespace"}, ""}}
	case a.subresource == portForward:
		port := path{named.text + "/{port}", append(named.variables, "port"), ""}
		return []path{port, {port.text + "/{protocol}", append(port.variables[:3:3], "protocol"), "Protocol"}}
	}
	return []path{named}
}

func (p path) item(a action, version string) spec.PathItem {
	o := &spec.Operation{OperationProps: spec.OperationProps{
		ID:          version + "_" + strings.NewReplacer("/", "_", "-", "_").Replace(a.resource+"_"+a.subresource) + p.id,
		Description: "The action " + a.subresource + " of a " + kindOf(a) + ".",
		Produces:    []string{"application/json"}, Schemes: []string{"https"}, Tags: []string{Group + "_" + version},
	}}
	for _, v := range p.variables {
		o.Parameters = append(o.Parameters, spec.Parameter{
			ParamProps: spec.ParamProps{Name: v, In: "path", Required: true}, SimpleSchema: spec.SimpleSchema{Type: "string"},
		})
	}
	codes := map[int]spec.Response{http.StatusUnauthorized: described("Unauthorized")}
	code := http.StatusOK
	if a.resource == machines && a.method == http.MethodPut {
		code = http.StatusAccepted
	}
	codes[code] = described(http.StatusText(code))
	o.Responses = &spec.Responses{ResponsesProps: spec.ResponsesProps{StatusCodeResponses: codes}}
	if a.method == http.MethodPut {
		return spec.PathItem{PathItemProps: spec.PathItemProps{Put: o}}
	}
	return spec.PathItem{PathItemProps: spec.PathItemProps{Get: o}}
}

func described(text string) spec.Response {
	return spec.Response{ResponseProps: spec.ResponseProps{Description: text}}
}

func unknownPath(r *http.Request) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: r.URL.Path + " does not exist",
	}}
}
