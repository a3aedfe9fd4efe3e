package cluster

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os/exec"
	"strconv"

	"github.com/rowmill/rowmill/internal/faultnet"
)

// A host is where processes of one machine run: a network namespace, or this
// machine's loopback, which all hosts then share.
type host struct {
	address string
	net     *faultnet.Host // nil on loopback
}

// newHost makes a host of the network, or of loopback where that is nil.
func newHost(ctx context.Context, network *faultnet.Network, name string) (*host, error) {
	if network == nil {
		return &host{address: "127.0.0.1"}, nil
	}
	h, err := network.Host(ctx, name)
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

// Ports of servers on loopback, below those that the system gives to whoever
// asks for any: a server that is down keeps its port for itself.
const firstPort, lastPort = 10_000, 32_000

// listen returns HOST:PORT for a server of this host: the usual port where the
// host has its ports for itself, else one that is free, for TCP and UDP.
func (h *host) listen(ctx context.Context, usual int) (string, error) {
	if h.net != nil {
		return net.JoinHostPort(h.address, strconv.Itoa(usual)), nil
	}
	var config net.ListenConfig
	for range 100 {
		address := net.JoinHostPort(h.address, strconv.Itoa(firstPort+rand.IntN(lastPort-firstPort)))
		stream, err := config.Listen(ctx, "tcp", address)
		if err != nil {
			continue
		}
		packets, err := config.ListenPacket(ctx, "udp", address)
		stream.Close()
		if err == nil {
			return address, packets.Close()
		}
	}
	return "", errors.New("find a free port: none of 100 was free for TCP and UDP")
}
