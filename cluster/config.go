package cluster

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"
)

// Config describes this node and how it finds the other members.
type Config struct {
	// Node is the operator's name of this node, such as its host name: 1 to 64 letters,
	// digits and . _ -. Two nodes with the same name count as two members.
	Node string

	// Bind is the HOST:PORT of gossip, for both UDP and TCP. Port 0 takes any free
	// port, for tests.
	Bind string

	// Advertise is the HOST:PORT at which the other members reach Bind. Default Bind,
	// which must then be one address: Open does not guess an address for 0.0.0.0.
	Advertise string

	// Join lists the HOST:PORT of members to look for; they need not be up yet. This
	// node looks for a missing member for as long as the node runs.
	Join []string

	// JoinDNS is the NAME:PORT of a headless service: this node looks for a member at
	// every address of the name. It resolves the name again each time.
	JoinDNS string

	// JoinFile is a file with one HOST:PORT per line; empty lines and lines that begin
	// with # are skipped. It is read again each time.
	JoinFile string

	// Keys encrypt gossip (AES-GCM, 16, 24 or 32 bytes). The first key encrypts, all
	// keys decrypt. SetKeys changes them. Without keys, any program that reaches the
	// port can join the cluster.
	Keys [][]byte

	// Label separates clusters that can reach each other: members ignore packets with
	// another label. At most 64 bytes.
	Label string

	// Peer and API are the addresses of this node's peer server and API. The other
	// members get these addresses.
	Peer, API string

	// Engines is true if this node runs rows. Owns is true if it owns jobs.
	Engines, Owns bool

	// Protocol is the version of the requests between nodes that this node answers. A
	// member with another version can join, but a warning is logged.
	Protocol int

	// Timing sets intervals and timeouts.
	Timing Timing

	// Resolver looks up the names in Bind, Advertise, Join and JoinDNS.
	// Default net.DefaultResolver.
	Resolver Resolver

	// Logger receives messages for operators. Default: nothing is logged.
	Logger *slog.Logger

	// Metrics registers the metrics. If it is nil, the metrics are not published.
	Metrics prometheus.Registerer

	// transport wraps the network; tests use it to simulate failures.
	transport func(memberlist.NodeAwareTransport) memberlist.NodeAwareTransport
}

// Timing holds the intervals and timeouts of gossip. A zero field means its default.
type Timing struct {
	// RejoinInterval is the time between two attempts to find missing members, ±20 %.
	// Default 10 s. After a partition heals, the cluster stays split for at most this
	// long; each attempt costs one TCP connection per missing member.
	RejoinInterval time.Duration

	// ProbeInterval is the time between probes; each probe goes to one member. Default
	// 1 s. Shorter intervals cost CPU: probes are most of the cost of gossip, because
	// each probe wakes two processes twice. They would also gain little: a node that
	// sends requests to a crashed member notices the crash sooner than a probe does.
	//
	// ProbeTimeout is the timeout of a probe, default 500 ms. After a failed probe a
	// member is suspect for SuspicionMult × max(1, log10(members)) × ProbeInterval.
	// While too few other members confirm the suspicion, it lasts up to twice as long.
	// Then the member counts as gone. SuspicionMult is 4 by default, which gives 4 to
	// 8 s, about as long as a lease. With less, a node with too little CPU suspects
	// healthy members.
	ProbeInterval, ProbeTimeout time.Duration
	SuspicionMult               int

	// GossipInterval is the time between gossip packets, each to three members. Default
	// ProbeInterval: both timers then fire together, and an idle process wakes once for
	// both. Urgent messages do not wait for a gossip packet: a new member, a new state
	// and a goodbye are sent directly.
	GossipInterval time.Duration

	// SyncInterval is the time between full exchanges with a random member, which
	// repair lost messages. Default 30 s, as in memberlist.
	SyncInterval time.Duration

	// DeadTime is how long gossip still goes to a member that counts as gone. If the
	// member is alive, it can object. Default 30 s.
	DeadTime time.Duration

	// StreamTimeout bounds one TCP exchange. Default 5 s.
	StreamTimeout time.Duration
}

