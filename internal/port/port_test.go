package port

import (
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rowmill/rowmill/internal/must"
)

// No other caller can reserve a reserved port. A server can listen on it, also after a
// restart.
//
// The test does not run in parallel with tests that start processes: between fork and
// exec, a child still has the sockets that this test closes.
func TestReserve(t *testing.T) {
	r, err := Reserve(t.Context(), "127.0.0.1")
	must.Succeed(t, err)
	defer r.Release()
	host := netip.MustParseAddr("127.0.0.1")
	if _, err := bind(host, r.Port); err == nil {
		t.Error("a reserved port is reserved again")
	}
	for _, option := range []int{unix.SO_REUSEADDR, unix.SO_REUSEPORT} {
		listener, err := listenWithOption(t, r.Address, option)
		if err != nil {
			t.Fatalf("listen on the reserved port with the socket option %d: %v", option, err)
		}
		if _, err := bind(host, r.Port); err == nil {
			t.Error("the port of a server is reserved")
		}
		_ = listener.Close()
	}
	r.Release()
	release, err := bind(host, r.Port)
	if err != nil {
		t.Fatalf("a port that was given back: %v", err)
	}
	release()
	if _, err := Reserve(t.Context(), "::1"); err == nil {
		t.Error("an address of IPv6 is taken")
	}
}

// listenWithOption listens with only one of the two socket options that let a server share a port.
func listenWithOption(t *testing.T, address string, option int) (net.Listener, error) {
	t.Helper()
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(socket uintptr) {
			must.Succeed(t, syscall.SetsockoptInt(int(socket), unix.SOL_SOCKET, unix.SO_REUSEADDR, 0)) // net sets it
			must.Succeed(t, syscall.SetsockoptInt(int(socket), unix.SOL_SOCKET, option, 1))
		})
	}}
	return config.Listen(t.Context(), "tcp4", address)
}
