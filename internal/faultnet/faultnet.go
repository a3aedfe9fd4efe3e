// Package faultnet makes hosts with a network between them on one Linux machine, and
// breaks that network: packets between two hosts vanish, one way or both, some or all,
// as they would on a bad line or behind a wrong firewall rule. No connection is reset.
//
//	                  ┌──────── namespace of the hub ───────┐
//	test process ─────┤               bridge                │
//	(here)            └───┬────────────┬────────────────┬───┘
//	                 namespace a  namespace b      namespace c
//	                 nft drops    nft drops        nft drops
//	                 what arrives what arrives     what arrives
//	                 from…        from…            from…
//
// A host is a network namespace: a process inside has its own loopback and ports, and
// reaches the others by their addresses. The test's own process reaches every host, and
// is never cut off. Packets are dropped at the receiver: a drop at the sender would
// return an error to the sending program.
//
// It needs root, `ip` and `nft`; CheckUsable reports missing programs and rights. The next
// New removes the namespaces of a killed test.
package faultnet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
)

// A Network is a set of hosts that reach each other. Its methods are not safe for
// concurrent use.
type Network struct {
	name   string       // prefix of the names of the namespaces
	subnet netip.Prefix // a /24 network; the address .1 is the test's process
	hosts  []*Host
}

// A Host is a host in a Network: a network namespace on this machine.
type Host struct {
	Name string
	Addr netip.Addr // address for the other hosts and the test

	namespace string
	losses    map[*Host]int // by sender: percentage of its packets that is dropped here
	throttled bool
}

// CommandPrefix returns the words to put before a command line to run it on the host. The
// process that starts with these words becomes the command and keeps its PID.
func (h *Host) CommandPrefix() []string { return []string{"ip", "netns", "exec", h.namespace} }

// Command is like exec.CommandContext, but the command runs on the host.
func (h *Host) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	line := append(append(h.CommandPrefix(), name), args...)
	return exec.CommandContext(ctx, line[0], line[1:]...)
}

// CheckUsable returns nil if this process can make networks, else the reason why not.
func CheckUsable() error {
	for _, program := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("network namespaces need %s: install iproute2 and nftables", program)
		}
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("network namespaces need root, and this is user %d", os.Geteuid())
	}
	return nil
}

var networks atomic.Int64 // number of networks that this process has made

// New makes a network without hosts, and removes the networks of processes that have
// ended. Close removes it.
func New(ctx context.Context) (*Network, error) {
	if err := CheckUsable(); err != nil {
		return nil, err
	}
	if err := removeDeadNetworks(ctx); err != nil {
		return nil, err
	}
	subnet, err := freeSubnet(ctx)
	if err != nil {
		return nil, err
	}
	number := strconv.FormatInt(networks.Add(1), 10)
	n := &Network{name: prefix + strconv.Itoa(os.Getpid()) + "." + number, subnet: subnet}
	hub, here := n.hub(), "rmf"+strconv.FormatInt(int64(os.Getpid()), 36)+"n"+number // at most 15 bytes
	err = errors.Join(
		runIP(ctx, "netns", "add", hub),
		runIP(ctx, "-n", hub, "link", "add", "bridge", "type", "bridge"),
		runIP(ctx, "-n", hub, "link", "set", "bridge", "up"),
		n.connectNamespace(ctx, "here", here, strconv.Itoa(os.Getpid())),
		runIP(ctx, "addr", "add", n.address(1), "dev", here),
		runIP(ctx, "addr", "add", n.TestProcessAddr().String()+"/32", "dev", here),
		runIP(ctx, "link", "set", here, "up"),
	)
	if err != nil {
		return nil, errors.Join(err, n.Close(ctx))
	}
	return n, nil
}

// AddHost adds a host. Its name may have at most 12 bytes.
func (n *Network) AddHost(ctx context.Context, name string) (*Host, error) {
	last := 2 + len(n.hosts)
	if len(name) > 12 || last > 254 {
		return nil, fmt.Errorf("host %q, number %d: names have at most 12 bytes, and there are at most 253 hosts", name, last-1)
	}
	h := &Host{Name: name, namespace: n.name + "." + name, losses: map[*Host]int{}}
	bytes := n.subnet.Addr().As4()
	bytes[3] = byte(last)
	h.Addr = netip.AddrFrom4(bytes)
	err := errors.Join(
		runIP(ctx, "netns", "add", h.namespace),
		n.connectNamespace(ctx, name, "eth0", h.namespace),
		runIP(ctx, "-n", h.namespace, "addr", "add", n.address(last), "dev", "eth0"),
		runIP(ctx, "-n", h.namespace, "link", "set", "eth0", "up"),
		runIP(ctx, "-n", h.namespace, "link", "set", "lo", "up"),
		runIP(ctx, "-n", h.namespace, "route", "add", n.TestProcessAddr().String()+"/32", "dev", "eth0"),
	)
	if err != nil {
		return nil, err
	}
	n.hosts = append(n.hosts, h)
	return h, nil
}

