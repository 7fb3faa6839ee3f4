package bus

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"shaver/internal/base/long"
	"shaver/internal/jobs/bus/embedded"
)

// listen calls serve with every connection to a free port, until the test ends.
func listen(t *testing.T, serve func(net.Conn)) (host string) {
	t.Helper()
	port, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = port.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			conn, err := port.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			go serve(conn)
		}
	}()
	return port.Addr().String()
}

// nobody returns an address at which nothing listens.
func nobody(t *testing.T) (host string) {
	t.Helper()
	port, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer port.Close()
	return port.Addr().String()
}

// announcing starts a server that says it has this version. It is enough of a NATS server
// for a client to connect.
func announcing(t *testing.T, version string) (host string) {
	return listen(t, func(conn net.Conn) {
		fmt.Fprintf(conn, "INFO {\"server_id\":\"x\",\"version\":%q,\"proto\":1,\"headers\":true,\"max_payload\":1048576}\r\n", version)
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			if lines.Text() == "PING" {
				fmt.Fprint(conn, "PONG\r\n")
			}
		}
	})
}

// withTLS starts a server that requires TLS. Its certificate is signed by nobody.
func withTLS(t *testing.T) (host, authority string) {
	t.Helper()
	config, authority := certificate(t)
	return guarded(t, &server.Options{TLSConfig: config}), authority
}

// certificate returns the configuration of a server with a new certificate, and the file of its authority.
func certificate(t *testing.T) (config *tls.Config, authority string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	authority = secretFile(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, authority
}

// withoutJetStream starts a server that has no JetStream.
func withoutJetStream(t *testing.T) (host string) {
	t.Helper()
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	must(t, err)
	ns.Start()
	t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
	if !ns.ReadyForConnections(10 * time.Second) {
		t.Fatal("not ready")
	}
	return ns.Addr().String()
}

// withoutLeader starts one server of a cluster whose other servers are missing.
func withoutLeader(t *testing.T) (host string) {
	return guarded(t, &server.Options{
		ServerName: "n1", Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: server.RANDOM_PORT},
		Routes: server.RoutesFromStr("nats://" + nobody(t) + ",nats://" + nobody(t)),
	})
}

// While there is no server that can be used, a log line says so within two seconds, and
// Connect gives up after Wait with an error that names the server and the reason.
func TestConnectGivesUp(t *testing.T) {
	long.Test(t)
	for name, test := range map[string]struct{ host, reason string }{
		"nobody listens":    {nobody(t), "refused"},
		"no answer":         {listen(t, func(net.Conn) {}), "no answer"},
		"JetStream is off":  {withoutJetStream(t), "JetStream is off"},
		"no leader":         {withoutLeader(t), "leader"},
		"two, both missing": {nobody(t) + "," + nobody(t), "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, out := logged()
			begun, ended := time.Now(), make(chan error, 1)
			go func() {
				_, err := Connect(t.Context(), Config{URL: test.host, Wait: 3 * time.Second, Log: log})
				ended <- err
			}()
			out.await(t, `"msg":"waiting`)
			if took := time.Since(begun); took > 2*time.Second {
				t.Errorf("the first line came after %v", took)
			}
			first, _, _ := strings.Cut(test.host, ",")
			if !strings.Contains(out.String(), first) {
				t.Errorf("the log does not name %s: %s", first, out)
			}
			err := <-ended
			if took := time.Since(begun); took < 2900*time.Millisecond || took > 5*time.Second {
				t.Errorf("gave up after %v", took)
			}
			for _, part := range []string{"gave up after 3s", "nats://" + first, test.reason} {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("error %v, expected %q", err, part)
				}
			}
		})
	}
}

// A server that cannot be used until somebody changes a configuration is an error at
// once. For an unknown host and a server without JetStream this holds only if somebody
// waits for an answer.
func TestConnectHopeless(t *testing.T) {
	long.Test(t)
	tlsHost, authority := withTLS(t)
	_, stranger := withTLS(t)
	plain := startServer(t, embedded.Config{Listen: "127.0.0.1:0"}).URL()
	plain = strings.TrimPrefix(plain, "nats://")
	password := withPassword(t)
	old := announcing(t, "2.9.25")
	for name, test := range map[string]struct {
		c      Config
		always bool // whether it is an error at once for everybody
		reason string
	}{
		"TLS on a plain server":       {Config{URL: "tls://" + plain}, true, "does not offer TLS"},
		"an authority, plain server":  {Config{URL: plain, Access: Access{TLSCA: authority}}, true, "does not offer TLS"},
		"certificate of nobody":       {Config{URL: "tls://" + tlsHost}, true, "not trusted"},
		"plain on a TLS server":       {Config{URL: tlsHost}, true, "not trusted"},
		"another authority":           {Config{URL: tlsHost, Access: Access{TLSCA: stranger}}, true, "not trusted"},
		"another name":                {Config{URL: strings.Replace(tlsHost, "127.0.0.1", "localhost", 1), Access: Access{TLSCA: authority}}, true, "not trusted"},
		"wrong password":              {Config{URL: "me:no@" + password}, true, "refuses this user"},
		"old server":                  {Config{URL: old}, true, "version 2.9.25, and shaver needs 2.10.0 or later"},
		"three servers, all hopeless": {Config{URL: "tls://" + plain + ",tls://" + old + ",tls://" + plain}, true, "does not offer TLS"},
		"unknown host":                {Config{URL: "nats://no..host:4222"}, false, "unknown host"},
		"JetStream is off":            {Config{URL: withoutJetStream(t)}, false, "JetStream is off"},
		"not NATS":                    {Config{URL: listen(t, func(conn net.Conn) { fmt.Fprint(conn, "PING\r\n") })}, false, "expected a NATS server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, interactive := range []bool{true, false} {
				c := test.c
				c.Interactive, c.Wait = interactive, time.Minute
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				if !interactive && !test.always {
					ctx, cancel = context.WithTimeout(t.Context(), 1500*time.Millisecond)
				}
				b, err := Connect(ctx, c)
				waited := ctx.Err() != nil
				cancel()
				if err == nil {
					b.Close()
					t.Fatal("connected")
				}
				if waited != (!interactive && !test.always) {
					t.Errorf("interactive %v: waited: %v, error %v", interactive, waited, err)
				}
				host, err2 := Redacted(c.URL)
				must(t, err2)
				if !waited && !strings.Contains(err.Error(), host) || !strings.Contains(err.Error(), test.reason) {
					t.Errorf("interactive %v: error %v, expected %s and %q", interactive, err, host, test.reason)
				}
			}
		})
	}
}

