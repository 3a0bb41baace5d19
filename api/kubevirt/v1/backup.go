package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ChangedBlockTrackingStatus says whether changed blocks are tracked, and how far a backup is.
type ChangedBlockTrackingStatus struct {
	// Enabled, Disabled, Initializing, PendingRestart (tracking begins at the next start) or
	// IncrementalBackupFeatureGateDisabled.
	State string `json:"state"`
	// The backup that is under way, or was last.
	// +optional
	BackupStatus *BackupStatus `json:"backupStatus,omitempty"`
}

// BackupStatus is how far a backup of an instance's disks is.
type BackupStatus struct {
	// Name of the VirtualMachineBackup.
	// +optional
	BackupName string `json:"backupName,omitempty"`
	// When the backup began.
	// +optional
	StartTimestamp *metav1.Time `json:"startTimestamp,omitempty"`
	// When the backup ended.
	// +optional
	EndTimestamp *metav1.Time `json:"endTimestamp,omitempty"`
	// Whether the backup has ended.
	// +optional
	Completed bool `json:"completed,omitempty"`
	// Whether the backup has failed.
	// +optional
	Failed bool `json:"failed,omitempty"`
	// What the VMM said of the backup.
	// +optional
	BackupMsg *string `json:"backupMsg,omitempty"`
	// Name of the checkpoint that the backup made.
	// +optional
	CheckpointName *string `json:"checkpointName,omitempty"`
	// Volumes in the backup.
	// +optional
	Volumes []BackupVolume `json:"volumes,omitempty"`
	// Whether the guest's file systems were frozen for the backup.
	// +optional
	QuiesceStatus string `json:"quiesceStatus,omitempty"`
}

// BackupVolume is a volume in a backup.
type BackupVolume struct {
	// Name of the volume.
	VolumeName string `json:"volumeName"`
}
