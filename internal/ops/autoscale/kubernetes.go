package autoscale

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
)

// serviceAccount is the folder in which a pod finds its token, the certificate of the API
// server's authority, and the name of its namespace.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// Kubernetes is a Deployment of the cluster in which this process runs in a pod. The pod's
// service account needs the verbs get and patch on the resource deployments/scale.
type Kubernetes struct {
	server, namespace, name string
	folder                  string // of the service account

	authority []byte // PEM; the last one that was read
	client    *http.Client
}

// InCluster returns the Deployment with the name. An empty namespace is that of the pod.
func InCluster(namespace, name string) (*Kubernetes, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, fault.Usagef("--scale works only in a pod of Kubernetes: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
	}
	return Open("https://"+net.JoinHostPort(host, port), serviceAccount, namespace, name)
}

// object is what the names of Deployments and namespaces look like.
var object = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

// Open returns the Deployment with the name, through the API server at an address that begins
// with https://. folder has the files of a service account: token, ca.crt and, if namespace is
// empty, namespace.
func Open(server, folder, namespace, name string) (*Kubernetes, error) {
	k := &Kubernetes{server: server, folder: folder, namespace: namespace, name: name}
	if namespace == "" {
		text, err := k.secret("namespace")
		if err != nil {
			return nil, err
		}
		k.namespace = strings.TrimSpace(string(text))
	}
	for what, name := range map[string]string{"Deployment": k.name, "namespace": k.namespace} {
		if len(name) > 253 || !object.MatchString(name) {
			return nil, fault.Usagef("invalid name %q of a %s", name, what)
		}
	}
	return k, nil
}

// most bounds a file of the service account and an answer of the API server, in MiB.
const most = 1

// secret reads a file of the service account. Kubernetes replaces the token about every hour,
// so it is read for each request.
func (k *Kubernetes) secret(name string) ([]byte, error) {
	text, err := files.Small(filepath.Join(k.folder, name), most, "a file of Kubernetes")
	if err != nil {
		return nil, fmt.Errorf("the pod's service account: %w", err)
	}
	return text, nil
}

// connect returns a client that trusts the authority of the API server, and nobody else.
func (k *Kubernetes) connect() (*http.Client, error) {
	authority, err := k.secret("ca.crt")
	if err != nil {
		return nil, err
	}
	if k.client != nil && bytes.Equal(authority, k.authority) {
		return k.client, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, fault.Inputf("file %s: expected a PEM certificate", filepath.Join(k.folder, "ca.crt"))
	}
	k.Close()
	k.authority = authority
	k.client = &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: 5 * time.Second, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true},
		Timeout:   10 * time.Second,
		// A redirect would send the token elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return k.client, nil
}

// Close closes the connections to the API server.
func (k *Kubernetes) Close() {
	if k.client != nil {
		k.client.CloseIdleConnections()
	}
}

// scale is the part of the object Scale (autoscaling/v1) that matters. The API server leaves
// out a number that is 0.
type scale struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion,omitempty"`
	} `json:"metadata"`
	Spec struct {
		Replicas int `json:"replicas"`
	} `json:"spec"`
	Status *struct {
		Replicas int `json:"replicas"`
	} `json:"status,omitempty"`
}

// Get returns the size of the Deployment.
func (k *Kubernetes) Get(ctx context.Context) (Size, error) {
	s, err := k.request(ctx, http.MethodGet, nil)
	if err != nil {
		return Size{}, err
	}
	size := Size{Wanted: s.Spec.Replicas, version: s.Metadata.ResourceVersion}
	if s.Status != nil {
		size.Replicas = s.Status.Replicas
	}
	return size, nil
}

// Set changes the number of replicas, if the Deployment has the version of the size.
func (k *Kubernetes) Set(ctx context.Context, replicas int, was Size) error {
	var s scale
	s.Metadata.ResourceVersion, s.Spec.Replicas = was.version, replicas
	_, err := k.request(ctx, http.MethodPatch, &s)
	return err
}

func (k *Kubernetes) request(ctx context.Context, method string, body *scale) (*scale, error) {
	what := fmt.Sprintf("%s the scale of Deployment %s in namespace %s", map[string]string{http.MethodGet: "get", http.MethodPatch: "change"}[method], k.name, k.namespace)
	answer, err := k.send(ctx, method, body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	defer answer.Body.Close()
	text, err := files.Read(answer.Body, what, most, "an answer of the API server")
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		var status struct{ Message string }
		_ = json.Unmarshal(text, &status) // an answer that is not JSON has no message
		return nil, fmt.Errorf("%s: the API server answers %s: %s", what, answer.Status, cmp.Or(status.Message, "no reason given"))
	}
	s := &scale{}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("%s: the answer of the API server: %w", what, err)
	}
	if s.Spec.Replicas < 0 {
		return nil, fmt.Errorf("%s: the API server reports %d replicas", what, s.Spec.Replicas)
	}
	return s, nil
}

func (k *Kubernetes) send(ctx context.Context, method string, body *scale) (*http.Response, error) {
	token, err := k.secret("token")
	if err != nil {
		return nil, err
	}
	client, err := k.connect()
	if err != nil {
		return nil, err
	}
	address := k.server + "/apis/apps/v1/namespaces/" + url.PathEscape(k.namespace) + "/deployments/" + url.PathEscape(k.name) + "/scale"
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	r.Header.Set("Accept", "application/json")
	if body != nil {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	return client.Do(r)
}
