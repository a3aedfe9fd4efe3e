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
	// seekFirst is the time from the first look for members to the second; it
	// doubles up to RejoinInterval. Nodes that start together find each other
	// within it.
	seekFirst = 500 * time.Millisecond

	// seekAtOnce is how many missing members are tried at a time: one whose
	// machine is off costs StreamTimeout.
	seekAtOnce = 8

	// introductions is how many members a new one turns to by itself. In a
	// larger cluster those pass it on: gossip begins with as many.
	introductions = 32
)

// seek looks for members that ought to be here and are not, until Close.
// memberlist itself forgets those that were gone for DeadTime, so that the
// halves of a cluster would stay apart after a longer partition.
func (c *Cluster) seek() {
	failing, known := make(map[string]bool), false
	for wait := seekFirst; ; wait = min(2*wait, c.cfg.Timing.RejoinInterval) {
		tried := c.look()
		if c.ctx.Err() != nil {
			return
		}
		failing = c.report(failing, tried)
		if !known {
			known = c.introduce(tried)
		}
		c.mu.Lock()
		c.roster.forget(time.Now())
		c.mu.Unlock()
		// A fifth more or less, so that halves do not try in step.
		if !c.pause(wait - wait/5 + rand.N(2*wait/5+1)) {
			return
		}
	}
}

// look tries every address where a member ought to be and none is. It returns
// what it tried, names and files included, and how each went.
func (c *Cluster) look() map[string]error {
	tried := make(map[string]error)
	c.exchange(c.targets(tried), tried)
	return tried
}

// introduce turns to the members that this node has heard of by its first
// exchange: gossip would tell them of it some rounds later, and rows come only
// from owners that know it. It reports whether there was such an exchange.
func (c *Cluster) introduce(tried map[string]error) bool {
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
	c.exchange(heard, tried)
	return true
}

// exchange has memberlist exchange all it knows with whoever is at some
// addresses, and notes in tried how each went.
func (c *Cluster) exchange(addresses map[netip.AddrPort]struct{}, tried map[string]error) {
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
				err = reason // alone: memberlist's list of errors has several lines
			}
			c.metrics.joins.WithLabelValues(outcome(err)).Inc()
			mu.Lock()
			defer mu.Unlock()
			tried[at.String()] = err
		})
	}
	tries.Wait()
}

// targets are the addresses where a member ought to be and none is. What could
// not be resolved or read goes into tried.
func (c *Cluster) targets(tried map[string]error) map[netip.AddrPort]struct{} {
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
		if c.roster.occupied(at) {
			delete(found, at)
		}
	}
	return found
}

// readAddresses reads the lines of a file that are neither empty nor comments.
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

// report logs each trouble when it begins and when it is over, and returns what
// fails now.
func (c *Cluster) report(before map[string]bool, tried map[string]error) map[string]bool {
	now := make(map[string]bool)
	for what, err := range tried {
		if err == nil {
			continue
		}
		now[what] = true
		if !before[what] {
			c.cfg.Logger.Warn("no member found, looking again and again", "address", what, "err", err)
		}
	}
	for what := range before {
		if !now[what] {
			c.cfg.Logger.Info("no longer looking for a member", "address", what)
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