// connectNamespace connects the hub's bridge by a virtual cable with another namespace, given by
// name or by PID.
func (n *Network) connectNamespace(ctx context.Context, port, device, namespace string) error {
	port = "to" + port
	return errors.Join(
		runIP(ctx, "-n", n.hub(), "link", "add", port, "type", "veth", "peer", "name", device, "netns", namespace),
		runIP(ctx, "-n", n.hub(), "link", "set", port, "master", "bridge", "up"),
	)
}

func (n *Network) hub() string { return n.name + ".hub" }

// address returns the address of the subnet with this last byte, in the form
// address/length.
func (n *Network) address(last int) string {
	bytes := n.subnet.Addr().As4()
	bytes[3] = byte(last)
	return netip.PrefixFrom(netip.AddrFrom4(bytes), n.subnet.Bits()).String()
}

// DropPackets drops a percentage of the packets from the hosts in from to the hosts in to; 0
// repairs this direction and 100 cuts it. Packets of a host to itself are not dropped.
func (n *Network) DropPackets(ctx context.Context, percent int, from, to []*Host) error {
	if percent < 0 || percent > 100 {
		return fmt.Errorf("the percentage of lost packets must be 0 to 100, is %d", percent)
	}
	var errs []error
	for _, receiver := range to {
		for _, sender := range from {
			if sender != receiver {
				receiver.losses[sender] = percent
			}
		}
		errs = append(errs, receiver.applyPacketLoss(ctx))
	}
	return errors.Join(errs...)
}

// Partition partitions the network: it drops all packets between two groups of hosts.
func (n *Network) Partition(ctx context.Context, left, right []*Host) error {
	return errors.Join(n.DropPackets(ctx, 100, left, right), n.DropPackets(ctx, 100, right, left))
}

// Throttle limits the rate at which a host sends packets, in kbit/s. Packets wait up to
// two seconds and are then dropped; 0 removes the limit.
func (n *Network) Throttle(ctx context.Context, h *Host, kbit int) error {
	if kbit == 0 {
		h.throttled = false
		return runCommand(h.Command(ctx, "tc", "qdisc", "del", "dev", "eth0", "root"))
	}
	h.throttled = true
	return runCommand(h.Command(ctx, "tc", "qdisc", "replace", "dev", "eth0", "root",
		"tbf", "rate", strconv.Itoa(kbit)+"kbit", "burst", "16k", "latency", "2s"))
}

// TestProcessAddr returns the address by which hosts reach the test's process. It is a private
// address, in contrast to the hosts' addresses, because a program may treat the two
// differently.
func (n *Network) TestProcessAddr() netip.Addr {
	bytes := n.subnet.Addr().As4()
	return netip.AddrFrom4([4]byte{100, 64 + bytes[1]%64, bytes[2], 1})
}

// Heal removes all faults from the network.
func (n *Network) Heal(ctx context.Context) error {
	errs := []error{n.DropPackets(ctx, 0, n.hosts, n.hosts)}
	for _, h := range n.hosts {
		if h.throttled {
			errs = append(errs, n.Throttle(ctx, h, 0))
		}
	}
	return errors.Join(errs...)
}

// applyPacketLoss replaces the host's firewall rules by the rules for its losses, in one step.
func (h *Host) applyPacketLoss(ctx context.Context) error {
	var rules strings.Builder
	rules.WriteString("add table ip faultnet\ndelete table ip faultnet\ntable ip faultnet {\n" +
		"chain arriving { type filter hook input priority -300; policy accept;\n")
	for sender, percent := range h.losses {
		switch percent {
		case 0:
		case 100:
			fmt.Fprintf(&rules, "ip saddr %s drop\n", sender.Addr)
		default:
			fmt.Fprintf(&rules, "ip saddr %s numgen random mod 100 < %d drop\n", sender.Addr, percent)
		}
	}
	rules.WriteString("}\n}\n")
	nft := h.Command(ctx, "nft", "-f", "-")
	nft.Stdin = strings.NewReader(rules.String())
	return runCommand(nft)
}

// Close kills every process on the hosts and removes the network. Calling Close twice
// is harmless.
func (n *Network) Close(ctx context.Context) error {
	n.hosts = nil
	return removeNamespaces(ctx, func(namespace string) bool { return strings.HasPrefix(namespace, n.name+".") })
}

// runIP runs the program ip.
func runIP(ctx context.Context, args ...string) error {
	return runCommand(exec.CommandContext(ctx, "ip", args...))
}

// runCommand runs a command. The error contains the command's output.
func runCommand(command *exec.Cmd) error {
	out, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(command.Args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
