package main

// What vmlet-controller may do. `make generate` makes deploy/cluster/control/controller-role.yaml
// of the markers.

// The VMs themselves, which it makes and deletes for pools; their status is a right of its own.
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachines,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachineinstances,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachines/status;kubevirts/status,verbs=patch
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachineinstances/status,verbs=update
// Pools of VMs; an owner that is to wait for what it owns (OwnerReferencesPermissionEnforcement).
// +kubebuilder:rbac:groups=pool.kubevirt.io,resources=virtualmachinepools,verbs=get;list;watch
// +kubebuilder:rbac:groups=pool.kubevirt.io,resources=virtualmachinepools/status,verbs=patch
// +kubebuilder:rbac:groups=pool.kubevirt.io,resources=virtualmachinepools/finalizers,verbs=update
// Sets of instances.
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachineinstancereplicasets,verbs=get;list;watch
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachineinstancereplicasets/status,verbs=patch
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachineinstancereplicasets/finalizers,verbs=update
// How many of a pool's VMs a drain leaves; whether somebody else says so.
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch;delete
// The cluster's configuration.
// +kubebuilder:rbac:groups=kubevirt.io,resources=kubevirts,verbs=get;list;watch
// An owner that is to wait for what it owns: clusters may ask for this right
// (OwnerReferencesPermissionEnforcement).
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachines/finalizers;virtualmachineinstances/finalizers,verbs=update

// VMs' pods, those through which volumes are attached to them or that fill claims, and the agents'
// own; all pods while disks of saved VMs have to be watched; who uses a claim that is copied; its own,
// on which it marks how far it has watched.
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete
// A VM that gets more CPUs while it runs has its pod request more.
// +kubebuilder:rbac:groups="",resources=pods/resize,verbs=patch
// A pod whose VM stood by for its pool serves by its readiness gate.
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch
// Whether a pod's node is there, ready, or out of service; its kubelet's last sign of life.
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get
// Whether claims are there, bound, and how large; claims for the memory of VMs that hibernate,
// which it makes and deletes; claims that it fills for dataVolumeTemplates, on which it writes how
// far that is.
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;create;patch;delete
// Which nodes can mount the volume with a guest's memory, which is attached to its pod while it is read.
// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=get
// Whether a claim that is filled gets its volume where its first pod goes, and how its storage clones.
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list;watch
// Whether a VM's pod needs limits, so that a quota lets it in.
// +kubebuilder:rbac:groups="",resources=resourcequotas,verbs=get;list;watch
// Whether vmlet's own namespace is being deleted; whether VMs' pods are limited in theirs.
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// The spec that a VM was started with; the instancetype and the preference that it began with,
// which are followed.
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=get;list;watch;create;patch;delete
// Instancetypes and preferences that VMs name, some of them before they are made.
// +kubebuilder:rbac:groups=instancetype.kubevirt.io,resources=virtualmachineinstancetypes;virtualmachineclusterinstancetypes;virtualmachinepreferences;virtualmachineclusterpreferences,verbs=get;list;watch
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch
// Why a VM's pod does not start: that a Secret is missing is said nowhere else.
// +kubebuilder:rbac:groups="",resources=events,verbs=list
// Disks that CDI makes, where it is installed; one that a VM takes over gets it as its owner, for
// which clusters may ask for the right to delete it (OwnerReferencesPermissionEnforcement).
// +kubebuilder:rbac:groups=cdi.kubevirt.io,resources=datavolumes,verbs=get;list;watch;create;patch;delete
// CDI asks whether the maker of a DataVolume may clone a snapshot of another namespace. Before,
// the VM's ServiceAccount is asked about.
// +kubebuilder:rbac:groups=cdi.kubevirt.io,resources=datavolumes/source,verbs=create
// +kubebuilder:rbac:groups=cdi.kubevirt.io,resources=datasources,verbs=get

// The signer of vmlet's certificates, and its own certificate.
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests/approval;certificatesigningrequests/status,verbs=update
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=signers,resourceNames=vmlet.io/programs,verbs=approve;sign

// The webhook configurations, which it makes and deletes. RBAC knows no names in create.
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations;validatingwebhookconfigurations,verbs=create
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations;validatingwebhookconfigurations,resourceNames=vmlet,verbs=get;list;watch;update;delete
// Those of a virtualisation stack, whose server it runs.
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations;validatingwebhookconfigurations,resourceNames=vmlet-plugin,verbs=get;list;watch;update;delete
// +kubebuilder:rbac:groups=apps,resources=deployments,namespace=vmlet,verbs=create
// +kubebuilder:rbac:groups=apps,resources=deployments,resourceNames=plugin-admission-webhooks,namespace=vmlet,verbs=patch;delete
// The pods in which nodes ask the image of a virtualisation stack.
// +kubebuilder:rbac:groups=apps,resources=daemonsets,namespace=vmlet,verbs=create
// +kubebuilder:rbac:groups=apps,resources=daemonsets,resourceNames=vmlet-stack,namespace=vmlet,verbs=patch;delete
// +kubebuilder:rbac:groups="",resources=services,namespace=vmlet,verbs=create
// +kubebuilder:rbac:groups="",resources=services,resourceNames=plugin-admission-webhooks,namespace=vmlet,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=plugin-admission-webhooks,namespace=vmlet,verbs=get;list;watch;update;delete
// The API that virtctl calls, which it announces while a vmlet-api serves it.
// +kubebuilder:rbac:groups=apiregistration.k8s.io,resources=apiservices,verbs=create
// +kubebuilder:rbac:groups=apiregistration.k8s.io,resources=apiservices,resourceNames=v1.subresources.kubevirt.io;v1alpha3.subresources.kubevirt.io,verbs=update;delete
// Whose kubevirt.io is, and whether CDI is installed; whether that API is announced still.
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups=apiregistration.k8s.io,resources=apiservices,verbs=get;list;watch

// Who asks for metrics (--metrics-authentication token).
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// In vmlet's own namespace: who leads, the CA's key, by what vmlet-api's webhooks know the API
// server, what it has seen of the claims of saved VMs' disks, and whether vmlet is being uninstalled.
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=vmlet,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=vmlet-controller,namespace=vmlet,verbs=get;update
// +kubebuilder:rbac:groups="",resources=secrets,namespace=vmlet,verbs=create
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=vmlet-ca;vmlet-webhooks,namespace=vmlet,verbs=get;update
// +kubebuilder:rbac:groups="",resources=configmaps,namespace=vmlet,verbs=create
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=vmlet-watched-claims;vmlet-cluster,namespace=vmlet,verbs=get;update
// +kubebuilder:rbac:groups=apps,resources=deployments;daemonsets,namespace=vmlet,verbs=get;list;watch
