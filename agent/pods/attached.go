package pods

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/filesocket"
	corev1 "k8s.io/api/core/v1"
)

// Attached takes the folder that a pod hands out in its volume contract.VolumeAttachment. belongs
// is asked who listens there before anything is taken. ctx bounds how long the pod may take. The
// file is the caller's, and such that no call on it waits for the folder's file system.
func Attached(ctx context.Context, taker *filesocket.Taker, kubeletDir string, pod *corev1.Pod, belongs func(Peer) error) (*os.File, error) {
	uid := string(pod.UID)
	if !regexp.MustCompile(`^[0-9a-zA-Z-]{1,63}$`).MatchString(uid) {
		return nil, fmt.Errorf("%.64q is no pod's UID", uid)
	}
	volume := filepath.Join(kubeletDir, "pods", uid, "volumes", "kubernetes.io~empty-dir", contract.VolumeAttachment)
	conn, err := filesocket.DialIn(ctx, volume, contract.AttachmentSocket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	peer, err := PeerOf(conn)
	if err != nil {
		return nil, err
	}
	if err := belongs(peer); err != nil {
		return nil, err
	}
	return taker.Folder(ctx, conn, filesocket.Giver{Namespace: pod.Namespace, UID: uid}, contract.AttachedFolder+" of pod "+uid)
}
