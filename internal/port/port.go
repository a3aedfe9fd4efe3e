// Package port reserves ports of this machine for servers that may be down.
package port

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rowmill/rowmill/internal/must"
)

// Ports from first to last-1 are reserved. Linux uses ports from 32768 on for programs that
// ask for any free port.
const first, last = 10_000, 32_000

// A Reservation reserves a TCP port for a server that may be down. Its socket is bound
// but never listens. So no other call of Reserve gets the port, but a server may listen
// on it, because both sides set SO_REUSEADDR (servers in Go and Python do) or
// SO_REUSEPORT (llama-server does).
type Reservation struct {
	Address string // IP:PORT
	Port    int
	Release func() // ends the reservation; calling it twice is harmless
}

// Reserve reserves a port of ip, an IPv4 address of this machine. It chooses a port on
// which no TCP listener and no UDP socket is open.
func Reserve(ctx context.Context, ip string) (*Reservation, error) {
	host, err := netip.ParseAddr(ip)
	if err != nil || !host.Is4() {
		return nil, fmt.Errorf("address %q: it must be an IPv4 address", ip)
	}
	for range 100 {
		port := first + rand.IntN(last-first)
		var release func()
		if release, err = bind(host, port); err != nil {
			continue
		}
		r := &Reservation{Address: net.JoinHostPort(ip, strconv.Itoa(port)), Port: port, Release: release}
		var packets net.PacketConn
		if packets, err = (&net.ListenConfig{}).ListenPacket(ctx, "udp", r.Address); err == nil {
			return r, packets.Close()
		}
		release()
	}
	return nil, fmt.Errorf("none of 100 ports from %d to %d is free: %w", first, last-1, err)
}

// bind binds a socket to the port, without listening. It fails if another socket has
// the port. Afterwards a listener may bind the same port.
func bind(host netip.Addr, port int) (release func(), err error) {
	syscall.ForkLock.RLock()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(socket)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, err
	}
	release = sync.OnceFunc(func() { _ = syscall.Close(socket) }) // nothing was written, so a failed close loses no data
	err = syscall.Bind(socket, &syscall.SockaddrInet4{Port: port, Addr: host.As4()})
	for _, option := range []int{unix.SO_REUSEADDR, unix.SO_REUSEPORT} {
		err = errors.Join(err, syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, option, 1))
	}
	if err != nil {
		release()
	}
	return release, err
}

// A Test is a running test: a testing.TB.
type Test interface {
	must.Test
	Context() context.Context
	Cleanup(func())
}

// ReserveForTest reserves a port of 127.0.0.1 until the test ends.
func ReserveForTest(t Test) *Reservation {
	t.Helper()
	r := must.Get(Reserve(t.Context(), "127.0.0.1"))(t)
	t.Cleanup(r.Release)
	return r
}
