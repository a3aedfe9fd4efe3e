package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	// seekFirst is the first pause between two searches of seek; the pause doubles up
	// to RejoinInterval. Nodes that start at the same time find each other after the
	// first pause.
	seekFirst = 500 * time.Millisecond

	// seekAtOnce is the largest number of concurrent exchanges. An exchange with a
	// machine that is switched off takes StreamTimeout.
	seekAtOnce = 8

	// introductions is the largest number of members that a new node contacts by
	// itself. In a larger cluster, gossip tells the other members about the new node.
	introductions = 32
)

// seekMissingMembers looks for missing members until the Cluster closes. memberlist forgets a member
// that did not answer for DeadTime. So without seekMissingMembers, the two parts of a
// cluster would stay separate after a longer network partition.
func (c *Cluster) seekMissingMembers() {
	failing, known := make(map[string]bool), false
	for wait := seekFirst; ; wait = min(2*wait, c.cfg.Timing.RejoinInterval) {
		tried := c.joinMissing()
		if c.ctx.Err() != nil {
			return
		}
		failing = c.logFailures(failing, tried)
		if !known {
			known = c.contactNewMembers(tried)
		}
		c.mu.Lock()
		c.roster.forgetExpired(time.Now())
		c.mu.Unlock()
		// Vary the pause by ±20 %: after a partition all nodes look for members, but
		// they should not all do so at the same time.
		if !c.sleepUnlessClosed(wait - wait/5 + rand.N(2*wait/5+1)) {
			return
		}
	}
}

// joinMissing contacts every address where a member is expected and no member is alive.
// It returns the result (an error or nil) for each address, and for each name and file
// that it resolved.
func (c *Cluster) joinMissing() map[string]error {
	tried := make(map[string]error)
	c.exchangeStates(c.seekTargets(tried), tried)
	return tried
}

// contactNewMembers contacts the members that this node learned of in its first exchange. They
// would hear of this node by gossip too, but later, and only owners that know this node
// send it rows. contactNewMembers returns false if this node knows no other member yet.
func (c *Cluster) contactNewMembers(tried map[string]error) bool {
	others := c.others()
	if len(others) == 0 {
		return false
	}
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	heard := make(map[netip.AddrPort]struct{})
	for _, p := range others[:min(len(others), introductions)] {
		if err, done := tried[p.at.String()]; !done || err != nil {
			heard[p.at] = struct{}{}
		}
	}
	c.exchangeStates(heard, tried)
	return true
}

// exchangeStates runs a full exchange of member lists and states with the member at each
// address. It records each result in tried.
func (c *Cluster) exchangeStates(addresses map[netip.AddrPort]struct{}, tried map[string]error) {
	var mu sync.Mutex // guards tried
	var tries sync.WaitGroup
	room := make(chan struct{}, seekAtOnce)
	for at := range addresses {
		tries.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			if c.ctx.Err() != nil {
				return
			}
			_, err := c.list.Join([]string{at.String()})
			if reason := errors.Unwrap(err); reason != nil {
				err = reason // memberlist's list of errors has several lines
			}
			c.metrics.joins.WithLabelValues(outcome(err)).Inc()
			mu.Lock()
			defer mu.Unlock()
			tried[at.String()] = err
		})
	}
	tries.Wait()
}

// seekTargets returns the addresses where a member is expected and no member is alive. It
// records in tried the names and files that could not be resolved or read.
func (c *Cluster) seekTargets(tried map[string]error) map[netip.AddrPort]struct{} {
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.Timing.StreamTimeout)
	defer cancel()
	named := append(nonEmpty(c.cfg.JoinDNS), c.cfg.Join...)
	if c.cfg.JoinFile != "" {
		listed, err := readAddresses(c.cfg.JoinFile)
		tried[c.cfg.JoinFile] = err
		named = append(named, listed...)
	}
	found := make(map[netip.AddrPort]struct{})
	for _, address := range named {
		host, port, err := splitAddress(address)
		if err != nil {
			tried[address] = err
			continue
		}
		addrs, err := c.cfg.lookup(ctx, host)
		if err != nil {
			tried[address] = err
		}
		for _, addr := range addrs {
			found[netip.AddrPortFrom(addr, port)] = struct{}{}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.roster.missing() {
		found[at] = struct{}{}
	}
	for at := range found {
		if c.roster.isOccupied(at) {
			delete(found, at)
		}
	}
	return found
}

// readAddresses reads the lines of a file and skips empty lines and comments.
func readAddresses(file string) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read the members to join: %w", err)
	}
	defer func() { _ = f.Close() }()
	var list []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "" && !strings.HasPrefix(line, "#") {
			list = append(list, line)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the members to join: %s: %w", file, err)
	}
	return list, nil
}

// logFailures logs each address where contacts begin to fail or no longer fail, and returns
// the addresses that fail now.
func (c *Cluster) logFailures(before map[string]bool, tried map[string]error) map[string]bool {
	now := make(map[string]bool)
	for what, err := range tried {
		if err == nil {
			continue
		}
		now[what] = true
		if !before[what] {
			c.cfg.Logger.Warn("no member found at an address, retrying until one answers", "address", what, "err", err)
		}
	}
	for what := range before {
		if !now[what] {
			c.cfg.Logger.Info("no longer looking for a member at an address", "address", what)
		}
	}
	return now
}

func outcome(err error) string {
	if err != nil {
		return "failed"
	}
	return "ok"
}
