// Command keys creates what the servers of this folder and their clients need to trust
// each other. It writes a new folder that only its owner can enter:
//
//	ca.crt               certificate of the authority that signed tls.crt; its key is not kept
//	tls.crt, tls.key     certificate and key of all servers, for the given names, valid for a year
//	ROLE.nk              seed of the role's nkey; ROLE is coordinator, worker, operator or monitor
//	nkeys.env            the roles' public nkeys, as environment of the servers
//
// The files themselves are readable by everybody, so that a container that runs as
// another user can read the files that are mounted into it.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nkeys"
)

const names = "nats,nats-0.nats,nats-1.nats,nats-2.nats,localhost,127.0.0.1"

func main() {
	out := flag.String("out", filepath.Join("deploy", "nats", "secrets"), "new folder")
	hosts := flag.String("names", names, "names and addresses of the servers")
	flag.Parse()
	if err := write(*out, strings.Split(*hosts, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "keys:", err)
		os.Exit(1)
	}
}

func write(dir string, hosts []string) error {
	files, err := certificates(hosts)
	if err != nil {
		return err
	}
	env := ""
	for _, role := range []string{"coordinator", "worker", "operator", "monitor"} {
		pair, err := nkeys.CreateUser()
		if err != nil {
			return err
		}
		seed, err1 := pair.Seed()
		public, err2 := pair.PublicKey()
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		files[role+".nk"] = seed
		env += strings.ToUpper(role) + "_NKEY=" + public + "\n"
	}
	files["nkeys.env"] = []byte(env)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// certificates creates an authority, and a certificate for the hosts.
func certificates(hosts []string) (map[string][]byte, error) {
	now := time.Now()
	authority := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "shaver NATS authority"}, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: hosts[0]}, NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature,
		// The servers of a cluster are also clients of each other.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, host)
		}
	}
	authorityKey, err1 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	leafKey, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	ca, err1 := x509.CreateCertificate(rand.Reader, authority, authority, &authorityKey.PublicKey, authorityKey)
	crt, err2 := x509.CreateCertificate(rand.Reader, leaf, authority, &leafKey.PublicKey, authorityKey)
	key, err3 := x509.MarshalPKCS8PrivateKey(leafKey)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	encode := func(kind string, data []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}) }
	return map[string][]byte{"ca.crt": encode("CERTIFICATE", ca), "tls.crt": encode("CERTIFICATE", crt), "tls.key": encode("PRIVATE KEY", key)}, nil
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic("keys: no randomness: " + err.Error())
	}
	return n
}
