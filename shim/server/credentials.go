package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/control"
)

const (
	// credentialTime is how long a guest may take for one key or password.
	credentialTime = 30 * time.Second
	// maxSecret bounds a Secret's values, in bytes, as Kubernetes does; maxSecretFiles how many
	// there are.
	maxSecret      = 1 << 20
	maxSecretFiles = 256
)

// secrets are what the pod's Secrets have for the guest.
type secrets struct {
	keys      map[string][]string // by users
	passwords map[string]string
	sum       [sha256.Size]byte
}

// keepCredentials brings what the Secrets have into the guest, whenever that is something
// else, until the VMM ends.
func (s *guests) keepCredentials(v *vm) {
	_, can := v.machine().(control.Credentialer)
	if s.o.Pod == nil || len(s.o.Pod.Credentials) == 0 {
		return
	}
	if !can {
		s.tellCredentials(shim.Credentials{Message: fmt.Sprintf("a %s has no channel to an agent in its guest", v.plan.VMM)})
		return
	}
	ticker := time.NewTicker(s.o.CredentialsEvery)
	defer ticker.Stop()
	var applied [sha256.Size]byte
	for {
		select {
		case <-v.gone:
			return
		case <-ticker.C:
		}
		if !s.frozen(v) {
			applied = s.syncCredentials(v, v.machine().(control.Credentialer), applied)
		}
	}
}

// syncCredentials returns what the guest has now. That its agent is not there is no news: it
// may still be booting.
func (s *guests) syncCredentials(v *vm, guest control.Credentialer, applied [sha256.Size]byte) [sha256.Size]byte {
	all, err := readSecrets(s.o.Pod.Credentials)
	if err == nil {
		if all.sum == applied {
			return applied
		}
		err = all.apply(v, guest)
	}
	switch {
	case err == nil:
		s.tellCredentials(shim.Credentials{Synchronized: true})
		return all.sum
	case !errors.Is(err, control.ErrNoGuestAgent):
		s.tellCredentials(shim.Credentials{Message: err.Error(), Parts: contract.FaultsOf(err)})
	}
	return applied
}

func (a *secrets) apply(v *vm, guest control.Credentialer) error {
	within := func(do func(context.Context) error) error {
		ctx, cancel := v.guestTime(credentialTime)
		defer cancel()
		return do(ctx)
	}
	for _, user := range slices.Sorted(maps.Keys(a.keys)) {
		if err := within(func(ctx context.Context) error { return guest.SetKeys(ctx, user, a.keys[user]) }); err != nil {
			return fmt.Errorf("SSH keys of user %.64q: %w", user, err)
		}
	}
	for _, user := range slices.Sorted(maps.Keys(a.passwords)) {
		if err := within(func(ctx context.Context) error { return guest.SetPassword(ctx, user, a.passwords[user]) }); err != nil {
			return fmt.Errorf("password of user %.64q: %w", user, err)
		}
	}
	return nil
}

// tellCredentials tells agents, those too that come later, if it is news.
func (s *guests) tellCredentials(c shim.Credentials) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.credentials != nil && reflect.DeepEqual(*s.credentials, c) {
		return
	}
	s.credentials = &c
	s.log.Info("the guest's keys and passwords", "synchronized", c.Synchronized, "message", c.Message)
	s.tell(shim.Event{Credentials: &c}, nil)
}

func readSecrets(credentials []Credential) (*secrets, error) {
	all := &secrets{keys: make(map[string][]string), passwords: make(map[string]string)}
	sum := sha256.New()
	for _, c := range credentials {
		files, err := readSecret(c.Folder)
		if err != nil {
			return nil, err
		}
		for _, name := range slices.Sorted(maps.Keys(files)) {
			fmt.Fprintf(sum, "%q %q %q\n", c.Users, name, files[name])
			if len(c.Users) == 0 {
				all.passwords[name] = strings.TrimRight(string(files[name]), "\r\n")
			}
			for _, user := range c.Users {
				all.keys[user] = append(all.keys[user], keysIn(files[name])...)
			}
		}
	}
	sum.Sum(all.sum[:0])
	return all, nil
}

// keysIn are the lines of an authorized_keys file (sshd(8)), without comments.
func keysIn(content []byte) (keys []string) {
	for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
		if line := strings.TrimSpace(lines.Text()); line != "" && line[0] != '#' {
			keys = append(keys, line)
		}
	}
	return keys
}

// readSecret reads a volume of a Secret: the kubelet replaces all of it at once, by a link
// whose name begins with two dots.
func readSecret(folder string) (map[string][]byte, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	files, room := make(map[string][]byte), int64(maxSecret)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		content, err := readSome(filepath.Join(folder, e.Name()), room)
		if err != nil {
			return nil, err
		}
		files[e.Name()] = content
		if room -= int64(len(content)); room < 0 || len(files) > maxSecretFiles {
			return nil, contract.Errorf("%s: more than %d bytes or %d files", contract.ObjectName(folder), maxSecret, maxSecretFiles)
		}
	}
	return files, nil
}

// readSome reads a byte more than most at most.
func readSome(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most+1))
}
