package autoscale

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"shaver/internal/base/fault"
)

// fake is a Deployment in memory.
type fake struct {
	replicas int
	set      []int
	err      error
}

func (f *fake) Get(context.Context) (Size, error) {
	return Size{Wanted: f.replicas, Replicas: f.replicas}, f.err
}

func (f *fake) Set(_ context.Context, replicas int, _ Size) error {
	f.replicas = replicas
	f.set = append(f.set, replicas)
	return nil
}

// Workers start at once and end only after the delay. A restart, a gap in the readings and an
// error of the API server begin the delay again.
func TestStep(t *testing.T) {
	f := &fake{}
	s := &Scaler{Rule: Rule{Max: 4, PerWorker: 1, DownAfter: time.Minute}, Deployment: f, Log: zap.NewNop()}
	begun := time.Unix(1000, 0)
	some := func(waiting, held int) *Demand { return &Demand{waiting, held} }
	failure := errors.New("no API server")
	for i, step := range []struct {
		after  time.Duration
		demand *Demand
		err    error
		want   int
	}{
		{0, some(0, 0), nil, 0},
		{10 * time.Second, some(9, 0), nil, 4},
		{20 * time.Second, some(5, 4), nil, 4},
		{30 * time.Second, some(0, 1), nil, 4},
		{70 * time.Second, some(0, 1), nil, 4},
		{81 * time.Second, some(0, 1), nil, 1}, // the last need of 4 was at 20 s
		{90 * time.Second, some(0, 0), nil, 1},
		{140 * time.Second, nil, nil, 1}, // NATS cannot be read
		{300 * time.Second, nil, nil, 1},
		{310 * time.Second, some(0, 0), nil, 1},
		{330 * time.Second, some(0, 0), failure, 1},
		{371 * time.Second, some(0, 0), nil, 1},
		{420 * time.Second, some(0, 0), nil, 1},
		{432 * time.Second, some(0, 0), nil, 0},
	} {
		f.err = step.err
		if _, _, err := s.Step(t.Context(), begun.Add(step.after), step.demand); !errors.Is(err, step.err) {
			t.Errorf("step %d: %v", i, err)
		}
		if f.replicas != step.want {
			t.Errorf("step %d, at %v: %d replicas, expected %d", i, step.after, f.replicas, step.want)
		}
	}
	if want := []int{4, 1, 0}; !slices.Equal(f.set, want) {
		t.Errorf("the replicas were set to %v, expected %v", f.set, want)
	}
	// A new process does not know what was needed before.
	f.replicas = 3
	s = &Scaler{Rule: s.Rule, Deployment: f, Log: zap.NewNop()}
	if _, _, err := s.Step(t.Context(), begun, some(0, 0)); err != nil || f.replicas != 3 {
		t.Errorf("%d replicas after a restart, %v", f.replicas, err)
	}
}

// apiServer is the part of the API server of Kubernetes that sizes one Deployment. It refuses
// what the real one refuses.
type apiServer struct {
	mu       sync.Mutex
	token    string
	replicas int
	version  int
	broken   int // status of the next answer, 0 = as usual
	patches  []string
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	refuse := func(code int, message string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","message":%q}`, message)
	}
	switch {
	case a.broken != 0:
		if a.broken == http.StatusFound {
			w.Header().Set("Location", "https://127.0.0.1:1/")
		}
		refuse(a.broken, "broken")
		a.broken = 0
		return
	case r.Header.Get("Authorization") != "Bearer "+a.token:
		refuse(http.StatusUnauthorized, "Unauthorized")
		return
	case r.URL.Path != "/apis/apps/v1/namespaces/jobs/deployments/worker/scale":
		refuse(http.StatusNotFound, "not found: "+r.URL.Path)
		return
	case r.Method == http.MethodPatch:
		if r.Header.Get("Content-Type") != "application/merge-patch+json" {
			refuse(http.StatusUnsupportedMediaType, "unknown patch")
			return
		}
		var patch struct {
			Metadata struct{ ResourceVersion string }
			Spec     struct{ Replicas *int }
		}
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil || patch.Spec.Replicas == nil {
			refuse(http.StatusBadRequest, "bad patch")
			return
		}
		if v := patch.Metadata.ResourceVersion; v != "" && v != fmt.Sprint(a.version) {
			refuse(http.StatusConflict, "the object has been modified")
			return
		}
		a.replicas = *patch.Spec.Replicas
		a.version++
		a.patches = append(a.patches, fmt.Sprint(a.replicas))
	case r.Method != http.MethodGet:
		refuse(http.StatusMethodNotAllowed, "no")
		return
	}
	spec := "{}" // as the API server writes 0
	if a.replicas > 0 {
		spec = fmt.Sprintf(`{"replicas":%d}`, a.replicas)
	}
	fmt.Fprintf(w, `{"kind":"Scale","metadata":{"name":"worker","resourceVersion":"%d"},"spec":%s,"status":{"replicas":%d}}`, a.version, spec, a.replicas)
}

