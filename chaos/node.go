package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// node is a NATS server with fixed addresses and a fixed folder. Its process may be
// restarted.
type node struct {
	name    string
	client  string // address of clients
	route   string // address of other nodes
	dir     string // folder of its store
	config  string // path of the configuration file
	program string
	routes  []string // route addresses of all nodes
}

// plenty is more bytes than a run stores.
const plenty = 8 << 30

// The ports of a node that has a host of its own.
const clientPort, routePort = 4222, 6222

// newNodes writes the configuration files of nodes to dir. There is one node for each
// address of clients and each address of routes.
func newNodes(program, dir string, clients, routes []string) ([]*node, error) {
	var nodes []*node
	for i := range clients {
		name := fmt.Sprintf("node-%d", i+1)
		nodes = append(nodes, &node{
			name: name, client: clients[i], route: routes[i], program: program,
			dir: filepath.Join(dir, name), config: filepath.Join(dir, name+".conf"), routes: routes,
		})
		if err := nodes[i].configure(plenty); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// configure writes the node's configuration, with room bytes for its streams.
func (n *node) configure(room int64) error {
	var b strings.Builder
	fmt.Fprintf(&b, "server_name: %q\nlisten: %q\n", n.name, n.client)
	fmt.Fprintf(&b, "jetstream { store_dir: %q, sync_interval: always, max_file_store: %d, max_memory_store: %d }\n", n.dir, room, 1<<30)
	if len(n.routes) > 1 {
		// Without advertisement clients reach a node only through their link.
		fmt.Fprintf(&b, "cluster { name: chaos, listen: %q, no_advertise: true, routes: [", n.route)
		for _, route := range n.routes {
			fmt.Fprintf(&b, " %q,", "nats-route://"+route)
		}
		b.WriteString(" ] }\n")
	}
	return os.WriteFile(n.config, []byte(b.String()), 0o600)
}

// freeAddresses returns addresses without a listener. Their ports are below those that
// the system uses for outgoing connections, so they stay free while a node is down.
func freeAddresses(n int) ([]string, error) {
	var found []string
	var held []net.Listener
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	for range 200 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000)))
		if err != nil {
			continue
		}
		held, found = append(held, l), append(found, l.Addr().String())
		if len(found) == n {
			return found, nil
		}
	}
	return nil, fmt.Errorf("found fewer than %d free ports", n)
}

// plain makes connections from this program's own network.
type plain struct{}

func (plain) Dial(network, address string) (net.Conn, error) {
	return net.DialTimeout(network, address, time.Second)
}

// listening reports whether the address has a listener. It connects to the address,
// because a listener of its own could be in the way of a node that starts.
func (r *run) listening(address string) bool {
	c, err := r.dialer.Dial("tcp", address)
	if err == nil {
		c.Close()
	}
	return err == nil
}
