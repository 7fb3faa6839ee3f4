//go:build linux

// Package cluster runs a Kubernetes control plane and one node on this machine, in
// namespaces of its own, with images that it writes itself. It needs root, and neither
// Docker nor a registry. When Stop returns, nothing is left.
package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"shaver/deploy/internal/trial"
)

const (
	address = "10.201.0.1" // of the node and the API server
	node    = "node1"
	pods    = "10.244.0.0/24"
	service = "10.96.0.0/16"
	dns     = "10.96.0.10"
)

// Cluster is a running control plane, and after Join a node.
type Cluster struct {
	Dir string // everything that the cluster writes; removed by Stop

	bin   string
	data  string // folder with this package's manifests
	space *space
	http  *http.Client
	stop  context.CancelFunc // ends the loop that enforces network policies
}

// Start starts etcd, the API server and, if all is true, the controllers and the scheduler.
// The programs must be in the cache.
func Start(ctx context.Context, root, cache string, all bool) (*Cluster, error) {
	sweep()
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("%s%d", prefix, os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	var err error
	c := &Cluster{Dir: dir, bin: filepath.Join(cache, "bin"), data: filepath.Join(root, "deploy", "k8s", "try", "data"), stop: func() {}}
	if c.space, err = newSpace(dir); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	if err := c.control(ctx, all); err != nil {
		return nil, c.failed(err)
	}
	return c, nil
}

// failed stops the cluster and returns err with the last lines of the logs.
func (c *Cluster) failed(err error) error {
	logs, _ := filepath.Glob(filepath.Join(c.Dir, "log", "*"))
	for _, l := range logs {
		text, _ := os.ReadFile(l)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		err = fmt.Errorf("%w\n%s: %s", err, filepath.Base(l), strings.Join(lines[max(0, len(lines)-3):], "\n  "))
	}
	c.Stop()
	return err
}

// Stop ends and removes the cluster.
func (c *Cluster) Stop() error {
	c.stop()
	return c.space.close()
}

// control starts the control plane.
func (c *Cluster) control(ctx context.Context, all bool) error {
	for _, line := range []string{
		"link set lo up", "link add node0 type bridge", "addr add " + address + "/24 dev node0", "link set node0 up",
		"route add default via 10.201.0.254 dev node0",
	} {
		if _, err := c.run(ctx, append([]string{"ip"}, strings.Fields(line)...)...); err != nil {
			return err
		}
	}
	if _, err := c.run(ctx, "sysctl", "-qw", "net.ipv4.ip_forward=1"); err != nil {
		return err
	}
	k, err := newKeys(filepath.Join(c.Dir, "pki"))
	if err != nil {
		return err
	}
	c.http = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DialContext: c.Dial, TLSClientConfig: &tls.Config{RootCAs: k.pool, Certificates: []tls.Certificate{k.admin}},
	}}
	if err := k.kubeconfig(c.Kubeconfig(), "https://"+address+":6443"); err != nil {
		return err
	}
	etcd := "http://127.0.0.1:2379"
	err = c.space.daemon("etcd", "etcd", "--data-dir="+c.Dir+"/etcd/data", "--listen-client-urls="+etcd, "--advertise-client-urls="+etcd,
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380", "--initial-cluster=default=http://127.0.0.1:2380")
	if err != nil {
		return err
	}
	err = c.space.daemon("kube-apiserver", c.bin+"/kube-apiserver", "--etcd-servers="+etcd, "--bind-address="+address, "--advertise-address="+address, "--secure-port=6443",
		"--cert-dir="+k.dir, "--tls-cert-file="+k.file("server.crt"), "--tls-private-key-file="+k.file("server.key"), "--client-ca-file="+k.file("ca.crt"),
		"--service-cluster-ip-range="+service, "--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+k.file("accounts.pub"),
		"--service-account-signing-key-file="+k.file("accounts.key"), "--authorization-mode=RBAC", "--allow-privileged=true",
		"--kubelet-client-certificate="+k.file("admin.crt"), "--kubelet-client-key="+k.file("admin.key"), "--kubelet-preferred-address-types=InternalIP")
	if err != nil {
		return err
	}
	if err := c.until(ctx, 3*time.Minute, "API server", func() error { _, err := c.Get(ctx, "/readyz"); return err }); err != nil || !all {
		return err
	}
	err = c.space.daemon("kube-controller-manager", c.bin+"/kube-controller-manager", "--kubeconfig="+c.Kubeconfig(), "--leader-elect=false", "--controllers=*",
		"--service-account-private-key-file="+k.file("accounts.key"), "--root-ca-file="+k.file("ca.crt"), "--bind-address=127.0.0.1", "--cert-dir="+k.dir+"/controllers")
	if err != nil {
		return err
	}
	return c.space.daemon("kube-scheduler", c.bin+"/kube-scheduler", "--kubeconfig="+c.Kubeconfig(), "--leader-elect=false", "--bind-address=127.0.0.1", "--cert-dir="+k.dir+"/scheduler")
}

// Kubeconfig returns the file with which kubectl and helm reach the cluster.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.Dir, "kubeconfig") }

// Kubectl returns a command that runs kubectl in the network of the cluster.
func (c *Cluster) Kubectl(args ...string) trial.Command { return c.Program("kubectl", args...) }

// Program returns a command that runs one of the built programs in the network of the
// cluster.
func (c *Cluster) Program(name string, args ...string) trial.Command {
	return trial.Command{Args: append([]string{name}, args...), Path: filepath.Join(c.bin, name), Under: c.space.network(), Env: []string{"KUBECONFIG=" + c.Kubeconfig(), "HOME=" + c.Dir}}
}

// Inside returns a command that runs any program in the network of the cluster.
func (c *Cluster) Inside(args ...string) trial.Command {
	return trial.Command{Args: args, Under: c.space.network()}
}

// run runs a program in the network of the cluster and returns its output.
func (c *Cluster) run(ctx context.Context, args ...string) (string, error) {
	r := c.Inside(args...).Do(ctx)
	if r.Code != 0 {
		return r.Out, fmt.Errorf("%s: %s", strings.Join(args, " "), r.Text())
	}
	return r.Out, nil
}

// Dial connects from the network of the cluster. A thread of its own enters that network,
// and ends with the goroutine.
func (c *Cluster) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked
		space, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", c.space.init.Process.Pid))
		if err == nil {
			err = unix.Setns(int(space.Fd()), unix.CLONE_NEWNET)
			space.Close()
		}
		if err != nil {
			done <- result{nil, err}
			return
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

// HTTP returns a client in the network of the cluster. It trusts the API server.
func (c *Cluster) HTTP() *http.Client { return c.http }

// Get returns what the API server answers to a GET of path.
func (c *Cluster) Get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+":6443"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, bytes.TrimSpace(text))
	}
	return text, err
}

// Read decodes the object or list at path into v.
func (c *Cluster) Read(ctx context.Context, path string, v any) error {
	text, err := c.Get(ctx, path)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// until calls try until it succeeds.
func (c *Cluster) until(ctx context.Context, limit time.Duration, what string, try func() error) error {
	for end := time.Now().Add(limit); ; {
		err := try()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case time.Now().After(end):
			return fmt.Errorf("%s: not ready after %v: %w", what, limit, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// API returns the URL of the API server.
func (c *Cluster) API() string { return "https://" + address + ":6443" }
