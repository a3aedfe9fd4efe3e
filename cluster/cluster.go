// Package cluster knows the members of the cluster, their addresses and the state that
// each member publishes. It gossips over memberlist; no other package imports
// memberlist. Its lists of members are hints: another node may see other members, and a
// listed member may have died a moment ago. Leases in the store decide who owns a job,
// never this package.
//
//	Join, JoinDNS, JoinFile,
//	former members ──────► seekMissingMembers ─────────► memberlist.Join
//	                                                          │
//	UDP and TCP ◄──► memberlist ── callbacks ──► roster ──► Members, Changed
//	                      ▲                        ▲
//	                      └──── runDeliveries ◄─ SetState
//
// Callbacks run under memberlist's locks: they write to the roster and never call
// memberlist.
package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// idSuffix is the number of random bytes in an ID.
const idSuffix = 4

// maxID is the largest length of a member ID: a name, a hyphen and the suffix in hex.
const maxID = 64 + 1 + 2*idSuffix

// Cluster is the membership of this node in the cluster. Its methods are safe for
// concurrent use.
type Cluster struct {
	cfg     Config
	self    aliveMember
	meta    []byte // the encoded profile of this node
	metrics *metrics
	list    *memberlist.Memberlist
	network *gossipTransport
	ring    *memberlist.Keyring             // nil if gossip is not encrypted
	gossip  memberlist.TransmitLimitedQueue // goodbyes to send by gossip: messages that say that a member leaves
	changed chan struct{}                   // holds a token after a change of members or their states

	ctx  context.Context // ends when the Cluster closes, which stops seekMissingMembers and runDeliveries
	stop context.CancelFunc
	work sync.WaitGroup

	rekeying sync.Mutex // makes calls of SetKeys run one after the other

	closing sync.Mutex // makes calls of Leave and Close run one after the other
	closed  bool

	mu         sync.Mutex // guards the fields below; never locked during a call of list
	roster     *roster
	outbox     *outbox
	aliveCount atomic.Int64 // number of alive members; atomic, because memberlist reads it while mu may be locked
}

