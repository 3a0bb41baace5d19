{{- /* The CSI driver of the default StorageClass. A class that anybody has made for it is enough:
     two defaults for one driver are an error to the snapshot controller. */ -}}
{{- $driver := "" }}
{{- range lookupAll "storage.k8s.io/v1" "StorageClass" }}
{{- if eq (dig "metadata" "annotations" "storageclass.kubernetes.io/is-default-class" "" .) "true" }}
{{- $driver = .provisioner }}
{{- end }}
{{- end }}
{{- range lookupAll "snapshot.storage.k8s.io/v1" "VolumeSnapshotClass" }}
{{- if and (eq .driver $driver) (ne .metadata.name "vmlet-default") }}{{ $driver = "" }}{{ end }}
{{- end }}
{{- /* A provisioner that is no CSI driver may have a name that no object can have: so none is looked up. */ -}}
{{- $csi := false }}
{{- range lookupAll "storage.k8s.io/v1" "CSIDriver" }}
{{- if eq .metadata.name $driver }}{{ $csi = true }}{{ end }}
{{- end }}
{{- if $csi }}
# Snapshots of VMs' disks without a word about the storage.
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata:
  name: vmlet-default
  annotations:
    snapshot.storage.kubernetes.io/is-default-class: "true"
driver: {{ $driver | toJson }}
# A snapshot that is deleted gives its space back. With Retain it would be left on the storage, where
# nobody of Kubernetes sees it.
deletionPolicy: Delete
{{- end }}
