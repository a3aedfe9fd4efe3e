package cluster

import (
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

// Config says who this node is and how it finds the others.
type Config struct {
	// Node is the operator's name of this node, such as its host name: 1 to 64
	// letters, digits and . _ -. Two nodes of one name are two members.
	Node string

	// Bind is the HOST:PORT of gossip, for UDP and TCP alike. Port 0 takes any
	// free one, for tests.
	Bind string

	// Advertise is the HOST:PORT at which the others reach Bind. Default Bind,
	// which then names one address: what 0.0.0.0 stands for is not guessed.
	Advertise string

	// Join lists members to look for, HOST:PORT; they need not be up yet. One
	// that is named here and missing is looked for as long as this node lives.
	Join []string

	// JoinDNS is the NAME:PORT of a headless service: all addresses of the name
	// are members to look for. It is resolved again each time.
	JoinDNS string

	// JoinFile is a file with one HOST:PORT a line; empty lines and lines that
	// begin with # are skipped. It is read again each time.
	JoinFile string

	// Keys encrypt gossip (AES-GCM, 16, 24 or 32 bytes). The first encrypts,
	// all decrypt. SetKeys changes them. Whoever reaches the port of a cluster
	// without keys can join it.
	Keys [][]byte

	// Label keeps clusters apart that could reach each other: members of
	// another label are not heard. At most 64 bytes.
	Label string

	// Peer and API are the addresses of this node's peer server and API, told
	// to the others.
	Peer, API string

	// Engines says that this node runs rows, Owns that it owns jobs.
	Engines, Owns bool

	// Protocol is the version of the requests that this node answers. Members
	// of another version are members, and are reported.
	Protocol int

	// Timing is how often and how long things are tried.
	Timing Timing

	// MaxState bounds what a member says of itself, in bytes. Default 16 KiB:
	// every member keeps a copy, and a full exchange carries all of them.
	MaxState int

	// Resolver looks up the names in Bind, Advertise, Join and JoinDNS.
	// Default net.DefaultResolver.
	Resolver Resolver

	// Logger receives what an operator should know. Default: nothing is logged.
	Logger *slog.Logger

	// Metrics registers the figures; nil measures without publishing.
	Metrics prometheus.Registerer

	// transport wraps the network, for tests that break it.
	transport func(memberlist.NodeAwareTransport) memberlist.NodeAwareTransport
}

// Timing is the pace of gossip. The zero value of each is its default.
type Timing struct {
	// RejoinInterval is the time between looks for members that are missing,
	// a fifth more or less. Default 10 s: it bounds how long a cluster stays in
	// two halves after a partition has healed, for one TCP connection to each
	// missing member.
	RejoinInterval time.Duration

	// ForgetAfter is how long a member that vanished without leaving is looked
	// for, when nothing above names it. Default 24 h: longer than the outages
	// that somebody works on.
	ForgetAfter time.Duration

	// ProbeInterval is the time between probes; each goes to one member.
	// Default 1 s: a probe wakes two processes twice, which is most of what
	// gossip costs a node, and whoever works with a member sees sooner that it
	// is gone. ProbeTimeout is the patience of one, default 500 ms. After a
	// failed probe a member is suspect for SuspicionMult × max(1, log10 of the
	// members) × ProbeInterval, up to twice that while too few others confirm
	// it, and then gone. Default 4, so 4 to 8 s: leases last about as long,
	// and a starved CPU accuses others falsely below that.
	ProbeInterval, ProbeTimeout time.Duration
	SuspicionMult               int

	// GossipInterval is the time between packets of news, each to three
	// members. Default ProbeInterval: both are counted from the same moment,
	// so that a process that has nothing to do is woken once for the two of
	// them. What must not wait is told directly: a member that comes, what one
	// says of itself, and its goodbye.
	GossipInterval time.Duration

	// SyncInterval is the time between full exchanges with a random member,
	// which repair what was lost. Default 30 s, as in memberlist.
	SyncInterval time.Duration

	// DeadTime is how long news still goes to a member that is gone, so that it
	// can object. Default 30 s.
	DeadTime time.Duration

	// StreamTimeout bounds one TCP exchange. Default 5 s.
	StreamTimeout time.Duration
}

// Resolver looks up names; *net.Resolver is one.
type Resolver interface {
	// LookupNetIP returns the addresses of a host; network is "ip".
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

func (cfg Config) withDefaults() Config {
	orDefault(&cfg.Timing.RejoinInterval, 10*time.Second)
	orDefault(&cfg.Timing.ForgetAfter, 24*time.Hour)
	orDefault(&cfg.Timing.ProbeInterval, time.Second)
	orDefault(&cfg.Timing.ProbeTimeout, 500*time.Millisecond)
	orDefault(&cfg.Timing.SuspicionMult, 4)
	orDefault(&cfg.Timing.GossipInterval, cfg.Timing.ProbeInterval)
	orDefault(&cfg.Timing.SyncInterval, 30*time.Second)
	orDefault(&cfg.Timing.DeadTime, 30*time.Second)
	orDefault(&cfg.Timing.StreamTimeout, 5*time.Second)
	orDefault(&cfg.MaxState, 16<<10)
	if cfg.Resolver == nil {
		cfg.Resolver = net.DefaultResolver
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return cfg
}

func orDefault[T int | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

// nodeName is what Config.Node may be: it becomes part of IDs, which stand in
// logs, keys and paths.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// maxLabel bounds Config.Label, in bytes. Every packet carries it.
const maxLabel = 64

func (cfg Config) validate() error {
	if !nodeName.MatchString(cfg.Node) {
		return fmt.Errorf("Node %q: a name has 1 to 64 letters, digits, dots, underscores and hyphens", cfg.Node)
	}
	if len(cfg.Label) > maxLabel {
		return fmt.Errorf("Label has %d bytes, %d are allowed; choose a shorter one", len(cfg.Label), maxLabel)
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
			return fmt.Errorf("Keys: number %d has %d bytes; a key has 16, 24 or 32", i+1, len(key))
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

// splitAddress takes HOST:PORT apart, both of them given.
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

// endpoints are the addresses of gossip: where this node listens, and where the
// others find it. A port 0 stands for the one it gets.
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
		return bind, advertise, fmt.Errorf("Advertise %q is no address that other nodes can reach: name one of this machine's", cfg.Advertise)
	}
	return bind, advertise, nil
}

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

// lookup returns the addresses of a host, IPv4 first, at least one.
func (cfg Config) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr.Unmap()}, nil
	}
	addrs, err := cfg.Resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", host, err)
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("look up %s: it has no addresses", host)
	}
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	return addrs, nil
}
