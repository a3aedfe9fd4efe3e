package faultnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// prefix is the start of every namespace's name; the PID of the process that made the
// namespace follows.
const prefix = "rowmill."

// benchmarks is the block of addresses that RFC 2544 reserves for networks inside a
// laboratory. No test needs another address of this block.
var benchmarks = netip.MustParsePrefix("198.18.0.0/15")

// freeSubnet returns a /24 of the block benchmarks that no interface of this machine
// uses. The search starts at a subnet that depends on the process.
func freeSubnet(ctx context.Context) (netip.Prefix, error) {
	if err := ctx.Err(); err != nil {
		return netip.Prefix{}, err
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("list this machine's addresses: %w", err)
	}
	taken := map[netip.Prefix]bool{}
	for _, a := range addresses {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().Is4() {
			taken[netip.PrefixFrom(prefix.Addr(), 24).Masked()] = true
		}
	}
	const subnets = 512 // number of /24 in a /15
	base := benchmarks.Addr().As4()
	for i := range subnets {
		number := (os.Getpid() + i) % subnets
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{base[0], base[1] + byte(number>>8), byte(number), 0}), 24)
		if !taken[subnet] {
			return subnet, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("all of %v is taken: remove networks of earlier tests with `ip netns delete`", benchmarks)
}

// removeDeadNetworks removes the networks of processes that have ended.
func removeDeadNetworks(ctx context.Context) error {
	return removeNamespaces(ctx, func(namespace string) bool {
		owner, _, _ := strings.Cut(strings.TrimPrefix(namespace, prefix), ".")
		pid, err := strconv.Atoi(owner)
		return err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	})
}

// removeNamespaces kills all processes in the chosen namespaces of this package and removes the
// namespaces. That also removes their virtual network cables.
func removeNamespaces(ctx context.Context, chosen func(namespace string) bool) error {
	// Continue even after the test's context has ended: no other code removes the
	// namespaces.
	ctx = context.WithoutCancel(ctx)
	list, err := exec.CommandContext(ctx, "ip", "netns", "list").Output()
	if err != nil {
		return fmt.Errorf("list network namespaces: %w", err)
	}
	var errs []error
	for line := range strings.Lines(string(list)) {
		namespace, _, _ := strings.Cut(strings.TrimSpace(line), " ") // "(id: 7)" may follow
		if !strings.HasPrefix(namespace, prefix) || !chosen(namespace) {
			continue
		}
		pids, err := exec.CommandContext(ctx, "ip", "netns", "pids", namespace).Output()
		if err != nil {
			errs = append(errs, fmt.Errorf("list the processes in %s: %w", namespace, err))
		}
		for _, text := range strings.Fields(string(pids)) {
			if pid, err := strconv.Atoi(text); err == nil && pid != os.Getpid() {
				_ = syscall.Kill(pid, syscall.SIGKILL) // an error does not matter: the process may have ended already
			}
		}
		errs = append(errs, runIP(ctx, "netns", "delete", namespace))
	}
	return errors.Join(errs...)
}
