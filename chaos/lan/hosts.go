// Package lan connects processes of this machine in ways that can be disturbed: by proxies
// on this machine's loopback device, or by a network of hosts that carries packets.
package lan

import (
	"net"
	"net/netip"
	"strings"
	"time"
)

// Hosts are the machines of a cluster: nodes and their clients, which are numbered in this
// order, and the console, from which this program itself reaches the nodes. Disturbances
// leave the console alone.
type Hosts struct {
	wire  wire
	all   []*host // the nodes, the clients, and the console
	nodes int
}

// NewHosts creates the given numbers of nodes and clients.
func NewHosts(nodes, clients int) (*Hosts, error) {
	h := &Hosts{nodes: nodes}
	for i := range nodes + clients + 1 {
		address := netip.AddrFrom4([4]byte{10, 77, 0, byte(1 + i)})
		one, err := newHost(address)
		if err != nil {
			h.Close()
			return nil, err
		}
		h.all = append(h.all, one)
		h.wire.attach(address, one.device)
	}
	return h, nil
}

// Close ends all hosts and kills the processes that were started on them.
func (h *Hosts) Close() {
	for _, one := range h.all {
		one.close()
	}
	h.wire.close()
}

// Within calls f. Sockets and processes that f creates are on host i.
func (h *Hosts) Within(i int, f func() error) error { return h.all[i].within(f) }

// Addresses returns the addresses of the nodes with the port.
func (h *Hosts) Addresses(port uint16) (found []string) {
	for _, one := range h.all[:h.nodes] {
		found = append(found, netip.AddrPortFrom(one.address, port).String())
	}
	return found
}

// Dial connects from the console.
func (h *Hosts) Dial(network, address string) (c net.Conn, err error) {
	err = h.Within(h.console(), func() error {
		c, err = net.DialTimeout(network, address, time.Second)
		return err
	})
	return c, err
}

// Disturb begins a disturbance. undo ends it.
func (h *Hosts) Disturb(d Disturbance) (undo func()) { return h.wire.disturb(d) }

// console returns the number of this program's own host.
func (h *Hosts) console() int { return len(h.all) - 1 }

// everyone returns the set of all hosts except the console.
func (h *Hosts) everyone() Set { return 1<<h.console() - 1 }

// cluster returns the set of the nodes.
func (h *Hosts) cluster() Set { return 1<<h.nodes - 1 }

// Cable returns the connection of host i to all others. The nodes listen on the port.
func (h *Hosts) Cable(i int, port uint16) *Cable { return &Cable{hosts: h, host: i, port: port} }

// Cable connects a host to all others. It must not be used by more than one goroutine.
type Cable struct {
	hosts *Hosts
	host  int
	port  uint16
	undo  func()
}

// URL returns the addresses of the nodes.
func (c *Cable) URL() string { return URLs(c.hosts.Addresses(c.port)) }

// Set changes the weather.
func (c *Cable) Set(w Weather) {
	if c.undo != nil {
		c.undo()
		c.undo = nil
	}
	if w != (Weather{}) {
		c.undo = c.hosts.Disturb(Disturbance{From: SetOf(c.host), To: c.hosts.everyone(), Back: true, Weather: w})
	}
}

// Close has no effect. Hosts.Close ends the host.
func (c *Cable) Close() {}

// URLs returns the addresses in the form of the flag --nats.
func URLs(addresses []string) string {
	var urls []string
	for _, a := range addresses {
		urls = append(urls, "nats://"+a)
	}
	return strings.Join(urls, ",")
}
