package bus

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"shaver/internal/base/long"
)

// A client that was connected outlives the rotation of its password, nkey, credentials or certificates,
// whether the server or the file changes first. While the server refuses the client, the log says why,
// at most once in fifteen seconds, and so does the error of a request that is given up.
func TestRotation(t *testing.T) {
	long.Test(t)
	t.Parallel() // the test waits most of the time
	key := func() (seed, public string) {
		pair, err := nkeys.CreateUser()
		must(t, err)
		s, err := pair.Seed()
		must(t, err)
		public, err = pair.PublicKey()
		must(t, err)
		return string(s), public
	}
	oldSeed, oldKey := key()
	newSeed, newKey := key()
	oldTLS, oldAuthority := certificate(t)
	newTLS, newAuthority := certificate(t)
	read := func(file string) string {
		content, err := os.ReadFile(file)
		must(t, err)
		return string(content)
	}
	password := func(p string) *server.Options {
		return &server.Options{Users: []*server.User{{Username: "me", Password: p}}}
	}
	for name, test := range map[string]struct {
		before, after     *server.Options // of the server
		content, replaced string          // of the client's file
		access            func(file string) Access
		reason            string
	}{
		"password": {password("old"), password("new"), "me:old", "me:new", func(f string) Access { return Access{UserFile: f} }, "the server refuses this user"},
		"nkey": {&server.Options{Nkeys: []*server.NkeyUser{{Nkey: oldKey}}}, &server.Options{Nkeys: []*server.NkeyUser{{Nkey: newKey}}}, oldSeed, newSeed,
			func(f string) Access { return Access{NKey: f} }, "the server refuses this user"},
		"certificate": {&server.Options{TLSConfig: oldTLS}, &server.Options{TLSConfig: newTLS}, read(oldAuthority), read(newAuthority),
			func(f string) Access { return Access{TLSCA: f} }, "x509: certificate signed by unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := secretFile(t, test.content)
			dir := t.TempDir()
			first := startedIn(t, test.before, dir, server.RANDOM_PORT)
			log, out := logged()
			url, port := first.Addr().String(), first.Addr().(*net.TCPAddr).Port
			b := connect(t, Config{URL: url, Access: test.access(file), Log: log})
			hasty := connect(t, Config{URL: url, Access: test.access(file), Interactive: true, Wait: 3 * time.Second})
			setUp(t, b, testQueue)
			first.Shutdown()
			first.WaitForShutdown()
			startedIn(t, test.after, dir, port)
			published := make(chan error, 1)
			go func() { published <- b.PublishTask(t.Context(), newTask(1, 0)) }()
			if _, err := hasty.Jobs(t.Context()); err == nil || !strings.Contains(err.Error(), test.reason) {
				t.Errorf("error %v, expected %q", err, test.reason)
			}
			out.await(t, test.reason)
			if n := strings.Count(out.String(), test.reason); n > 3 {
				t.Errorf("%d lines in three seconds: %s", n, out)
			}
			must(t, os.WriteFile(file, []byte(test.replaced), 0o600))
			must(t, <-published)
		})
	}
}

// A client whose credentials expire works again once somebody has renewed the file.
func TestExpiredCredentials(t *testing.T) {
	long.Test(t)
	t.Parallel() // the test waits most of the time
	host, issue := operated(t, func(*jwt.AccountClaims) {})
	file := secretFile(t, issue(time.Now().Add(2*time.Second)))
	log, out := logged()
	b := connect(t, Config{URL: host, Access: Access{Creds: file}, Log: log})
	setUp(t, b, testQueue)
	// The server says "expired" only in the second in which the credentials do, later "authorization violation".
	out.await(t, `"cannot reconnect to NATS","error":"the server refuses this user: nats: auth`)
	published := make(chan error, 1)
	go func() { published <- b.PublishTask(t.Context(), newTask(1, 0)) }()
	out.await(t, `"msg":"waiting","what":"publish task`)
	must(t, os.WriteFile(file, []byte(issue(time.Time{})), 0o600))
	must(t, <-published)
}
