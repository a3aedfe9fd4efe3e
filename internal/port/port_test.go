package port

import (
	"net"
	"net/netip"
	"testing"

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
	for range 2 { // the server and its restart
		listener, err := net.Listen("tcp4", r.Address)
		if err != nil {
			t.Fatalf("listen on the reserved port: %v", err)
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
