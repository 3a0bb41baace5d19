// Package installation keeps what the cluster half consists of besides its programs: the webhook
// configurations, which come and go with vmlet-controller, the APIServices, by which the API server
// finds vmlet-api, what the KubeVirt object says to nodes, and that object's status, by which tools
// wait for an installation. It refuses to work where kubevirt.io belongs to
// another controller. Start reading at Reconcile.
package installation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/settings"
	"github.com/vmlet/vmlet/contract"
)

// rootsInterval is how often the CAs and the webhooks' paths are read: new ones are known a day or
// more before they are used.
const rootsInterval = 12 * time.Hour

// Names are what vmlet's parts are called in its namespace. Each has a ServiceAccount of its own
// name.
type Names struct {
	// Agent is a DaemonSet, Controller a Deployment, API a Deployment and its Service.
	Agent, Controller, API string
}

// StandardNames are those of deploy/.
func StandardNames() Names {
	return Names{Agent: contract.AccountAgent, Controller: contract.CommonNameController, API: contract.CommonNameAPI}
}

// Installation reconciles what vmlet has once in a cluster. It works where its manager leads.
type Installation struct {
	// Client reads from a cache that has vmlet's namespace, and the Deployments and DaemonSets
	// in it.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Parts is a cache of PluginParts.
	Parts     cache.Cache
	Namespace string
	Names     Names
	// Configuration is the namespace of the KubeVirt object that counts.
	Configuration string
	// Roots returns the certificates that vmlet-api's is signed by, in PEM.
	Roots func(context.Context) ([]byte, error)
	// Paths returns what makes the paths at which vmlet-api's webhooks are called.
	Paths func(context.Context) (func(webhook string) string, error)
	// Serve returns a certificate and its key, in PEM, for a server of a DNS name, which Roots sign.
	Serve func(ctx context.Context, name string) (certificate, key []byte, err error)
	// Version is vmlet's.
	Version string
	// End ends the program: kubevirt.io has come to belong to another controller.
	End func(cause error)
	Log *slog.Logger
}

// Setup adds it to a manager.
func (i *Installation) Setup(m manager.Manager) error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	named := func(names ...string) builder.WatchesOption {
		return builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool { return slices.Contains(names, o.GetName()) }))
	}
	b := builder.ControllerManagedBy(m).Named("installation").
		Watches(&corev1.Namespace{}, one, named(i.Namespace)).
		Watches(&appsv1.Deployment{}, one).
		Watches(&appsv1.DaemonSet{}, one).
		Watches(&corev1.Node{}, one, builder.WithPredicates(surveyed())).
		Watches(&admissionv1.MutatingWebhookConfiguration{}, one, named(ConfigurationName)).
		Watches(&admissionv1.ValidatingWebhookConfiguration{}, one, named(ConfigurationName)).
		Watches(Definition(), one, named(kinds()...)).
		WatchesMetadata(APIService(), one, named(apiServiceNames()...)).
		Watches(&kubevirtv1.KubeVirt{}, one)
	for _, part := range i.parts(one) {
		b.WatchesRawSource(part)
	}
	return b.Complete(i)
}

// Reconcile deletes the webhook configurations and the APIServices where vmlet is being uninstalled or kubevirt.io
// belongs to another controller, and else makes them what they should be; then it writes the
// status of the KubeVirt object. It ends the program where vmlet is installed twice.
func (i *Installation) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	namespace, err := i.installed(ctx, i.Client)
	if err != nil {
		return reconcile.Result{}, err
	}
	if namespace == nil {
		i.Log.Info("vmlet is being uninstalled")
		return reconcile.Result{}, i.withdraw(ctx)
	}
	why, err := Foreign(ctx, i.Live, i.Namespace, i.Names.API)
	if err != nil {
		return reconcile.Result{}, err
	}
	if why != "" {
		err := i.withdraw(ctx)
		i.End(errors.New(why))
		return reconcile.Result{}, err
	}
	if why, err = i.other(ctx); err != nil {
		return reconcile.Result{}, err
	}
	if why != "" {
		i.End(errors.New(why))
		return reconcile.Result{}, nil
	}
	// Whatever fails, the status says which settings have a fault.
	return reconcile.Result{RequeueAfter: rootsInterval}, errors.Join(i.configure(ctx, namespace), i.writeStatus(ctx))
}

// configure makes what follows from the KubeVirt object, and what is always there.
func (i *Installation) configure(ctx context.Context, namespace *corev1.Namespace) error {
	var all kubevirtv1.KubeVirtList
	if err := i.Client.List(ctx, &all); err != nil {
		return err
	}
	c, _ := configuration.From(settings.Chosen(all.Items, i.Configuration))
	taken, fault := i.servePlugin(ctx, namespace, c)
	if fault != nil { // vmlet's own webhooks do not wait for a plugin
		fault = fmt.Errorf("webhooks of the virtualisation stack: %w", fault)
	}
	err := i.applyWebhooks(ctx, namespace, taken)
	if err == nil && c.Stack.Webhooks == nil { // vmlet's own are called for all requests by now
		err = i.removePlugin(ctx)
	}
	return errors.Join(fault, err, i.announce(ctx, namespace), i.tellNodes(ctx, c), i.askStack(ctx, c))
}

