package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// Target says which cluster, namespace and user are meant, as kubectl's flags do.
type Target struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides *clientcmd.ConfigOverrides
}

func newTarget() *Target {
	return &Target{rules: clientcmd.NewDefaultClientConfigLoadingRules(), overrides: &clientcmd.ConfigOverrides{}}
}

func (t *Target) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&t.rules.ExplicitPath, "kubeconfig", "", "path of the kubeconfig file")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ContextOverrideFlags.Namespace.ShortName = "n"
	names.ClusterOverrideFlags.APIServer.ShortName = "s"
	clientcmd.BindOverrideFlags(t.overrides, flags, names)
}

// Cluster is what commands read from, and change.
type Cluster struct {
	Client client.WithWatch
	// Start asks vmlet-api to start a VM.
	Start func(ctx context.Context, namespace, name string) error
	// Renew asks vmlet-api to renew a VM's VMM.
	Renew func(ctx context.Context, namespace, name string) (Renewed, error)
	// Namespace is the one that flags or kubeconfig name, or "default".
	Namespace string
}

// Connect reads the kubeconfig. The API server is not asked for anything yet.
func Connect(t *Target) (*Cluster, error) {
	config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(t.rules, t.overrides)
	namespace, _, err := config.Namespace()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	api, err := config.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(api, client.Options{Scheme: scheme, Mapper: mapper()})
	if err != nil {
		return nil, err
	}
	asked, err := subresources(api, scheme)
	return &Cluster{Client: c, Start: starter(asked), Renew: renewer(asked), Namespace: namespace}, err
}

// subresources is vmlet-api.
func subresources(config *rest.Config, scheme *runtime.Scheme) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/apis", &schema.GroupVersion{Group: "subresources." + kubevirtv1.Group, Version: kubevirtv1.Version}
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(config)
}

// starter returns what asks for subresource start of a VM.
func starter(api rest.Interface) func(ctx context.Context, namespace, name string) error {
	return func(ctx context.Context, namespace, name string) error {
		return api.Put().Namespace(namespace).Resource("virtualmachines").Name(name).SubResource("start").Body([]byte("{}")).Do(ctx).Error()
	}
}

// Scheme has the kinds that commands read and write.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(corev1.AddToScheme(scheme), policyv1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme), kubevirtv1.AddToScheme(scheme))
}

// mapper knows the paths of those kinds, so that no command begins with discovery.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Pod", "PersistentVolumeClaim", "Event"} {
		m.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	m.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	m.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	for _, kind := range []string{"VirtualMachine", "VirtualMachineInstance"} {
		m.Add(schema.GroupVersionKind{Group: kubevirtv1.Group, Version: kubevirtv1.Version, Kind: kind}, meta.RESTScopeNamespace)
	}
	return m
}
