package main

// What vmlet-api may do. `make generate` makes deploy/cluster/control/api-role.yaml of the
// markers.

// The cluster's configuration, by which defaults are filled in.
// +kubebuilder:rbac:groups=kubevirt.io,resources=kubevirts,verbs=get;list;watch
// Whose pod is being evicted, by what strategy and within what time; an evacuation is noted in the
// status, and one that is let through before its VM is saved in an event.
// +kubebuilder:rbac:groups="",resources=pods,verbs=get
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachineinstances,verbs=get
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachineinstances/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=events,verbs=create
// What users ask for: starts, stops and restarts are written into the VM, a shorter grace period
// and the end of an evacuation into the instance.
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachines,verbs=get;patch
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachines/status,verbs=patch
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachineinstances,verbs=patch
// What a VM is with its instancetype and preference, as they are or as it began with them.
// +kubebuilder:rbac:groups=instancetype.kubevirt.io,resources=virtualmachineinstancetypes;virtualmachineclusterinstancetypes;virtualmachinepreferences;virtualmachineclusterpreferences,verbs=get
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=get
// What a volume names as instancetype and preference (inferFromVolume), by labels of it or of what
// it is made from.
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get
// +kubebuilder:rbac:groups=snapshot.storage.k8s.io,resources=volumesnapshots,verbs=get
// +kubebuilder:rbac:groups=cdi.kubevirt.io,resources=datavolumes;datasources,verbs=get
// How the API server makes itself known to those to whom it passes requests on. The one that
// counts is in kube-system.
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=extension-apiserver-authentication,verbs=get;list;watch
// Whose kubevirt.io is, and whether CDI is installed.
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get
// +kubebuilder:rbac:groups=apiregistration.k8s.io,resources=apiservices,verbs=get
// Its certificate.
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=get;watch;create

// Who asks for metrics (--metrics-authentication token); whether a user may do what he asks for.
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// In vmlet's own namespace: where a node's agent is.
// +kubebuilder:rbac:groups="",resources=pods,namespace=vmlet,verbs=list
// By what the webhooks know the API server.
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=vmlet-webhooks,namespace=vmlet,verbs=get;list;watch
