package bus

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"shaver/internal/base/fault"
)

const secret = "s3cret:of%the/test"

func secretFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// guarded starts a server that admits the users of options.
func guarded(t *testing.T, options *server.Options) string {
	t.Helper()
	return started(t, options).Addr().String()
}

// started starts a server with JetStream.
func started(t *testing.T, options *server.Options) *server.Server {
	t.Helper()
	return startedIn(t, options, t.TempDir(), server.RANDOM_PORT)
}

// startedIn is started with the folder of the store and the port.
func startedIn(t *testing.T, options *server.Options, dir string, port int) *server.Server {
	t.Helper()
	options.Host, options.Port, options.NoSigs, options.NoLog = "127.0.0.1", port, true, true
	options.JetStream, options.StoreDir = true, dir
	ns, err := server.NewServer(options)
	must(t, err)
	ns.Start()
	t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
	if !ns.ReadyForConnections(10 * time.Second) {
		t.Fatal("not ready")
	}
	return ns
}

// withPassword starts a server that admits the user me.
func withPassword(t *testing.T) (host string) {
	return guarded(t, &server.Options{Users: []*server.User{{Username: "me", Password: secret}}})
}

// journal collects what a logger writes. It is safe for concurrent use.
type journal struct {
	mu      sync.Mutex
	text    strings.Builder
	written chan struct{} // closed by the next Write; nil if nobody waits for it
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.written != nil {
		close(j.written)
		j.written = nil
	}
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// await waits until the log contains the text.
func (j *journal) await(t *testing.T, text string) {
	t.Helper()
	for end := time.After(2 * logEvery); ; {
		found, written := j.look(text)
		if found {
			return
		}
		select {
		case <-written:
		case <-end:
			t.Fatalf("no %q in the log %s", text, j)
		}
	}
}

// look reports whether the log contains the text, and returns a channel that the next
// Write closes.
func (j *journal) look(text string) (found bool, written <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.written == nil {
		j.written = make(chan struct{})
	}
	return strings.Contains(j.text.String(), text), j.written
}

func logged() (*zap.Logger, *journal) {
	out := new(journal)
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(out), zapcore.DebugLevel)), out
}

// Every way to authenticate works, and no secret is logged.
func TestAccess(t *testing.T) {
	host := withPassword(t)
	quoted := url.UserPassword("me", secret).String()
	credsHost, issue := operated(t, func(*jwt.AccountClaims) {})
	creds := secretFile(t, issue(time.Time{}))
	for name, c := range map[string]Config{
		"user file":       {URL: "nats://" + host, Access: Access{UserFile: secretFile(t, "me:"+secret+"\n")}},
		"address":         {URL: "nats://" + quoted + "@" + host},
		"several servers": {URL: "nats://" + quoted + "@127.0.0.1:1, nats://" + quoted + "@" + host},
		"credentials":     {URL: "nats://" + credsHost, Access: Access{Creds: creds}},
	} {
		t.Run(name, func(t *testing.T) {
			log, out := logged()
			c.Log, c.Name, c.Role = log, "test", "worker"
			b := connect(t, c)
			must(t, b.Ready())
			b.Close()
			if b.Ready() == nil {
				t.Error("a closed connection reports that it is ready")
			}
			out.await(t, "connected to NATS")
			out.await(t, "closed the connection")
			seed, err := os.ReadFile(creds)
			must(t, err)
			wantNoSecret(t, out.String(), quoted, string(seed))
		})
	}
}

// While a client waits for a server, the log names the server and the reason.
func TestWaitingSaysWhy(t *testing.T) {
	port, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	host := port.Addr().String()
	must(t, port.Close())
	log, out := logged()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := Connect(ctx, Config{URL: "nats://" + url.UserPassword("me", secret).String() + "@" + host, Log: log})
		ended <- err
	}()
	out.await(t, `waiting for the NATS server","what":"connect","server":"nats://`+host+`","for":"dial tcp `+host)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), host) {
		t.Errorf("error %v", err)
	}
	wantNoSecret(t, out.String())
}

// wantNoSecret fails if the text holds a secret in any spelling.
func wantNoSecret(t *testing.T, text string, more ...string) {
	t.Helper()
	for _, word := range append(more, secret, url.QueryEscape(secret), url.PathEscape(secret), "s3cret") {
		if strings.Contains(text, word) {
			t.Errorf("the text contains a secret: %s", text)
		}
	}
}

