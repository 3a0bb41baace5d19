package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"testing"

	"github.com/vmlet/vmlet/test/cluster/internal/pki"
)

func TestIssued(t *testing.T) {
	authority, err := pki.New("an authority")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority.Certificate()) {
		t.Fatal("the authority's certificate can't be read")
	}
	server, err := authority.Server("a.name", "198.18.0.1")
	if err != nil {
		t.Fatal(err)
	}
	client, err := authority.Client("system:node:n", "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		pair  pki.Pair
		host  string
		usage x509.ExtKeyUsage
		good  bool
	}{
		{server, "a.name", x509.ExtKeyUsageServerAuth, true},
		{server, "198.18.0.1", x509.ExtKeyUsageServerAuth, true},
		{server, "198.18.0.2", x509.ExtKeyUsageServerAuth, false},
		{server, "a.name", x509.ExtKeyUsageClientAuth, false},
		{client, "", x509.ExtKeyUsageClientAuth, true},
		{client, "", x509.ExtKeyUsageServerAuth, false},
	} {
		pair, err := tls.X509KeyPair(test.pair.Certificate, test.pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: test.host, KeyUsages: []x509.ExtKeyUsage{test.usage}})
		if (err == nil) != test.good {
			t.Errorf("%s for %q, usage %v: %v", pair.Leaf.Subject, test.host, test.usage, err)
		}
		if test.host == "" && (pair.Leaf.Subject.CommonName != "system:node:n" || pair.Leaf.Subject.Organization[0] != "system:nodes") {
			t.Errorf("the client is %s", pair.Leaf.Subject)
		}
	}
}

func TestKubeconfig(t *testing.T) {
	authority, err := pki.New("an authority")
	if err != nil {
		t.Fatal(err)
	}
	client, err := authority.Client("admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	text, err := authority.Kubeconfig("https://198.18.0.1", client)
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string
				CA     []byte `json:"certificate-authority-data"`
			}
		}
		Users []struct {
			User struct {
				Certificate []byte `json:"client-certificate-data"`
				Key         []byte `json:"client-key-data"`
			}
		}
	}
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	if got := config.Clusters[0].Cluster; got.Server != "https://198.18.0.1" || string(got.CA) != string(authority.Certificate()) {
		t.Errorf("the cluster is %+v", got)
	}
	if _, err := tls.X509KeyPair(config.Users[0].User.Certificate, config.Users[0].User.Key); err != nil {
		t.Error(err)
	}
}
