//go:build linux

package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// keys are the certificates of the control plane, which live as long as the cluster.
type keys struct {
	dir   string
	ca    *x509.Certificate
	caKey *ecdsa.PrivateKey
	pool  *x509.CertPool
	admin tls.Certificate
}

func (k *keys) file(name string) string { return filepath.Join(k.dir, name) }

// newKeys makes ca.crt, server.crt, server.key, admin.crt, admin.key, accounts.key and
// accounts.pub in a new folder.
func newKeys(dir string) (*keys, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	k := &keys{dir: dir, pool: x509.NewCertPool()}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	k.caKey = key
	k.ca = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, k.ca, k.ca, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if k.ca, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	k.pool.AddCert(k.ca)
	err = errors.Join(
		k.write("ca.crt", "CERTIFICATE", der),
		k.sign("server", pkix.Name{CommonName: "kube-apiserver"}, net.ParseIP(address), net.ParseIP("10.96.0.1")),
		k.sign("admin", pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}),
		k.accounts(),
	)
	if err != nil {
		return nil, err
	}
	k.admin, err = tls.LoadX509KeyPair(k.file("admin.crt"), k.file("admin.key"))
	return k, err
}

func (k *keys) write(name, kind string, der []byte) error {
	return os.WriteFile(k.file(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// sign makes a key and a certificate for a server or a client.
func (k *keys) sign(name string, subject pkix.Name, ips ...net.IP) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return err
	}
	cert := &x509.Certificate{
		SerialNumber: serial, Subject: subject, NotBefore: k.ca.NotBefore, NotAfter: k.ca.NotAfter, IPAddresses: ips,
		DNSNames: []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, k.ca, key.Public(), k.caKey)
	if err != nil {
		return err
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(k.write(name+".crt", "CERTIFICATE", der), k.write(name+".key", "PRIVATE KEY", text))
}

// accounts makes the key that signs the tokens of service accounts.
func (k *keys) accounts() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err1 := x509.MarshalPKCS8PrivateKey(key)
	public, err2 := x509.MarshalPKIXPublicKey(key.Public())
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	return errors.Join(k.write("accounts.key", "PRIVATE KEY", private), k.write("accounts.pub", "PUBLIC KEY", public))
}

// kubeconfig writes the file with which clients reach the API server as administrator.
func (k *keys) kubeconfig(file, server string) error {
	var text [3]string
	for i, name := range []string{"ca.crt", "admin.crt", "admin.key"} {
		b, err := os.ReadFile(k.file(name))
		if err != nil {
			return err
		}
		text[i] = base64.StdEncoding.EncodeToString(b)
	}
	return os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: try, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: admin, user: {client-certificate-data: %s, client-key-data: %s}}]
contexts: [{name: try, context: {cluster: try, user: admin}}]
current-context: try
`, server, text[0], text[1], text[2]), 0o600)
}