// operated starts a server in operator mode whose only account has the limits. issue returns new credentials of its user,
// which expire at the given time, if it is not zero.
func operated(t *testing.T, limit func(*jwt.AccountClaims)) (host string, issue func(expires time.Time) string) {
	t.Helper()
	pair := func(create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		p, err := create()
		must(t, err)
		public, err := p.PublicKey()
		must(t, err)
		return p, public
	}
	operatorKey, operatorID := pair(nkeys.CreateOperator)
	accountKey, accountID := pair(nkeys.CreateAccount)
	userKey, userID := pair(nkeys.CreateUser)
	operator, err := jwt.NewOperatorClaims(operatorID).Encode(operatorKey)
	must(t, err)
	trusted, err := jwt.DecodeOperatorClaims(operator)
	must(t, err)
	claims := jwt.NewAccountClaims(accountID)
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit}
	limit(claims)
	account, err := claims.Encode(operatorKey)
	must(t, err)
	_, systemID := pair(nkeys.CreateAccount)
	system, err := jwt.NewAccountClaims(systemID).Encode(operatorKey)
	must(t, err)
	issue = func(expires time.Time) string {
		claims := jwt.NewUserClaims(userID)
		if !expires.IsZero() {
			claims.Expires = expires.Unix()
		}
		user, err := claims.Encode(accountKey)
		must(t, err)
		seed, err := userKey.Seed()
		must(t, err)
		file, err := jwt.FormatUserConfig(user, seed)
		must(t, err)
		return string(file)
	}
	resolver := new(server.MemAccResolver)
	must(t, errors.Join(resolver.Store(accountID, account), resolver.Store(systemID, system)))
	return guarded(t, &server.Options{TrustedOperators: []*jwt.OperatorClaims{trusted}, AccountResolver: resolver, SystemAccount: systemID}), issue
}

// A password file may be replaced while the program runs. The next connection reads it
// again.
func TestUserFileIsReadAgain(t *testing.T) {
	file := secretFile(t, "me:old")
	options := func(password string) *server.Options {
		return &server.Options{Users: []*server.User{{Username: "me", Password: password}}}
	}
	a := Access{UserFile: file}
	b := connect(t, Config{URL: "nats://" + guarded(t, options("old")), Access: a})
	b.Close()
	must(t, os.WriteFile(file, []byte("me:new"), 0o600))
	connect(t, Config{URL: "nats://" + guarded(t, options("new")), Access: a})
}

// A server that refuses the user causes an error soon, and the error contains no secret.
func TestAccessRefused(t *testing.T) {
	host := withPassword(t)
	for name, c := range map[string]Config{
		"nobody":         {URL: "nats://" + host},
		"wrong password": {URL: "nats://" + host, Access: Access{UserFile: secretFile(t, "me:s3cret")}},
		"in the address": {URL: "nats://me:s3cret@" + host},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			log, out := logged()
			c.Log = log
			b, err := Connect(ctx, c)
			if err == nil {
				b.Close()
				t.Fatal("the server admitted the client")
			}
			if ctx.Err() != nil || !strings.Contains(err.Error(), "Authorization") {
				t.Errorf("error %v", err)
			}
			wantNoSecret(t, err.Error()+out.String())
		})
	}
}

// The error of an IPv6 address without brackets has the right form.
func TestBracketsOfIPv6(t *testing.T) {
	for _, address := range []string{"nats://::1:4222", "::1", "nats://h,nats://fe80::1:4222"} {
		if _, err := Redacted(address); err == nil || !strings.Contains(err.Error(), "nats://[::1]:4222") {
			t.Errorf("%s: %v", address, err)
		}
	}
	if _, err := Redacted("nats://[::1]:4222,[::1]"); err != nil {
		t.Error(err)
	}
}

func TestAccessFiles(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	junk := secretFile(t, "s3cret\nof two lines\n")
	plain := "nats://127.0.0.1:1"
	for name, test := range map[string]struct {
		url         string
		access      Access
		usage, file bool
	}{
		"no creds":                {plain, Access{Creds: missing}, false, true},
		"invalid creds":           {plain, Access{Creds: junk}, false, true},
		"a folder":                {plain, Access{Creds: t.TempDir()}, false, true},
		"no nkey":                 {plain, Access{NKey: missing}, false, true},
		"invalid nkey":            {plain, Access{NKey: junk}, false, true},
		"no user file":            {plain, Access{UserFile: missing}, false, true},
		"invalid user file":       {plain, Access{UserFile: junk}, false, true},
		"no authority":            {plain, Access{TLSCA: missing}, false, true},
		"invalid authority":       {plain, Access{TLSCA: junk}, false, true},
		"no certificate":          {plain, Access{TLSCert: missing, TLSKey: junk}, false, true},
		"invalid certificate":     {plain, Access{TLSCert: junk, TLSKey: junk}, false, true},
		"certificate, no key":     {plain, Access{TLSCert: junk}, true, false},
		"two users":               {plain, Access{Creds: junk, NKey: junk}, true, false},
		"also in the address":     {"nats://me:s3cret@h:1", Access{UserFile: junk}, true, false},
		"IPv6 without brackets":   {"nats://me:s3cret@::1:4222", Access{}, true, false},
		"scheme":                  {"http://me:s3cret@h:1", Access{}, true, false},
		"password not encoded":    {"nats://me:s3cret /x@h:1", Access{}, true, false},
		"password with a wrong %": {"nats://me:s3cret%zz@h:1", Access{}, true, false},
		"no scheme":               {"me:s3cret%zz@h:1", Access{}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			b, err := Connect(ctx, Config{URL: test.url, Access: test.access})
			if err == nil {
				b.Close()
				t.Fatal("accepted")
			}
			if ctx.Err() != nil {
				t.Fatalf("waited for the server: %v", err)
			}
			wantNoSecret(t, err.Error())
			if fault.IsUsage(err) != test.usage {
				t.Errorf("expected usage error %v, got: %v", !test.usage, err)
			}
			if test.file && !strings.Contains(err.Error(), os.TempDir()) {
				t.Errorf("the error names no file: %v", err)
			}
		})
	}
}
