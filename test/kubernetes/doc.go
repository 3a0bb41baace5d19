// Package kubernetes has tests of vmlet on a real node of Kubernetes, which
// test/cluster brings up. They are skipped where none can be.
//
// TestNode has the device plugins on a made-up machine; TestDeployment has all of
// vmlet as it is installed: the image, the manifests of deploy, VMs in pods.
package kubernetes
