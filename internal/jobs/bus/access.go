package bus

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
)

// Access holds the credentials of a client and the certificates that it trusts. Every
// field is the name of a file, or "" for none. At most one of Creds, NKey and UserFile is
// set. The files are read again at every reconnect, so their content may be replaced.
// Their content appears in no log line and in no error.
type Access struct {
	Creds    string // JWT and nkey seed, as nsc writes them (.creds)
	NKey     string // nkey seed of a user
	UserFile string // one line: USER:PASSWORD
	TLSCA    string // PEM certificates that sign the server's certificate; "" = those of the system
	TLSCert  string // PEM certificate of the client; needs TLSKey
	TLSKey   string // PEM private key of TLSCert
}

// Redacted checks the URLs of the servers, separated by commas, and returns them without
// users and passwords.
func Redacted(list string) (string, error) {
	servers, err := addresses(list)
	if err != nil {
		return "", err
	}
	var redacted []string
	for _, u := range servers {
		redacted = append(redacted, u.Scheme+"://"+u.Host)
	}
	return strings.Join(redacted, ", "), nil
}

// addresses checks and parses the URLs of the servers. Errors quote at most the scheme
// and the host, because the rest may hold a password.
func addresses(list string) (servers []*url.URL, err error) {
	for address := range strings.SplitSeq(list, ",") {
		address = strings.TrimSpace(address)
		scheme, _, ok := strings.Cut(address, "://")
		if !ok {
			scheme, address = "nats", "nats://"+address
		}
		u, err := url.Parse(address)
		if err != nil {
			reason := err
			if parse, ok := errors.AsType[*url.Error](err); ok {
				reason = parse.Err
			}
			if strings.Contains(address, "@") {
				reason = errors.New("the user and password have to be percent-encoded")
			}
			return nil, fault.Usagef("invalid NATS address: %w", reason)
		}
		if !slices.Contains([]string{"nats", "tls", "ws", "wss"}, scheme) { // the client library would retry it without end
			return nil, fault.Usagef("invalid NATS address %s: expected nats:// or tls://", fault.Address(address))
		}
		if strings.Count(u.Host, ":") > 1 && u.Host[0] != '[' { // the client library would take all except the last group for the host
			return nil, fault.Usagef("invalid NATS address %s: expected brackets around an IPv6 address, as in nats://[::1]:4222", fault.Address(address))
		}
		servers = append(servers, u)
	}
	return servers, nil
}

// options checks every file and returns the options of the client library.
func (a *Access) options() (options []nats.Option, err error) {
	if a.Creds != "" {
		if err := checkCreds(a.Creds); err != nil {
			return nil, err
		}
		options = append(options, nats.UserCredentials(a.Creds))
	}
	if a.NKey != "" {
		if err := checkFile("nkey file", a.NKey); err != nil {
			return nil, err
		}
		option, err := nats.NkeyOptionFromSeed(a.NKey)
		if err != nil {
			return nil, fault.Inputf("nkey file %s: expected the seed of a user", a.NKey)
		}
		options = append(options, option)
	}
	if a.UserFile != "" {
		if _, _, err := readUser(a.UserFile); err != nil {
			return nil, err
		}
		options = append(options, nats.UserInfoHandler(func() (user, password string) {
			user, password, _ = readUser(a.UserFile) // after an error both are empty, so the server refuses them and the client tries again
			return user, password
		}))
	}
	transport, err := a.tls()
	return append(options, transport...), err
}

func (a *Access) tls() (options []nats.Option, err error) {
	if a.TLSCA != "" {
		pem, err := files.Small(a.TLSCA, 16, "a PEM certificate")
		if err != nil {
			return nil, err
		}
		if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			return nil, fault.Inputf("file %s: expected a PEM certificate", a.TLSCA)
		}
		options = append(options, nats.RootCAs(a.TLSCA))
	}
	if a.TLSCert != "" {
		for _, file := range []string{a.TLSCert, a.TLSKey} {
			if err := checkFile("TLS file", file); err != nil {
				return nil, err
			}
		}
		if _, err := tls.LoadX509KeyPair(a.TLSCert, a.TLSKey); err != nil {
			return nil, fault.Inputf("certificate %s with key %s: %w", a.TLSCert, a.TLSKey, err)
		}
		options = append(options, nats.ClientCert(a.TLSCert, a.TLSKey))
	}
	return options, nil
}

// validate returns an error for settings that exclude each other or lack a counterpart.
// inAddress says that the address holds a user.
func (a *Access) validate(inAddress bool) error {
	users := 0
	for _, given := range []bool{a.Creds != "", a.NKey != "", a.UserFile != "", inAddress} {
		if given {
			users++
		}
	}
	switch {
	case users > 1:
		return fault.Usagef("use only one of a credentials file, an nkey, a user file and a user in the address, not %d", users)
	case (a.TLSCert == "") != (a.TLSKey == ""):
		return fault.Usagef("a TLS certificate and its key must be given together")
	}
	return nil
}

// maxSecretBytes bounds the size of a file with secrets.
const maxSecretBytes = 64 << 10

func checkFile(kind, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > maxSecretBytes {
		return fault.Inputf("%s %s: expected a file of at most %d bytes", kind, path, maxSecretBytes)
	}
	return nil
}

func checkCreds(path string) error {
	if err := checkFile("credentials file", path); err != nil {
		return err
	}
	content, err := files.Small(path, 1, "a credentials file")
	if err != nil {
		return err
	}
	defer clear(content)
	// The library's errors are of no use to people and may quote the file.
	if pair, err := nkeys.ParseDecoratedUserNKey(content); err != nil {
		return fault.Inputf("credentials file %s: expected the seed of a user", path)
	} else {
		pair.Wipe()
	}
	if !bytes.Contains(content, []byte("BEGIN NATS USER JWT")) {
		return fault.Inputf("credentials file %s: expected the JWT of a user", path)
	}
	return nil
}

// readUser reads a file that holds one line USER:PASSWORD. The password may contain
// colons.
func readUser(path string) (user, password string, err error) {
	if err := checkFile("user file", path); err != nil {
		return "", "", err
	}
	content, err := files.Small(path, 1, "a line USER:PASSWORD")
	if err != nil {
		return "", "", err
	}
	line := strings.TrimRight(string(content), "\r\n")
	user, password, ok := strings.Cut(line, ":")
	if !ok || user == "" || password == "" || strings.ContainsAny(line, "\r\n") {
		return "", "", fault.Inputf("user file %s: expected one line USER:PASSWORD", path)
	}
	return user, password, nil
}
