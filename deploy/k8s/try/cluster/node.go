//go:build linux

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const pauseImage = "localhost/pause:1"

// Join adds a node with containerd, a kubelet, Services, DNS, volumes and enforced network
// policies.
func (c *Cluster) Join(ctx context.Context) error {
	if err := c.join(ctx); err != nil {
		return fmt.Errorf("starting the node: %w", err)
	}
	return nil
}

func (c *Cluster) join(ctx context.Context) error {
	if err := c.configure(); err != nil {
		return err
	}
	if err := c.space.daemon("containerd", "containerd", "--config", c.Dir+"/containerd.toml"); err != nil {
		return err
	}
	pause := Image{Name: pauseImage, Files: map[string]string{"/pause": c.bin + "/pause"}, Entrypoint: []string{"/pause"}, User: "65532:65532"}
	coredns := Image{Name: "localhost/coredns:1", Files: map[string]string{"/coredns": c.bin + "/coredns"}, Entrypoint: []string{"/coredns"}}
	ready := func() error { _, err := c.ctr(ctx, "version"); return err }
	if err := c.until(ctx, time.Minute, "containerd", ready); err != nil {
		return err
	}
	if err := errors.Join(c.Load(ctx, pause), c.Load(ctx, coredns)); err != nil {
		return err
	}
	err := c.space.daemon("kubelet", c.bin+"/kubelet", "--config="+c.Dir+"/kubelet.yaml", "--kubeconfig="+c.Kubeconfig(), "--hostname-override="+node,
		"--root-dir="+c.Dir+"/kubelet", "--cert-dir="+c.Dir+"/pki/kubelet", "--node-ip="+address)
	if err != nil {
		return err
	}
	err = c.space.daemon("kube-proxy", c.bin+"/kube-proxy", "--kubeconfig="+c.Kubeconfig(), "--hostname-override="+node, "--proxy-mode=iptables", "--cluster-cidr="+pods,
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0", "--bind-address="+address,
		"--metrics-bind-address=127.0.0.1:10249", "--healthz-bind-address=127.0.0.1:10256")
	if err != nil {
		return err
	}
	if err := c.until(ctx, 2*time.Minute, "node", func() error { return c.nodeReady(ctx) }); err != nil {
		return err
	}
	for _, name := range []string{"dns.yaml", "volumes.yaml"} {
		text, err := os.ReadFile(filepath.Join(c.data, name))
		if err != nil {
			return err
		}
		yaml := strings.NewReplacer("CLUSTER_DNS", dns, "VOLUMES", c.Dir+"/volumes", "NODE", node).Replace(string(text))
		if name == "volumes.yaml" {
			yaml = c.volumes(yaml)
		}
		apply := c.Kubectl("apply", "--filename=-")
		apply.Stdin = yaml
		if r := apply.Do(ctx); r.Code != 0 {
			return fmt.Errorf("%s: %s", name, r.Text())
		}
	}
	loop, stop := context.WithCancel(context.Background())
	c.stop = stop
	go c.enforce(loop)
	if r := c.Kubectl("--namespace=kube-system", "rollout", "status", "deployment/coredns", "--timeout=90s").Do(ctx); r.Code != 0 {
		return errors.New("DNS: " + r.Text())
	}
	return nil
}

// volumes repeats the last document of the file for each volume.
func (c *Cluster) volumes(yaml string) string {
	head, volume, _ := strings.Cut(yaml, "---\n# each volume\n")
	var b strings.Builder
	b.WriteString(head)
	for i := range 10 {
		name := fmt.Sprint(i)
		os.MkdirAll(filepath.Join(c.Dir, "volumes", name), 0o755)
		b.WriteString("---\n" + strings.ReplaceAll(volume, "NUMBER", name))
	}
	return b.String()
}

// nodeReady returns an error until the node is ready.
func (c *Cluster) nodeReady(ctx context.Context) error {
	var n struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := c.Read(ctx, "/api/v1/nodes/"+node, &n); err != nil {
		return err
	}
	for _, cond := range n.Status.Conditions {
		if cond.Type == "Ready" && cond.Status == "True" {
			return nil
		}
		if cond.Type == "Ready" {
			return errors.New(cond.Message)
		}
	}
	return errors.New("no condition Ready")
}

// ctr runs containerd's client.
func (c *Cluster) ctr(ctx context.Context, args ...string) (string, error) {
	return c.run(ctx, append([]string{"ctr", "--address", c.Dir + "/containerd.sock", "--namespace", "k8s.io"}, args...)...)
}

// Load makes an image and gives it to containerd.
func (c *Cluster) Load(ctx context.Context, image Image) error {
	file := filepath.Join(c.Dir, "image.tar."+strings.NewReplacer("/", "-", ":", "-").Replace(image.Name))
	defer os.Remove(file)
	if err := image.Write(file); err != nil {
		return err
	}
	_, err := c.ctr(ctx, "images", "import", file)
	return err
}

// configure writes the files of containerd, the network plugins and the kubelet.
func (c *Cluster) configure() error {
	// The plugin ptp routes every packet between pods, so that rules of FORWARD apply to it.
	network := map[string]any{"cniVersion": "0.4.0", "name": "pods", "plugins": []any{
		map[string]any{"type": "ptp", "ipMasq": false, "ipam": map[string]any{
			"type": "host-local", "dataDir": c.Dir + "/addresses", "ranges": [][]any{{map[string]string{"subnet": pods}}}, "routes": []any{map[string]string{"dst": "0.0.0.0/0"}},
		}},
		map[string]any{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}},
	}}
	text, err := json.Marshal(network)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Dir+"/network", 0o755); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(c.Dir+"/network/pods.conflist", text, 0o644),
		os.WriteFile(c.Dir+"/containerd.toml", fmt.Appendf(nil, `version = 2
root = "%[1]s/containerd"
state = "/run/containerd"
[grpc]
  address = "%[1]s/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "%[2]s"
  netns_mounts_under_state_dir = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "%[1]s/network"
`, c.Dir, pauseImage), 0o644),
		os.WriteFile(c.Dir+"/kubelet.yaml", fmt.Appendf(nil, `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: %[1]s/pki/ca.crt}}
authorization: {mode: AlwaysAllow}
address: %[2]s
readOnlyPort: 0
healthzPort: 0
cgroupDriver: cgroupfs
cgroupRoot: /%[3]s
failSwapOn: false
failCgroupV1: false
enforceNodeAllocatable: []
clusterDNS: [%[4]s]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix://%[1]s/containerd.sock
evictionHard: {memory.available: 50Mi, nodefs.available: 100Mi, imagefs.available: 100Mi}
imageGCHighThresholdPercent: 100
localStorageCapacityIsolation: true
podLogsDir: %[1]s/podlogs
volumePluginDir: %[1]s/plugins
resolvConf: ""
shutdownGracePeriod: 0s
`, c.Dir, address, c.space.cgroup, dns), 0o644),
	)
}
