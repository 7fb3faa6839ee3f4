package main

import (
	"os"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// The server accepts the configurations and understands them as intended.
func TestNodeConfigurations(t *testing.T) {
	for _, n := range []int{1, 3} {
		addresses, err := freeAddresses(2 * n)
		if err != nil {
			t.Fatal(err)
		}
		nodes, err := newNodes("nats-server", t.TempDir(), addresses[:n], addresses[n:])
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, node := range nodes {
			if err := node.configure(12345); err != nil {
				t.Fatal(err)
			}
			o, err := server.ProcessConfigFile(node.config)
			if err != nil {
				text, _ := os.ReadFile(node.config)
				t.Fatalf("%v in\n%s", err, text)
			}
			if o.ServerName != node.name || o.Host != "127.0.0.1" || !o.SyncAlways || o.JetStreamMaxStore != 12345 || o.StoreDir != node.dir {
				t.Errorf("%s: %+v", node.name, o)
			}
			if n == 3 && (len(o.Routes) != 3 || o.Cluster.Host != "127.0.0.1" || !o.Cluster.NoAdvertise) {
				t.Errorf("%s: routes %v, cluster %+v", node.name, o.Routes, o.Cluster)
			}
			if seen[node.client] || seen[node.route] || (&run{dialer: plain{}}).listening(node.client) {
				t.Errorf("%s: %s or %s is used twice", node.name, node.client, node.route)
			}
			seen[node.client], seen[node.route] = true, true
		}
	}
}
