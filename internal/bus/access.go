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

	"shaver/internal/fault"
)

// Access is how a client and a server come to trust each other: what the client
// shows, and whom it believes. All of it are names of files, "" = none; at most
// one of Creds, NKey and UserFile is set. The files are read again at every
// reconnect, so that what they hold may be replaced. What they hold is in no log
// line and no error.
type Access struct {
	Creds    string // JWT and nkey seed, as nsc writes them (.creds)
	NKey     string // nkey seed of a user
	UserFile string // one line: USER:PASSWORD
	TLSCA    string // certificates, PEM, that sign the server's; "" = those of the system
	TLSCert  string // the client's own certificate, PEM; needs TLSKey
	TLSKey   string
}

// addresses checks the URLs of servers. What it complains of it does not quote
// but for the scheme and host: a password may be in it.
func addresses(list string) (password bool, err error) {
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
				reason = errors.New("a user and password in it are percent-encoded")
			}
			return false, fault.Usagef("the address of NATS is none: %w", reason)
		}
		if !slices.Contains([]string{"nats", "tls", "ws", "wss"}, scheme) { // the client would wait for it for ever
			return false, fault.Usagef("address %s://%s of NATS: it begins with nats:// or tls://", u.Scheme, u.Host)
		}
		password = password || u.User != nil
	}
	return password, nil
}

// options returns what the client library needs, after a look at every file.
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
			return nil, fault.Inputf("nkey file %s holds no seed of a user", a.NKey)
		}
		options = append(options, option)
	}
	if a.UserFile != "" {
		if _, _, err := readUser(a.UserFile); err != nil {
			return nil, err
		}
		options = append(options, nats.UserInfoHandler(func() (user, password string) {
			user, password, _ = readUser(a.UserFile) // empty: the server refuses it, and we try again
			return user, password
		}))
	}
	transport, err := a.tls()
	return append(options, transport...), err
}

func (a *Access) tls() (options []nats.Option, err error) {
	if a.TLSCA != "" {
		pem, err := os.ReadFile(a.TLSCA)
		if err != nil {
			return nil, err
		}
		if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			return nil, fault.Inputf("file %s holds no certificate", a.TLSCA)
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

// validate reports what does not go together.
func (a *Access) validate(inAddress bool) error {
	users := 0
	for _, given := range []bool{a.Creds != "", a.NKey != "", a.UserFile != "", inAddress} {
		if given {
			users++
		}
	}
	switch {
	case users > 1:
		return fault.Usagef("one of a credentials file, an nkey, a user file and a user in the address says who we are, not %d of them", users)
	case (a.TLSCert == "") != (a.TLSKey == ""):
		return fault.Usagef("a TLS certificate needs its key, and the key its certificate")
	}
	return nil
}

// maxSecretBytes bounds what is read of a file that should be small.
const maxSecretBytes = 64 << 10

func checkFile(kind, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() || info.Size() > maxSecretBytes {
		return fault.Inputf("%s %s is none", kind, path)
	}
	return nil
}

func checkCreds(path string) error {
	if err := checkFile("credentials file", path); err != nil {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	defer clear(content)
	// The library's errors are of no use to people, and might quote the file.
	if pair, err := nkeys.ParseDecoratedUserNKey(content); err != nil {
		return fault.Inputf("credentials file %s holds no seed of a user", path)
	} else {
		pair.Wipe()
	}
	if !bytes.Contains(content, []byte("BEGIN NATS USER JWT")) {
		return fault.Inputf("credentials file %s holds no JWT of a user", path)
	}
	return nil
}

// readUser reads a file of one line USER:PASSWORD. The password may have colons.
func readUser(path string) (user, password string, err error) {
	if err := checkFile("user file", path); err != nil {
		return "", "", err
	}
	content, err := os.ReadFile(path)
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
