package main

// What vmlet-api may do. `make generate` makes deploy/cluster/control/api-role.yaml of the
// markers.

// The cluster's configuration, by which defaults are filled in.
// +kubebuilder:rbac:groups=kubevirt.io,resources=kubevirts,verbs=get;list;watch
// Whose pod is being evicted, and by what strategy; an evacuation is noted in the status.
// +kubebuilder:rbac:groups="",resources=pods,verbs=get
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachineinstances,verbs=get
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachineinstances/status,verbs=patch
// Whose kubevirt.io is, and whether CDI is installed.
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get
// +kubebuilder:rbac:groups=apiregistration.k8s.io,resources=apiservices,verbs=get
// Its certificate.
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=get;watch;create

// Who asks for metrics (--metrics-authentication token).
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