// Open joins the cluster. It returns once this node listens; seekMissingMembers keeps
// looking for missing members in the background. The context limits the time for DNS
// look-ups of Bind and Advertise.
func Open(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	bind, advertise, err := cfg.endpoints(ctx)
	if err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	self := cfg.member()
	meta, err := encodeProfile(self.profile)
	if err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	network, err := newGossipTransport(bind, cfg.Logger)
	if err != nil {
		return nil, fmt.Errorf("join the cluster: listen on %s: %w", bind, err)
	}
	if port := uint16(network.GetAutoBindPort()); advertise.Port() == 0 {
		advertise = netip.AddrPortFrom(advertise.Addr(), port)
	}
	self.at = advertise

	c := &Cluster{
		cfg: cfg, self: self, meta: meta, network: network,
		changed: make(chan struct{}, 1),
		roster:  newRoster(self, forgetAfter),
		outbox:  newOutbox(),
	}
	c.aliveCount.Store(1)
	c.gossip = memberlist.TransmitLimitedQueue{RetransmitMult: retransmits, NumNodes: func() int { return int(c.aliveCount.Load()) }}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.metrics = newMetrics(cfg.Metrics, c)
	if c.list, err = memberlist.Create(c.gossipConfig(bind, advertise)); err != nil {
		_ = network.Shutdown()
		c.stop()
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	c.publishHealth()
	if len(cfg.Keys) == 0 && !advertise.Addr().IsLoopback() {
		cfg.Logger.Warn("gossip is not encrypted: any program that reaches the gossip port can join the cluster; set gossip keys", "address", advertise.String())
	}
	c.work.Go(c.seekMissingMembers)
	c.work.Go(c.runDeliveries)
	return c, nil
}

// member returns the entry for this process in the roster, with a new random id and no
// address yet.
func (c Config) member() aliveMember {
	var suffix [idSuffix]byte
	_, _ = rand.Read(suffix[:]) // never fails
	return aliveMember{
		id: c.Node + "-" + hex.EncodeToString(suffix[:]),
		profile: profile{
			Rowmill: 1, Node: c.Node, Peer: c.Peer, API: c.API,
			Engines: c.Engines, Owns: c.Owns, Protocol: c.Protocol, Started: time.Now().UnixMicro(),
		},
	}
}

// maxState limits the state of a member, in bytes: every member keeps a copy, and a full exchange
// carries all states.
const maxState = 16 << 10

// forgetAfter is how long this node looks for a member that vanished without leaving and that
// Config does not name. It is longer than an outage that an operator works on.
const forgetAfter = 24 * time.Hour

// retransmits is memberlist's RetransmitMult: a message is sent on retransmits ×
// log(members) times.
const retransmits = 4

// suspicionMax is memberlist's SuspicionMaxTimeoutMult: a suspicion that no other
// member confirms lasts at most this many times longer. memberlist's default is 6, and
// memberlist also waits for confirmations from dead members: in a cluster that had
// shrunk from five members to two, a killed member was noticed after 13.8 s.
const suspicionMax = 2

func (c *Cluster) gossipConfig(bind, advertise netip.AddrPort) *memberlist.Config {
	m := memberlist.DefaultLANConfig()
	m.Name = c.self.id
	m.BindAddr, m.BindPort = bind.Addr().String(), c.network.GetAutoBindPort()
	m.AdvertiseAddr, m.AdvertisePort = advertise.Addr().String(), int(advertise.Port())
	m.Label = c.cfg.Label
	m.ProbeInterval, m.ProbeTimeout, m.SuspicionMult = c.cfg.Timing.ProbeInterval, c.cfg.Timing.ProbeTimeout, c.cfg.Timing.SuspicionMult
	m.SuspicionMaxTimeoutMult = suspicionMax
	m.GossipInterval, m.PushPullInterval = c.cfg.Timing.GossipInterval, c.cfg.Timing.SyncInterval
	m.GossipToTheDeadTime, m.TCPTimeout = c.cfg.Timing.DeadTime, c.cfg.Timing.StreamTimeout
	m.RetransmitMult = retransmits
	// Packets are small, and compression needs a table of 64 KiB, so it would cost more
	// than it saves.
	m.EnableCompression = false
	if len(c.cfg.Keys) > 0 {
		// validate has checked the keys; the first key encrypts.
		m.Keyring, _ = memberlist.NewKeyring(c.cfg.Keys, c.cfg.Keys[0])
		c.ring = m.Keyring
	}
	m.Delegate, m.Events, m.Alive = (*gossipDelegate)(c), (*gossipDelegate)(c), (*gossipDelegate)(c)
	m.Logger = newGossipLog(c.cfg.Logger)
	m.Transport = c.network
	if c.cfg.transport != nil {
		m.Transport = c.cfg.transport(c.network)
	}
	return m
}

// Self returns this node.
func (c *Cluster) Self() Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.roster.member(c.self)
}

// Members returns the members that are alive, including this node, sorted by ID.
func (c *Cluster) Members() []Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.roster.members()
}

// Changed returns a channel that gets a token after members or their states have
// changed. One token may stand for several changes.
func (c *Cluster) Changed() <-chan struct{} { return c.changed }

// SetState publishes doc as this node's state and replaces the last one. The node sends
// doc to each member directly and at once, and to new members when they join. A member
// that cannot be reached gets doc later, from this node or from another. If doc is
// larger than maxState, SetState returns an error and changes nothing.
func (c *Cluster) SetState(doc []byte) error {
	if len(doc) > maxState {
		return fmt.Errorf("the state of this node has %d bytes, at most %d are allowed: publish a smaller state", len(doc), maxState)
	}
	c.mu.Lock()
	n := c.roster.publish(append([]byte{}, doc...), time.Now())
	c.outbox.publish(n.version, n.append(nil))
	c.mu.Unlock()
	c.outbox.wake()
	c.signal()
	return nil
}

