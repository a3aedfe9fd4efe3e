package s3test

import (
	"fmt"
	"net/netip"
	"sync"
	"syscall"
)

// A reservation holds a port for a server that may be down. The socket is
// bound and never listens: the system hands the port to nobody who asks for any
// port, neither to listen on nor to connect from, while a server that names it
// may bind it, since both sides set SO_REUSEADDR (Go's listeners do).
type reservation struct {
	port    int
	release func()
}

// reserve reserves a free TCP port of an IPv4 address of this machine.
func reserve(ip string) (*reservation, error) {
	address, err := netip.ParseAddr(ip)
	if err != nil || !address.Is4() {
		return nil, fmt.Errorf("address %q: it must be an IPv4 address", ip)
	}
	syscall.ForkLock.RLock()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(socket)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, err
	}
	release := sync.OnceFunc(func() { _ = syscall.Close(socket) }) // nothing was written
	err = syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err == nil {
		err = syscall.Bind(socket, &syscall.SockaddrInet4{Addr: address.As4()})
	}
	var name syscall.Sockaddr
	if err == nil {
		name, err = syscall.Getsockname(socket)
	}
	if err != nil {
		release()
		return nil, err
	}
	return &reservation{port: name.(*syscall.SockaddrInet4).Port, release: release}, nil
}