// If one of several servers cannot be used and another is only down, Connect waits.
func TestConnectOneHopeless(t *testing.T) {
	t.Parallel() // the test waits most of the time
	plain := strings.TrimPrefix(startServer(t, embedded.Config{Listen: "127.0.0.1:0"}).URL(), "nats://")
	_, err := Connect(t.Context(), Config{URL: "tls://" + plain + ",tls://" + nobody(t), Wait: 2 * time.Second, Interactive: true})
	if _, ok := errors.AsType[reached](err); !ok {
		t.Errorf("error %v, expected to give up after the wait", err)
	}
}

func TestVersions(t *testing.T) {
	for version, want := range map[string]bool{
		"2.10.0": true, "2.10.29": true, "2.15.2": true, "3.0.0": true, "2.12.0-RC.1": true, "v2.11.4": true, "": true, "dev": true,
		"2.9.99": false, "2.9.25-beta.1": false, "1.4.0": false, "0.9.6": false,
	} {
		if err := checkVersion(version); (err == nil) != want {
			t.Errorf("version %q: %v", version, err)
		}
	}
}

// If the server is gone, an interactive client waits no longer than Wait. The error names
// the server.
func TestInteractiveGivesUp(t *testing.T) {
	t.Parallel() // the test waits most of the time
	s := startServer(t, embedded.Config{Listen: "127.0.0.1:0"})
	log, out := logged()
	b := connect(t, Config{URL: s.URL(), Interactive: true, Wait: 2 * time.Second, Log: log})
	setUp(t, b, testQueue)
	if jobs, err := b.Jobs(t.Context()); err != nil || len(jobs) != 0 {
		t.Fatalf("%v, %v", jobs, err)
	}
	s.Shutdown()
	begun := time.Now()
	_, err := b.Jobs(t.Context())
	if took := time.Since(begun); took > 4*time.Second {
		t.Errorf("gave up after %v", took)
	}
	if _, ok := errors.AsType[reached](err); !ok || !strings.Contains(err.Error(), s.URL()) || !strings.Contains(err.Error(), "no connection") {
		t.Errorf("error %v", err)
	}
	out.await(t, `"msg":"waiting","what":"list jobs","server":"`+s.URL())
}

// A program that runs a job waits without limit for a server that it was connected to.
func TestConnectedSurvives(t *testing.T) {
	t.Parallel() // the test waits most of the time
	dir := t.TempDir()
	s := startServer(t, embedded.Config{StoreDir: dir, Listen: "127.0.0.1:0", SyncAlways: true})
	log, out := logged()
	b := connect(t, Config{URL: s.URL(), Wait: 500 * time.Millisecond, Log: log})
	setUp(t, b, testQueue)
	s.Shutdown()
	published := make(chan error, 1)
	go func() { published <- b.PublishTask(t.Context(), newTask(1, 0)) }()
	out.await(t, `"msg":"waiting","what":"publish task`) // a second later, which is more than Wait
	startServer(t, embedded.Config{StoreDir: dir, Listen: strings.TrimPrefix(s.URL(), "nats://"), SyncAlways: true})
	must(t, <-published)
}

// The address in logs and errors has neither user nor password.
func TestAddressHasNoSecret(t *testing.T) {
	found, err := Redacted("nats://" + url.UserPassword("me", secret).String() + "@127.0.0.1:1, me:s3cret@h:2,tls://h")
	if want := "nats://127.0.0.1:1, nats://h:2, tls://h"; found != want || err != nil {
		t.Errorf("address %q (%v), expected %q", found, err, want)
	}
}

// A client leaves a server whose JetStream has not answered for a while, if there is
// another one.
func TestLeavesSilentServer(t *testing.T) {
	long.Test(t)
	t.Parallel() // the test waits most of the time
	servers := map[string]*server.Server{}
	var urls []string
	for range 2 {
		s := started(t, &server.Options{})
		servers[s.ClientURL()], urls = s, append(urls, s.ClientURL())
	}
	log, out := logged()
	b := connect(t, Config{URL: strings.Join(urls, ","), Log: log})
	b.patience.silence = 50 * time.Millisecond
	first := b.nc.ConnectedUrl()
	must(t, servers[first].DisableJetStream())
	setUp(t, b, testQueue)
	if now := b.nc.ConnectedUrl(); now == first || servers[now] == nil {
		t.Errorf("connected to %s, at first to %s", now, first)
	}
	out.await(t, "trying another one")
}