// pod creates the folder of a service account that trusts the server.
func pod(t *testing.T, server *httptest.Server, token string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"token": token + "\n", "namespace": "jobs\n",
		"ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func open(t *testing.T, server *httptest.Server, folder, namespace, name string) *Kubernetes {
	t.Helper()
	k, err := Open(server.URL, folder, namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

// The scaler changes a Deployment through the API server, sends the present token, repeats
// what failed, and does not overwrite what somebody else has changed.
func TestKubernetes(t *testing.T) {
	api := &apiServer{token: "first", version: 7}
	server := httptest.NewTLSServer(api)
	defer server.Close()
	folder := pod(t, server, "first")
	k := open(t, server, folder, "", "worker")
	s := &Scaler{Rule: Rule{Max: 4, PerWorker: 1}, Deployment: k, Log: zap.NewNop()}
	at := time.Unix(1000, 0)
	step := func(waiting int, want string) {
		t.Helper()
		at = at.Add(time.Second)
		_, _, err := s.Step(t.Context(), at, &Demand{Waiting: waiting})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, expected %q", err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "first") || strings.Contains(err.Error(), "second")) {
			t.Errorf("the error %q has a token", err)
		}
	}
	step(3, "")
	api.token = "second"
	step(9, "get the scale of Deployment worker in namespace jobs: the API server answers 401 Unauthorized: Unauthorized")
	if err := os.WriteFile(filepath.Join(folder, "token"), []byte("second"), 0o600); err != nil {
		t.Fatal(err)
	}
	for code, want := range map[int]string{403: "403 Forbidden: broken", 500: "500 Internal Server Error: broken", 302: "302 Found", 429: "429"} {
		api.broken = code
		step(9, want)
	}
	step(2, "") // after errors the present size is kept for the delay, which is 0
	step(9, "")
	step(0, "")
	if want := []string{"3", "4", "0"}; !slices.Equal(api.patches, want) {
		t.Errorf("patches %v, expected %v", api.patches, want)
	}
	size, err := k.Get(t.Context())
	if err != nil || size.Wanted != 0 || size.Replicas != 0 {
		t.Errorf("%+v, %v", size, err)
	}
	api.version++ // somebody else
	if err := k.Set(t.Context(), 1, size); err == nil || !strings.Contains(err.Error(), "409 Conflict: the object has been modified") {
		t.Errorf("%v, expected a conflict", err)
	}
	if _, err := open(t, server, folder, "other", "worker").Get(t.Context()); err == nil || !strings.Contains(err.Error(), "in namespace other: the API server answers 404") {
		t.Errorf("%v, expected 404", err)
	}
}

// The token goes only to a server that the pod's authority has signed.
func TestKubernetesAuthority(t *testing.T) {
	api := &apiServer{token: "secret"}
	trusted := httptest.NewTLSServer(api)
	defer trusted.Close()
	asked := false
	stranger := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	stranger.Config.ErrorLog = zap.NewStdLog(zap.NewNop())
	stranger.TLS = &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}}
	stranger.StartTLS()
	defer stranger.Close()
	folder := pod(t, trusted, "secret")
	if _, err := open(t, stranger, folder, "", "worker").Get(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") || asked {
		t.Errorf("%v, and the request was sent: %v", err, asked)
	}
	// Another authority is read while the process runs.
	k := open(t, trusted, folder, "", "worker")
	if err := os.WriteFile(filepath.Join(folder, "ca.crt"), []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Get(t.Context()); !fault.IsInput(err) {
		t.Errorf("%v, expected an error about ca.crt", err)
	}
	pod := pod(t, trusted, "secret")
	if err := os.Rename(filepath.Join(pod, "ca.crt"), filepath.Join(folder, "ca.crt")); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Get(t.Context()); err != nil {
		t.Errorf("after the authority came back: %v", err)
	}
}

// Outside a pod, or with an invalid name, the Deployment is wrong usage.
func TestInCluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := InCluster("", "worker"); !fault.IsUsage(err) {
		t.Errorf("%v, expected wrong usage", err)
	}
	for _, name := range []string{"", "a/b", "..", "A", strings.Repeat("a", 300), "worker?x"} {
		if _, err := Open("https://127.0.0.1:1", t.TempDir(), "jobs", name); !fault.IsUsage(err) {
			t.Errorf("%q: %v, expected wrong usage", name, err)
		}
	}
	if _, err := Open("https://127.0.0.1:1", t.TempDir(), "", "worker"); err == nil {
		t.Error("no error without a service account")
	}
}

// selfSigned returns a certificate for 127.0.0.1 that nobody trusts.
func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