// Resolver looks up names; *net.Resolver implements it.
type Resolver interface {
	// LookupNetIP returns the addresses of a host; network is "ip".
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

func (cfg Config) withDefaults() Config {
	orDefault(&cfg.Timing.RejoinInterval, 10*time.Second)
	orDefault(&cfg.Timing.ProbeInterval, time.Second)
	orDefault(&cfg.Timing.ProbeTimeout, 500*time.Millisecond)
	orDefault(&cfg.Timing.SuspicionMult, 4)
	orDefault(&cfg.Timing.GossipInterval, cfg.Timing.ProbeInterval)
	orDefault(&cfg.Timing.SyncInterval, 30*time.Second)
	orDefault(&cfg.Timing.DeadTime, 30*time.Second)
	orDefault(&cfg.Timing.StreamTimeout, 5*time.Second)
	if cfg.Resolver == nil {
		cfg.Resolver = net.DefaultResolver
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return cfg
}

func orDefault[T int | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

// nodeName matches valid values of Config.Node, which becomes part of IDs in logs, keys
// and paths.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// maxLabel is the largest size of Config.Label, in bytes. Every packet carries the
// label.
const maxLabel = 64

func (cfg Config) validate() error {
	if !nodeName.MatchString(cfg.Node) {
		return fmt.Errorf("Node %q: a name has 1 to 64 letters, digits, dots, underscores and hyphens", cfg.Node)
	}
	if len(cfg.Label) > maxLabel {
		return fmt.Errorf("Label has %d bytes, %d are allowed; choose a shorter label", len(cfg.Label), maxLabel)
	}
	if err := checkKeys(cfg.Keys); err != nil {
		return err
	}
	for _, address := range slices.Concat(cfg.Join, nonEmpty(cfg.JoinDNS)) {
		if _, _, err := splitAddress(address); err != nil {
			return fmt.Errorf("Join: %w", err)
		}
	}
	if cfg.Timing.ProbeTimeout > cfg.Timing.ProbeInterval {
		return fmt.Errorf("ProbeTimeout %v is longer than ProbeInterval %v; make it shorter", cfg.Timing.ProbeTimeout, cfg.Timing.ProbeInterval)
	}
	return nil
}

func checkKeys(keys [][]byte) error {
	for i, key := range keys {
		if !slices.Contains([]int{16, 24, 32}, len(key)) {
			return fmt.Errorf("Keys: key %d has %d bytes; use a key of 16, 24 or 32 bytes", i+1, len(key))
		}
	}
	return nil
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// splitAddress splits an address HOST:PORT; both parts are required.
func splitAddress(address string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("address %q is not HOST:PORT", address)
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || host == "" || number == 0 {
		return "", 0, fmt.Errorf("address %q is not HOST:PORT with a port from 1 to 65535", address)
	}
	return host, uint16(number), nil
}

// endpoints returns the address on which this node listens for gossip (bind), and the
// address at which other members reach it (advertise). Port 0 means that the system
// chooses a port.
func (cfg Config) endpoints(ctx context.Context) (bind, advertise netip.AddrPort, err error) {
	if bind, err = cfg.endpoint(ctx, "Bind", cfg.Bind); err != nil {
		return bind, advertise, err
	}
	if cfg.Advertise == "" {
		if bind.Addr().IsUnspecified() {
			return bind, advertise, fmt.Errorf("Bind %q listens on every address of this machine: set Advertise to the HOST:PORT at which other nodes reach it", cfg.Bind)
		}
		return bind, bind, nil
	}
	if advertise, err = cfg.endpoint(ctx, "Advertise", cfg.Advertise); err != nil {
		return bind, advertise, err
	}
	if advertise.Addr().IsUnspecified() {
		return bind, advertise, fmt.Errorf("Advertise %q is not an address that other nodes can reach: give one address of this machine", cfg.Advertise)
	}
	return bind, advertise, nil
}

// endpoint resolves an address HOST:PORT; errors name the field of Config that has it.
func (cfg Config) endpoint(ctx context.Context, field, address string) (netip.AddrPort, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%s %q is not HOST:PORT", field, address)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%s %q: port %q is not 0 to 65535", field, address, text)
	}
	if host == "" {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(port)), nil
	}
	addrs, err := cfg.lookup(ctx, host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%s %q: %w", field, address, err)
	}
	return netip.AddrPortFrom(addrs[0], uint16(port)), nil
}

// lookup returns the IP addresses of a host, IPv4 addresses first; an error if there
// are none.
func (cfg Config) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr.Unmap()}, nil
	}
	addrs, err := cfg.Resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", host, err)
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("look up %s: the name has no addresses", host)
	}
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	return addrs, nil
}
