package cluster

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
)

// gossipTransport is memberlist's transport over UDP and TCP. Its field cut closes all outgoing
// connections. Without cut, memberlist's shutdown would wait for the timeouts of these
// connections.
type gossipTransport struct {
	*memberlist.NetTransport
	ctx context.Context // its end closes all outgoing connections
	cut context.CancelFunc
}

var _ memberlist.NodeAwareTransport = (*gossipTransport)(nil)

func newGossipTransport(bind netip.AddrPort, logger *slog.Logger) (*gossipTransport, error) {
	cfg := memberlist.NetTransportConfig{
		BindAddrs: []string{bind.Addr().String()}, BindPort: int(bind.Port()),
		Logger: newGossipLog(logger),
	}
	tries := 1
	if bind.Port() == 0 {
		tries = 10 // the system chooses a free TCP port, which may be in use for UDP
	}
	for {
		inner, err := memberlist.NewNetTransport(&cfg)
		if tries--; err == nil {
			n := &gossipTransport{NetTransport: inner}
			n.ctx, n.cut = context.WithCancel(context.Background())
			return n, nil
		} else if tries == 0 || !strings.Contains(err.Error(), "address already in use") {
			return nil, err
		}
	}
}

// DialAddressTimeout opens a TCP connection.
func (n *gossipTransport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	dialer := net.Dialer{Timeout: timeout}
	conn, err := dialer.DialContext(n.ctx, "tcp", a.Addr)
	if err != nil {
		return nil, err
	}
	return &connection{Conn: conn, stop: context.AfterFunc(n.ctx, func() { _ = conn.Close() })}, nil
}

// connection is an outgoing TCP connection that closes when its network is cut.
type connection struct {
	net.Conn
	stop func() bool // stops the wait for the end of the network
}

// Close closes this connection, and no other connection of the network.
func (c *connection) Close() error {
	c.stop()
	return c.Conn.Close()
}