// SetKeys replaces Config.Keys. A member cannot read packets that are encrypted with a
// key that it does not have. So change a key in three steps, and complete each step on
// all nodes before the next: {old, new}, {new, old}, {new}. SetKeys cannot turn
// encryption on or off.
func (c *Cluster) SetKeys(keys [][]byte) error {
	if err := checkKeys(keys); err != nil {
		return err
	}
	if c.ring == nil || len(keys) == 0 {
		return errors.New("encryption of gossip cannot be turned on or off while the node runs: restart the node to change it")
	}
	c.rekeying.Lock()
	defer c.rekeying.Unlock()
	return rekey(c.ring, keys)
}

// rekey replaces the keys of a key ring; the first key is the one that encrypts.
//
// RemoveKey shifts the keys behind the removed key, in a slice that other goroutines
// read at the same time. So rekey first moves the obsolete keys to the end, where their
// removal shifts nothing. Until the last step, the key that encrypts is an old key that
// stays, because the other members know this key.
func rekey(ring *memberlist.Keyring, keys [][]byte) error {
	holds := func(keys [][]byte, key []byte) bool {
		return slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) })
	}
	var stay [][]byte
	for _, key := range ring.GetKeys() {
		if holds(keys, key) {
			stay = append(stay, key)
		}
	}
	if len(stay) == 0 {
		if err := ring.AddKey(keys[0]); err != nil {
			return err
		}
		stay = keys[:1]
	}
	for _, key := range slices.Backward(stay) {
		if err := ring.UseKey(key); err != nil {
			return err
		}
	}
	for _, key := range slices.Backward(ring.GetKeys()) {
		if holds(keys, key) {
			break
		}
		if err := ring.RemoveKey(key); err != nil {
			return err
		}
	}
	for _, key := range keys {
		if err := ring.AddKey(key); err != nil {
			return err
		}
	}
	return ring.UseKey(keys[0])
}

// Leave tells the other members that this node leaves, so that they do not look for it.
// This message is called the goodbye; the context limits the time for it. Then Leave
// closes the Cluster.
func (c *Cluster) Leave(ctx context.Context) error {
	c.closing.Lock()
	defer c.closing.Unlock()
	if c.closed {
		return nil
	}
	c.stop() // memberlist must not Join after it has left
	carried := c.sayGoodbye(ctx)
	// memberlist also announces that this node leaves. It would wait until gossip has
	// carried this message, even if all members leave at the same time and no receiver
	// is left. A timeout of one nanosecond skips the wait.
	_ = c.list.Leave(time.Nanosecond)
	return errors.Join(c.waitForGoodbye(ctx, carried), c.close())
}

// leaveTimeout limits how long Leave waits until gossip has carried the goodbye.
const leaveTimeout = 5 * time.Second

// waitForGoodbye waits until gossip has carried the goodbye or no other member is left.
// Meanwhile it pings the other members: pings carry gossip too, and are sent sooner
// than the next gossip packet.
func (c *Cluster) waitForGoodbye(ctx context.Context, carried <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	for turn := 0; ; turn++ {
		others := c.others()
		if len(others) == 0 {
			return nil
		}
		select {
		case <-carried:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("leave the cluster: the goodbye did not get through to %d members: their probes will find that this node is gone: %w", len(others), ctx.Err())
		default:
		}
		to := others[turn%len(others)]
		_, _ = c.list.Ping(to.id, net.UDPAddrFromAddrPort(to.at)) // a member that does not answer may be leaving too
	}
}

// others returns the alive members except this node.
func (c *Cluster) others() []aliveMember {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(c.roster.currentMembers(), func(p aliveMember) bool { return p.id == c.self.id })
}

// Close stops the membership at once, without a goodbye: the other members then treat
// this node as missing. After Leave or an earlier Close it does nothing.
func (c *Cluster) Close() error {
	c.closing.Lock()
	defer c.closing.Unlock()
	return c.close()
}

// close is Close for a caller that has locked closing.
func (c *Cluster) close() error {
	if c.closed {
		return nil
	}
	c.closed = true
	c.stop()
	c.network.cut()
	err := c.list.Shutdown()
	c.work.Wait()
	if err != nil {
		return fmt.Errorf("close the cluster's gossip: %w", err)
	}
	return nil
}

// signal puts a token into the channel changed, unless it has one.
func (c *Cluster) signal() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}
