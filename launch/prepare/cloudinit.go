package prepare

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/iso9660"
	"github.com/vmlet/vmlet/launch"
)

// Labels by which cloud-init finds its volume.
const (
	labelNoCloud     = "cidata"
	labelConfigDrive = "config-2"
)

// configDrive is the folder of OpenStack's layout that every version of cloud-init reads.
const configDrive = "openstack/latest/"

// maxKeys bounds the public SSH keys of a guest.
const maxKeys = 1024

// noCloud is the metadata of cloud-init's NoCloud data source.
type noCloud struct {
	InstanceType  string            `json:"instance-type,omitempty"`
	InstanceID    string            `json:"instance-id"`
	LocalHostname string            `json:"local-hostname"`
	PublicKeys    map[string]string `json:"public-keys,omitempty"`
}

// openStack is the metadata of a config drive.
type openStack struct {
	InstanceType  string            `json:"instance_type,omitempty"`
	InstanceID    string            `json:"instance_id"`
	LocalHostname string            `json:"local_hostname"`
	Hostname      string            `json:"hostname"`
	UUID          string            `json:"uuid,omitempty"`
	PublicKeys    map[string]string `json:"public_keys,omitempty"`
}

// seed makes the image that cloud-init reads.
func seed(c launch.CloudInit, path string) (result, error) {
	user, err := inlineOrFile(c.UserData, c.UserDataFiles)
	if err != nil {
		return result{}, fmt.Errorf("user data: %w", err)
	}
	network, err := inlineOrFile(c.NetworkData, c.NetworkDataFiles)
	if err != nil {
		return result{}, fmt.Errorf("network data: %w", err)
	}
	keys, err := publicKeys(c.KeyFolders)
	if err != nil {
		return result{}, err
	}
	all, err := seedFiles(c, user, network, keys)
	if err != nil {
		return result{}, err
	}
	label := labelNoCloud
	if c.ConfigDrive {
		label = labelConfigDrive
	}
	return image(label, all, path)
}

// seedFiles are those of the one layout or the other. NoCloud wants user data to be there,
// even if it says nothing.
func seedFiles(c launch.CloudInit, user, network []byte, keys map[string]string) ([]iso9660.File, error) {
	userName, metaName, networkName := "user-data", "meta-data", "network-config"
	var meta any = noCloud{InstanceType: c.InstanceType, InstanceID: c.InstanceID, LocalHostname: c.Hostname, PublicKeys: keys}
	if c.ConfigDrive {
		userName, metaName, networkName = configDrive+"user_data", configDrive+"meta_data.json", configDrive+"network_data.json"
		meta = openStack{InstanceType: c.InstanceType, InstanceID: c.InstanceID, LocalHostname: c.Hostname, Hostname: c.Hostname, UUID: c.UUID, PublicKeys: keys}
	}
	text, err := json.Marshal(meta)
	if err != nil {
		return nil, err
	}
	all := []iso9660.File{{Path: metaName, Content: text}}
	if len(user) > 0 || !c.ConfigDrive {
		all = append(all, iso9660.File{Path: userName, Content: user})
	}
	if len(network) > 0 {
		all = append(all, iso9660.File{Path: networkName, Content: network})
	}
	return all, nil
}

// inlineOrFile is the text, or the first of the files that is there. That none of them is
// there is a fault.
func inlineOrFile(text string, paths []string) ([]byte, error) {
	if text != "" || len(paths) == 0 {
		return []byte(text), nil
	}
	var names []string
	for _, path := range paths {
		content, err := readPath(path)
		if !errors.Is(err, os.ErrNotExist) {
			return content, err
		}
		names = append(names, filepath.Base(path))
	}
	return nil, contract.Errorf("%s has no key %s: add one of them", contract.ObjectName(filepath.Dir(paths[0])), strings.Join(names, " or "))
}

func readPath(path string) ([]byte, error) {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return readFile(root, filepath.Base(path))
}

// publicKeys reads SSH keys, a line each, and numbers them.
func publicKeys(folders []string) (map[string]string, error) {
	keys := make(map[string]string)
	for _, folder := range folders {
		files, err := readFolder(folder)
		if err != nil {
			return nil, fmt.Errorf("SSH keys: %w", err)
		}
		slices.SortFunc(files, func(a, b iso9660.File) int { return strings.Compare(a.Path, b.Path) })
		for _, f := range files {
			for line := range strings.Lines(string(f.Content)) {
				key := strings.TrimSpace(line)
				if key == "" || strings.HasPrefix(key, "#") {
					continue
				}
				if len(keys) == maxKeys {
					return nil, fmt.Errorf("SSH keys: more than %d", maxKeys)
				}
				keys[strconv.Itoa(len(keys))] = key
			}
		}
	}
	return keys, nil
}
