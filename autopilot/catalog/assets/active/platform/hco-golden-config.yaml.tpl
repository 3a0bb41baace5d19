{{- /* Only where the HyperConverged object is there, and so is what the annotations are on: making one
     would install an operator's whole platform. */ -}}
{{- if eq (dig "kind" "" .Platform.Object) "HyperConverged" }}
# The HyperConverged object as it is to be. It has no opinion unless somebody asks for one: each field that were
# set here would be taken from the administrator, who has it from the operator's defaults or from a decision of
# his own. A field that he wants to keep goes into the object's annotation ignore-fields.
apiVersion: hco.kubevirt.io/v1beta1
kind: HyperConverged
metadata:
  name: {{ .Platform.Name | toJson }}
  namespace: {{ .Platform.Namespace | toJson }}
  {{- with dig "metadata" "uid" "" .Platform.Object }}
  uid: {{ . | toJson }} # an apply must not make the object again that somebody deletes
  {{- end }}
  annotations:
    platform.kubevirt.io/version: 1.0.0
{{- if hasAnnotation "recommended-settings" "true" }}
spec:
  # A drain moves a VM that can be moved, and ends one that can't. With the operator's own default,
  # LiveMigrate, it waits for that VM until somebody looks.
  evictionStrategy: LiveMigrateIfPossible
  # Who removes the operator by mistake loses no VM.
  uninstallStrategy: BlockUninstallIfWorkloadsExist
  liveMigrationConfig:
    # A drained node's VMs leave it two at a time, so that each has half of the network and comes to an end: more at
    # once change memory faster than it is copied. Five in all leave the network to guests.
    parallelMigrationsPerCluster: 5
    parallelOutboundMigrationsPerNode: 2
  higherWorkloadDensity:
    # Guests get the memory that they are told they have. More than that needs swap (swap-enable) and somebody
    # who watches it.
    memoryOvercommitPercentage: 100
{{- else }}
spec: {}
{{- end }}
{{- end }}
