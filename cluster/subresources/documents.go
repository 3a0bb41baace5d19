package subresources

import (
	"net/http"
	"runtime"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/openapiconv"
)

// documents serves what the API says of itself.
func (s *Server) documents() (http.Handler, error) {
	mux := http.NewServeMux()
	document := func(path string, v any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, v) })
	}
	paths := []string{"/apis", "/apis/" + Group, "/healthz", "/openapi/v2", "/openapi/v3"}
	document("/apis", metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{group()}})
	document("/apis/"+Group, group())
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		mux.HandleFunc("GET "+path, healthy)
	}
	swagger := openAPI()
	v3 := handler3.NewOpenAPIService()
	for _, version := range versions() {
		root := "/apis/" + Group + "/" + version
		document(root, resources(version))
		document(root+"/version", s.version())
		mux.HandleFunc("GET "+root+"/healthz", healthy)
		mux.HandleFunc("GET "+root+"/guestfs", func(w http.ResponseWriter, _ *http.Request) {
			writeError(w, notImplemented("an image of libguestfs' tools", "name one: virtctl guestfs --image"))
		})
		v3.UpdateGroupVersion(strings.TrimPrefix(root, "/"), openapiconv.ConvertV2ToV3(of(version, swagger)))
		paths = append(paths, root)
	}
	handler.NewOpenAPIService(swagger).RegisterOpenAPIVersionedService("/openapi/v2", pathHandler{mux})
	if err := v3.RegisterOpenAPIV3VersionedService("/openapi/v3", pathHandler{mux}); err != nil {
		return nil, err
	}
	document("/{$}", metav1.RootPaths{Paths: paths})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { writeError(w, unknownPath(r)) })
	return mux, nil
}

func healthy(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }

// pathHandler is a mux as kube-openapi has it.
type pathHandler struct{ *http.ServeMux }

func (p pathHandler) HandlePrefix(path string, h http.Handler) {
	p.Handle(strings.TrimSuffix(path, "/")+"/", h)
}

func group() metav1.APIGroup {
	g := metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: Group}
	for _, v := range versions() {
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: Group + "/" + v, Version: v})
	}
	g.PreferredVersion = g.Versions[0]
	return g
}

// resources are a version's. Clients that delete or list all that there is leave subresources
// out, by the slash in the name, and the other by its verbs.
func resources(version string) metav1.APIResourceList {
	all := metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: Group + "/" + version,
	}
	for _, a := range actions() {
		name := a.resource + "/" + a.subresource
		if a.resource == "" {
			name = a.subresource
		}
		all.APIResources = append(all.APIResources, metav1.APIResource{Name: name, Namespaced: true, Kind: kindOf(a), Verbs: metav1.Verbs{a.verb()}})
	}
	return all
}

func kindOf(a action) string {
	if a.resource == instances {
		return "VirtualMachineInstance"
	}
	return "VirtualMachine"
}

// version is in the shape that virtctl compares with its own.
func (s *Server) version() version.Info {
	major, rest, _ := strings.Cut(strings.TrimPrefix(s.o.KubeVirt, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return version.Info{
		Major: major, Minor: minor, GitVersion: s.o.KubeVirt, GitTreeState: "clean",
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}
