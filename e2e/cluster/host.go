package cluster

import (
	"context"
	"net"
	"os/exec"
	"strconv"

	"github.com/rowmill/rowmill/internal/faultnet"
	"github.com/rowmill/rowmill/internal/port"
)

// A host runs the processes of a machine, in a network namespace, or on the loopback
// that all hosts share.
type host struct {
	address string
	net     *faultnet.Host // nil on loopback
}

// newHost creates a host in the network, or on loopback if network is nil.
func newHost(ctx context.Context, network *faultnet.Network, name string) (*host, error) {
	if network == nil {
		return &host{address: "127.0.0.1"}, nil
	}
	h, err := network.AddHost(ctx, name)
	if err != nil {
		return nil, err
	}
	return &host{address: h.Addr.String(), net: h}, nil
}

func (h *host) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	if h.net == nil {
		return exec.CommandContext(ctx, name, args...)
	}
	return h.net.Command(ctx, name, args...)
}

// listen returns HOST:PORT for a server of this host: the usual port in a namespace, else a
// port that is reserved while this process runs.
func (h *host) listen(ctx context.Context, usual int) (string, error) {
	if h.net != nil {
		return net.JoinHostPort(h.address, strconv.Itoa(usual)), nil
	}
	r, err := port.Reserve(ctx, h.address)
	if err != nil {
		return "", err
	}
	return r.Address, nil
}