// other says that vmlet is installed in another namespace as well, by whose the webhook
// configuration is; empty: it is not. Two would take turns at writing it, each with its own CA.
func (i *Installation) other(ctx context.Context) (string, error) {
	hooks := &admissionv1.ValidatingWebhookConfiguration{}
	if err := i.Live.Get(ctx, client.ObjectKey{Name: ConfigurationName}, hooks); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	for _, owner := range hooks.OwnerReferences {
		if owner.Name == i.Namespace {
			continue
		}
		namespace := &corev1.Namespace{}
		err := i.Live.Get(ctx, client.ObjectKey{Name: owner.Name}, namespace)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return "", err
		case err == nil && namespace.UID == owner.UID && namespace.DeletionTimestamp == nil:
			return fmt.Sprintf("vmlet is installed in the namespace %s already, which owns the webhook configuration %s: delete one of the two installations",
				owner.Name, ConfigurationName), nil
		}
	}
	return "", nil
}

// Leave deletes the webhook configurations and the APIServices if vmlet is being uninstalled. It is for a program's
// end: anyone who deletes the Deployment ends its pods at once, maybe before they have seen that.
func (i *Installation) Leave(ctx context.Context) error {
	namespace, err := i.installed(ctx, i.Live)
	if err != nil || namespace != nil {
		return err
	}
	return i.withdraw(ctx)
}

// withdraw sees to it that no request waits for a vmlet-api that is gone.
func (i *Installation) withdraw(ctx context.Context) error {
	return errors.Join(i.removePlugin(ctx), i.removeStack(ctx), i.deleteWebhooks(ctx), i.deleteAPIServices(ctx))
}

// installed returns vmlet's namespace; nil: it or vmlet-controller's Deployment is being
// deleted, or gone.
func (i *Installation) installed(ctx context.Context, from client.Reader) (*corev1.Namespace, error) {
	namespace, deployment := &corev1.Namespace{}, &appsv1.Deployment{}
	for key, o := range map[client.ObjectKey]client.Object{
		{Name: i.Namespace}: namespace,
		{Namespace: i.Namespace, Name: i.Names.Controller}: deployment,
	} {
		err := from.Get(ctx, key, o)
		if apierrors.IsNotFound(err) || err == nil && o.GetDeletionTimestamp() != nil {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return namespace, nil
}

// deleteWebhooks deletes both configurations.
func (i *Installation) deleteWebhooks(ctx context.Context) error {
	for _, o := range []client.Object{&admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}} {
		o.SetName(ConfigurationName)
		switch err := i.Client.Delete(ctx, o); {
		case err == nil:
			i.Log.Info("webhook configuration deleted", "name", ConfigurationName)
		case !apierrors.IsNotFound(err):
			return err
		}
	}
	return nil
}

// applyWebhooks makes the webhook configurations, and undoes what others have changed in them.
func (i *Installation) applyWebhooks(ctx context.Context, namespace *corev1.Namespace, taken plugin) error {
	roots, err := i.Roots(ctx)
	if err != nil {
		return err
	}
	paths, err := i.Paths(ctx)
	if err != nil {
		return err
	}
	at := server{namespace: i.Namespace, service: i.Names.API, roots: roots, paths: paths}
	first, second := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
	first.Name, second.Name = ConfigurationName, ConfigurationName
	if err := i.put(ctx, namespace, first, func() { first.Webhooks = mutators(at, beside(mutating(), taken.mutating), first.Webhooks) }); err != nil {
		return err
	}
	return i.put(ctx, namespace, second, func() { second.Webhooks = validators(at, beside(validating(), taken.validating), second.Webhooks) })
}

// belongsTo says that an object of the cluster is vmlet's.
func belongsTo(owner *corev1.Namespace, o client.Object) {
	labels := o.GetLabels()
	if labels == nil {
		labels = make(map[string]string)
	}
	labels[partOf] = vmlet
	o.SetLabels(labels)
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: owner.Name, UID: owner.UID}})
}

// put writes an object unless it is as it should be. Its owner is vmlet's namespace: where nobody is left
// to delete it, the garbage collector does.
func (i *Installation) put(ctx context.Context, owner *corev1.Namespace, o client.Object, set func()) error {
	err := i.Live.Get(ctx, client.ObjectKeyFromObject(o), o)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	before := o.DeepCopyObject()
	belongsTo(owner, o)
	set()
	if err == nil && equality.Semantic.DeepEqual(before, o) {
		return nil
	}
	return i.write(ctx, o, err == nil)
}

// write creates or updates an object, whichever it takes.
func (i *Installation) write(ctx context.Context, o client.Object, there bool) (err error) {
	if there {
		err = i.Client.Update(ctx, o)
	} else {
		err = i.Client.Create(ctx, o)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", o.GetName(), err)
	}
	i.Log.Info("written", "name", o.GetName())
	return nil
}
