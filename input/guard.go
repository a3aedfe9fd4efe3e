package input

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"

	"code.dny.dev/ssrf"
)

var (
	// errMetadata means that a connection would reach the metadata service of a
	// cloud. See the variable metadata.
	errMetadata = errors.New("the address belongs to the metadata service of a cloud")
	// errOwnAddress means that a connection would reach one of this service's own servers or
	// engines.
	errOwnAddress = errors.New("the address belongs to this service")
	// errLoopback means that a connection would reach this machine, and the settings do
	// not permit that.
	errLoopback = errors.New("the address belongs to this machine")
)

// metadata lists the addresses where clouds give their machines credentials, keys and
// start scripts. Downloads never connect to these addresses.
var metadata = mustParsePrefixes(
	// Link-local addresses: 169.254.169.254 for AWS, Azure, Google, Oracle,
	// OpenStack and many others; .170.2 and .170.23 for tasks and pods of AWS;
	// .42.42 for Scaleway; .0.23 and .10.10 for Tencent; any address for Azure
	// App Service.
	"169.254.0.0/16",
	"100.100.100.200/32", "fd00:100::100:200/128", // Alibaba
	"168.63.129.16/32",       // Azure, host of the machine; a public address
	"192.0.0.192/32",         // Oracle classic
	"fd00:c1::a9fe:a9fe/128", // Oracle
	"fd00:ec2::/32",          // AWS: machines ::254, pods ::23
	"fd20:ce::254/128",       // Google
	"fd00:42::42/128",        // Scaleway
	"fd00:a9fe:a9fe::1/128",  // Linode
	"fe80::a9fe:a9fe/128",    // OpenStack, Linode
)

// translated lists IPv6 networks whose addresses end in an IPv4 address. A gateway may
// forward such a connection to the IPv4 address. The networks are: IPv4-mapped,
// IPv4-compatible, SIIT, and NAT64 (RFC 6052, 8215).
var translated = mustParsePrefixes("::ffff:0:0/96", "::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")

var (
	sixToFour = netip.MustParsePrefix("2002::/16") // 6to4, RFC 3056: bytes 2 to 5 are the IPv4 address
	teredo    = netip.MustParsePrefix("2001::/32") // RFC 4380: the last four bytes are the inverted IPv4 address
)

func mustParsePrefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		out[i] = netip.MustParsePrefix(text)
	}
	return out
}

func isInNetworks(networks []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// isMetadata reports whether an address, or the IPv4 address inside it, is in the list
// metadata.
func isMetadata(ip netip.Addr) bool {
	ip = ip.WithZone("")
	if isInNetworks(metadata, ip) {
		return true
	}
	v4, is := embeddedIPv4(ip)
	return is && isInNetworks(metadata, v4)
}

// embeddedIPv4 returns the IPv4 address that is encoded in an IPv6 address. If there is
// none, it returns false.
func embeddedIPv4(ip netip.Addr) (v4 netip.Addr, ok bool) {
	if !ip.Is6() {
		return v4, false
	}
	b := ip.As16()
	last := [4]byte(b[12:])
	switch {
	case isInNetworks(translated, ip):
		return netip.AddrFrom4(last), true
	case sixToFour.Contains(ip):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	case teredo.Contains(ip):
		for i := range last {
			last[i] = ^last[i]
		}
		return netip.AddrFrom4(last), true
	}
	return v4, false
}

// addressGuard decides which addresses a connection may reach. It checks the IP address to
// which a name was resolved, not the name.
type addressGuard struct {
	networks     *ssrf.Guardian  // refuses private and reserved networks
	ownAddresses func() []string // returns the addresses of this service, HOST:PORT
}

func newGuard(cfg Config) *addressGuard {
	var v4, v6 []netip.Prefix
	if cfg.AllowLoopback || cfg.AllowPrivateNetworks {
		v4, v6 = mustParsePrefixes("127.0.0.0/8"), mustParsePrefixes("::1/128")
	}
	if cfg.AllowPrivateNetworks {
		v4 = append(v4, mustParsePrefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")...)
		v6 = append(v6, mustParsePrefixes("fc00::/7", "fe80::/10")...)
	}
	own := cfg.OwnAddresses
	if own == nil {
		own = func() []string { return nil }
	}
	return &addressGuard{ownAddresses: own, networks: ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...))}
}

// checkDial returns an error if a connection to address is forbidden. The dialer calls
// checkDial before each connection attempt.
func (g *addressGuard) checkDial(ctx context.Context, network, address string, conn syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("parse the address: %w", err)
	}
	if isMetadata(to.Addr()) {
		return errMetadata
	}
	for _, own := range g.ownAddresses() {
		if reachesServer(ctx, to, own) {
			return errOwnAddress
		}
	}
	err = g.networks.Safe(network, address, conn)
	if err != nil && normalize(to.Addr()).IsLoopback() {
		err = fmt.Errorf("%w: %w", errLoopback, err)
	}
	return err
}

// reachesServer reports whether a connection to an IP address would reach the server at
// address (HOST:PORT). A server on this machine may listen on all addresses of the
// machine, so a connection to any of them counts. If the host name cannot be resolved,
// reachesServer returns false.
func reachesServer(ctx context.Context, target netip.AddrPort, address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port != strconv.Itoa(int(target.Port())) {
		return false
	}
	reached, here := normalize(target.Addr()), false
	for _, ip := range resolveHost(ctx, host) {
		if normalize(ip) == reached {
			return true
		}
		here = here || isLocal(normalize(ip))
	}
	return here && isLocal(reached)
}

// resolveHost returns the IP addresses of a host, or nil if the name cannot be resolved. An
// empty host means all addresses of this machine.
func resolveHost(ctx context.Context, host string) []netip.Addr {
	if host == "" {
		return []netip.Addr{netip.IPv6Unspecified()}
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil
	}
	return ips
}

// normalize removes the zone of an address, and turns an IPv4-mapped IPv6 address into
// IPv4. Then equal addresses compare as equal.
func normalize(ip netip.Addr) netip.Addr { return ip.WithZone("").Unmap() }

// isLocal reports whether an address belongs to this machine. It returns true if the
// machine's addresses cannot be listed.
func isLocal(ip netip.Addr) bool {
	if ip.IsLoopback() || ip.IsUnspecified() {
		return true
	}
	addresses, err := net.InterfaceAddrs()
	return err != nil || slices.ContainsFunc(addresses, func(a net.Addr) bool {
		own, err := netip.ParsePrefix(a.String())
		return err == nil && normalize(own.Addr()) == ip
	})
}
