package v1

import corev1 "k8s.io/api/core/v1"

// AccessCredential is keys or passwords that are put into the guest. Exactly one is set.
//
// +kubebuilder:validation:XValidation:rule="has(self.sshPublicKey) != has(self.userPassword)",message="exactly one of sshPublicKey and userPassword has to be set"
type AccessCredential struct {
	// Public keys that users may log in with.
	// +optional
	SSHPublicKey *SSHPublicKey `json:"sshPublicKey,omitempty"`
	// Users' passwords.
	// +optional
	UserPassword *UserPassword `json:"userPassword,omitempty"`
}

// SSHPublicKey is public keys that users of the guest may log in with.
type SSHPublicKey struct {
	// Where the keys come from.
	Source CredentialSource `json:"source"`
	// How they get into the guest.
	PropagationMethod SSHPublicKeyPropagation `json:"propagationMethod"`
}

// CredentialSource is where keys or passwords come from.
type CredentialSource struct {
	// A Secret. Its values are keys; or its keys are users, and its values their passwords.
	// +optional
	Secret *CredentialSecret `json:"secret,omitempty"`
}

// CredentialSecret is a Secret that has keys or passwords.
type CredentialSecret struct {
	// Name of the Secret.
	SecretName string `json:"secretName"`
}

// SSHPublicKeyPropagation is how public keys get into the guest. Exactly one is set.
//
// +kubebuilder:validation:XValidation:rule="[has(self.noCloud), has(self.configDrive), has(self.qemuGuestAgent)].exists_one(x, x)",message="exactly one of noCloud, configDrive and qemuGuestAgent has to be set"
type SSHPublicKeyPropagation struct {
	// By the instance's NoCloud medium, when the guest boots.
	// +optional
	NoCloud *CloudInitPropagation `json:"noCloud,omitempty"`
	// By the instance's ConfigDrive medium, when the guest boots.
	// +optional
	ConfigDrive *CloudInitPropagation `json:"configDrive,omitempty"`
	// By the guest agent, whenever the Secret changes.
	// +optional
	QemuGuestAgent *GuestAgentSSHKeys `json:"qemuGuestAgent,omitempty"`
}

// CloudInitPropagation has no settings.
type CloudInitPropagation struct{}

// GuestAgentSSHKeys are the users who may log in with the keys.
type GuestAgentSSHKeys struct {
	// Names of users of the guest.
	// +listType=set
	Users []string `json:"users"`
}

// UserPassword is passwords of users of the guest.
type UserPassword struct {
	// Where the passwords come from.
	Source CredentialSource `json:"source"`
	// How they get into the guest.
	PropagationMethod UserPasswordPropagation `json:"propagationMethod"`
}

// UserPasswordPropagation is how passwords get into the guest.
type UserPasswordPropagation struct {
	// By the guest agent, whenever the Secret changes.
	// +optional
	QemuGuestAgent *GuestAgentPasswords `json:"qemuGuestAgent,omitempty"`
}

// GuestAgentPasswords has no settings.
type GuestAgentPasswords struct{}

// Probe is a check of a guest, as of a container. Exactly one way to check is set.
//
// +kubebuilder:validation:XValidation:rule="[has(self.exec), has(self.guestAgentPing), has(self.httpGet), has(self.tcpSocket)].exists_one(x, x)",message="exactly one of exec, guestAgentPing, httpGet and tcpSocket has to be set"
type Probe struct {
	// The guest agent runs a program, which has to end with 0.
	// +optional
	Exec *corev1.ExecAction `json:"exec,omitempty"`
	// The guest agent answers.
	// +optional
	GuestAgentPing *GuestAgentPing `json:"guestAgentPing,omitempty"`
	// The guest answers an HTTP request with a status from 200 to 399.
	// +optional
	HTTPGet *corev1.HTTPGetAction `json:"httpGet,omitempty"`
	// The guest accepts a TCP connection.
	// +optional
	TCPSocket *corev1.TCPSocketAction `json:"tcpSocket,omitempty"`
	// Seconds after the start at which checks begin.
	// +optional
	InitialDelaySeconds int32 `json:"initialDelaySeconds,omitempty"`
	// Seconds a check may take. Defaults to 1.
	// +optional
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
	// Seconds between two checks. Defaults to 10.
	// +optional
	PeriodSeconds int32 `json:"periodSeconds,omitempty"`
	// Checks in a row that have to succeed after a failure. Defaults to 1.
	// +optional
	SuccessThreshold int32 `json:"successThreshold,omitempty"`
	// Checks in a row that have to fail after a success. Defaults to 3.
	// +optional
	FailureThreshold int32 `json:"failureThreshold,omitempty"`
}

// GuestAgentPing has no settings.
type GuestAgentPing struct{}
