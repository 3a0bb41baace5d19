{{- /* What this operator's version offers; names have changed, and an unknown one is refused. */ -}}
{{- $crd := "kubedeschedulers.operator.openshift.io" }}
{{- $profile := "LongLifecycle" }}
{{- if crdHasEnum $crd "spec.profiles" "KubeVirtRelieveAndMigrate" }}{{ $profile = "KubeVirtRelieveAndMigrate" }}
{{- else if crdHasEnum $crd "spec.profiles" "DevKubeVirtRelieveAndMigrate" }}{{ $profile = "DevKubeVirtRelieveAndMigrate" }}
{{- end }}
# Moves VMs from nodes whose guests wait for CPU to nodes that have some to spare.
apiVersion: operator.openshift.io/v1
kind: KubeDescheduler
metadata:
  # The operator takes the one of this name alone.
  name: cluster
  namespace: openshift-kube-descheduler-operator
spec:
  managementState: Managed
  # The operator's default, Predictive, only counts what it would do.
  mode: Automatic
  # A VM's move takes minutes: once a minute is as often as there can be news.
  deschedulingIntervalSeconds: 60
  profiles:
    - {{ $profile }}
  {{- if eq $profile "LongLifecycle" }}
  profileCustomizations:
    # A VM leaves in the background: its eviction is refused until it has moved. Without this each
    # refusal counts as a failure, and the next VM is asked.
    devEnableEvictionsInBackground: true
    {{- if crdHasEnum $crd "spec.profileCustomizations.devActualUtilizationProfile" "PrometheusCPUPSIPressure" }}
    # By the pressure that the kernel measures (psi-enable), as requests say little of what guests do.
    devActualUtilizationProfile: PrometheusCPUPSIPressure
    {{- end }}
  {{- end }}
  evictionLimits:
    # The platform's own limits on migrations at once, in the cluster and from a node, as a
    # HyperConverged object of v1beta1 has them, one of v1, or the KubeVirt object: more evictions
    # only queue.
    {{- $limits := dig "spec" "configuration" "migrations" nil .Platform.Object }}
    {{- $limits = dig "spec" "virtualization" "liveMigrationConfig" $limits .Platform.Object }}
    {{- $limits = dig "spec" "liveMigrationConfig" $limits .Platform.Object }}
    total: {{ dig "parallelMigrationsPerCluster" 5 $limits | toJson }}
    node: {{ dig "parallelOutboundMigrationsPerNode" 2 $limits | toJson }}
