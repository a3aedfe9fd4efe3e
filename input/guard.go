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
	// errMetadata means that a connection leads to the metadata service of a
	// cloud (see metadata).
	errMetadata = errors.New("metadata address")
	// errOwn means that a connection leads to a part of this service.
	errOwn = errors.New("own address")
	// errLoopback means that a connection leads to this machine and this is not
	// permitted.
	errLoopback = errors.New("loopback address")
)

// metadata lists the addresses where clouds give their machines credentials,
// keys and start scripts. They are never an input.
var metadata = prefixes(
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

// translated lists the networks whose addresses end in an IPv4 address and may
// be translated to it: mapped, compatible, SIIT, and NAT64 (RFC 6052, 8215).
var translated = prefixes("::ffff:0:0/96", "::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")

var (
	sixToFour = netip.MustParsePrefix("2002::/16") // RFC 3056: IPv4 in bytes 2 to 5
	teredo    = netip.MustParsePrefix("2001::/32") // RFC 4380: IPv4 inverted, at the end
)

func prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		out[i] = netip.MustParsePrefix(text)
	}
	return out
}

func contains(networks []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(ip) })
}

func isMetadata(ip netip.Addr) bool {
	ip = ip.WithZone("")
	if contains(metadata, ip) {
		return true
	}
	v4, is := embedded(ip)
	return is && contains(metadata, v4)
}

// embedded returns the IPv4 address that an IPv6 address contains.
func embedded(ip netip.Addr) (v4 netip.Addr, is bool) {
	if !ip.Is6() {
		return v4, false
	}
	b := ip.As16()
	last := [4]byte(b[12:])
	switch {
	case contains(translated, ip):
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

// guard decides to which addresses connections may go. It checks the address
// that a name was resolved to.
type guard struct {
	networks *ssrf.Guardian
	own      func() []string
}

func newGuard(cfg Config) *guard {
	var v4, v6 []netip.Prefix
	if cfg.AllowLoopback || cfg.AllowPrivateNetworks {
		v4, v6 = prefixes("127.0.0.0/8"), prefixes("::1/128")
	}
	if cfg.AllowPrivateNetworks {
		v4 = append(v4, prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")...)
		v6 = append(v6, prefixes("fc00::/7", "fe80::/10")...)
	}
	own := cfg.Own
	if own == nil {
		own = func() []string { return nil }
	}
	return &guard{own: own, networks: ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...))}
}

// check runs in the dialer, once for each connection attempt.
func (g *guard) check(ctx context.Context, network, address string, conn syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("parse the address: %w", err)
	}
	if isMetadata(to.Addr()) {
		return errMetadata
	}
	for _, own := range g.own() {
		if reaches(ctx, to, own) {
			return errOwn
		}
	}
	err = g.networks.Safe(network, address, conn)
	if err != nil && normalize(to.Addr()).IsLoopback() {
		err = fmt.Errorf("%w: %w", errLoopback, err)
	}
	return err
}

// reaches reports whether a connection to an IP address would reach the server
// at address (HOST:PORT). A server on this machine may listen on all of the
// machine's addresses, so each of these counts. A name that cannot be resolved
// reaches nothing.
func reaches(ctx context.Context, to netip.AddrPort, address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port != strconv.Itoa(int(to.Port())) {
		return false
	}
	reached, here := normalize(to.Addr()), false
	for _, ip := range resolve(ctx, host) {
		if normalize(ip) == reached {
			return true
		}
		here = here || isLocal(normalize(ip))
	}
	return here && isLocal(reached)
}

func resolve(ctx context.Context, host string) []netip.Addr {
	if host == "" {
		return []netip.Addr{netip.IPv6Unspecified()}
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil
	}
	return ips
}

// normalize returns an address in the form for comparisons.
func normalize(ip netip.Addr) netip.Addr { return ip.WithZone("").Unmap() }

// isLocal reports whether an address belongs to this machine.
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
