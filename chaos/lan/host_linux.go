package lan

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// host is a network namespace with one device, whose packets this program carries. The
// namespace has no name. It exists for as long as this program or a process in it, so
// nothing is left of it even if this program is killed.
type host struct {
	address netip.Addr
	device  *os.File
	work    chan func()
	done    chan struct{} // closed when the thread of the host has ended
}

// device is the name of a host's device in its namespace.
const device = "wire"

// newHost creates a host with the address and connects it to the wire.
func newHost(address netip.Addr) (*host, error) {
	h := &host{address: address, work: make(chan func()), done: make(chan struct{})}
	made := make(chan error)
	go func() {
		// The thread never leaves the namespace and ends with the goroutine. Processes
		// that it starts are in the namespace too, and are killed when it ends.
		runtime.LockOSThread()
		defer close(h.done)
		err := h.make()
		made <- err
		if err != nil {
			return
		}
		for f := range h.work {
			f()
		}
	}()
	if err := <-made; err != nil {
		return nil, err
	}
	return h, nil
}

// make moves the calling thread into a new namespace with a device.
func (h *host) make() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("new network namespace: %w", err)
	}
	const tun = "/dev/net/tun"
	fd, err := unix.Open(tun, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", tun, err)
	}
	if err := h.configure(fd); err != nil {
		unix.Close(fd)
		return err
	}
	h.device = os.NewFile(uintptr(fd), tun)
	return nil
}

// configure gives the device its address and starts it and the loopback device.
func (h *host) configure(tun int) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	set := func(name, what string, fd int, request uint, fill func(*unix.Ifreq) error) error {
		r, err := unix.NewIfreq(name)
		if err == nil {
			err = errors.Join(fill(r), unix.IoctlIfreq(fd, request, r))
		}
		if err != nil {
			return fmt.Errorf("network device %s: %s: %w", name, what, err)
		}
		return nil
	}
	number := func(n uint16) func(*unix.Ifreq) error {
		return func(r *unix.Ifreq) error { r.SetUint16(n); return nil }
	}
	address := func(a [4]byte) func(*unix.Ifreq) error {
		return func(r *unix.Ifreq) error { return r.SetInet4Addr(a[:]) }
	}
	for _, err := range []error{
		set(device, "create", tun, unix.TUNSETIFF, number(unix.IFF_TUN|unix.IFF_NO_PI)),
		set(device, "address", socket, unix.SIOCSIFADDR, address(h.address.As4())),
		set(device, "network mask", socket, unix.SIOCSIFNETMASK, address([4]byte{255, 255, 255, 0})),
		set(device, "size of packets", socket, unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(maxPacket); return nil }),
		set(device, "start", socket, unix.SIOCSIFFLAGS, number(unix.IFF_UP|unix.IFF_RUNNING)),
		set("lo", "start", socket, unix.SIOCSIFFLAGS, number(unix.IFF_UP|unix.IFF_RUNNING)),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// within runs f on the thread of the host. Sockets and processes that f creates are in
// the host's namespace.
func (h *host) within(f func() error) error {
	result := make(chan error)
	h.work <- func() { result <- f() }
	return <-result
}

// close ends the host and kills the processes that were started within it. The wire
// closes the device.
func (h *host) close() {
	close(h.work)
	<-h.done
}

// Available returns why this program cannot create hosts, or nil.
func Available() error {
	h, err := newHost(netip.AddrFrom4([4]byte{10, 77, 0, 1}))
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w (run as root, or under unshare --user --map-root-user)", err)
	}
	if err != nil {
		return err
	}
	h.device.Close()
	h.close()
	return nil
}
