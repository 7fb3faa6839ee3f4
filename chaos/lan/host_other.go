//go:build !linux

package lan

import (
	"errors"
	"net/netip"
	"os"
)

// host is a network namespace, which only Linux has.
type host struct {
	address netip.Addr
	device  *os.File
}

var errNoHosts = errors.New("network namespaces need Linux")

func newHost(netip.Addr) (*host, error)   { return nil, errNoHosts }
func (h *host) within(func() error) error { return errNoHosts }
func (h *host) close()                    {}
func Available() error                    { return errNoHosts }
