// Package cluster answers three questions: who is here, where can they be
// reached, and what do they say of themselves. It gossips over memberlist,
// which no other package knows. Its answers are hints: another member may see
// it differently, and one that is listed may have died a moment ago. Who owns
// what is decided by leases in the store, never here.
//
//	Join, JoinDNS, JoinFile, former members ──► seek ──► memberlist.Join
//	                                                          │
//	UDP and TCP ◄──► memberlist ── callbacks ──► roster ──► Members, Changed
//	                      ▲                        ▲
//	                      └──── spread ◄──────── SetState
//
// Callbacks run under memberlist's locks: they write to the roster and call
// nothing of memberlist.
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

// maxID bounds an ID: a name, a hyphen and the suffix in hex.
const maxID = 64 + 1 + 2*idSuffix

// Cluster is this node's part in the cluster. Its methods may be called
// concurrently.
type Cluster struct {
	cfg     Config
	self    present
	meta    []byte
	metrics *metrics
	list    *memberlist.Memberlist
	network *network
	ring    *memberlist.Keyring             // nil for gossip in the clear
	gossip  memberlist.TransmitLimitedQueue // goodbyes
	changed chan struct{}

	ctx  context.Context // of seek and spread
	stop context.CancelFunc
	work sync.WaitGroup

	rekeying sync.Mutex // serialises SetKeys

	end sync.Mutex // serialises Leave and Close
	off bool

	mu     sync.Mutex // guards what follows; held briefly, never around a call of list
	roster *roster
	outbox *outbox
	head   atomic.Int64 // members in the roster, for gossip, whose lock may be held
}

// Open joins the cluster. It returns as soon as this node listens: the others
// are looked for in the background, for as long as they are missing. The
// context bounds the look-up of names in Bind and Advertise.
func Open(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	bind, advertise, err := cfg.endpoints(ctx)
	if err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	var suffix [idSuffix]byte
	_, _ = rand.Read(suffix[:]) // never fails
	self := present{
		id: cfg.Node + "-" + hex.EncodeToString(suffix[:]),
		profile: profile{
			Rowmill: 1, Node: cfg.Node, Peer: cfg.Peer, API: cfg.API,
			Engines: cfg.Engines, Owns: cfg.Owns, Protocol: cfg.Protocol, Started: time.Now().UnixMicro(),
		},
	}
	meta, err := encodeProfile(self.profile)
	if err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	network, err := newNetwork(bind, cfg.Logger)
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
		roster:  newRoster(self, cfg.Timing.ForgetAfter),
		outbox:  newOutbox(),
	}
	c.head.Store(1)
	c.gossip = memberlist.TransmitLimitedQueue{RetransmitMult: retransmits, NumNodes: func() int { return int(c.head.Load()) }}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.metrics = newMetrics(cfg.Metrics, c)
	if c.list, err = memberlist.Create(c.gossipConfig(bind, advertise)); err != nil {
		_ = network.Shutdown()
		c.stop()
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	c.publishHealth()
	if len(cfg.Keys) == 0 && !advertise.Addr().IsLoopback() {
		cfg.Logger.Warn("gossip is not encrypted: whoever reaches its port can join the cluster", "address", advertise.String())
	}
	c.work.Go(c.seek)
	c.work.Go(c.spread)
	return c, nil
}

// retransmits is memberlist's factor for how often a message is sent on, times
// the logarithm of the members.
const retransmits = 4

// suspicionMax bounds how much longer a suspicion lasts that others do not
// confirm. memberlist's default is 6, and it waits for confirmations of members
// that are dead as well: in a cluster of two that had been five, a kill took
// 13.8 s to notice.
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
	// Packets are small, and a compressor's table has 64 KiB: compressing them
	// costs more than sending them.
	m.EnableCompression = false
	if len(c.cfg.Keys) > 0 {
		// The keys were checked; the first is the one that encrypts.
		m.Keyring, _ = memberlist.NewKeyring(c.cfg.Keys, c.cfg.Keys[0])
		c.ring = m.Keyring
	}
	m.Delegate, m.Events, m.Alive = (*delegate)(c), (*delegate)(c), (*delegate)(c)
	m.Logger = newGossipLog(c.cfg.Logger)
	m.Transport = c.network
	if c.cfg.transport != nil {
		m.Transport = c.cfg.transport(c.network)
	}
	return m
}

// Self is this node.
func (c *Cluster) Self() Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.roster.member(c.self)
}

// Members returns the members that are here, this one included, sorted by ID.
func (c *Cluster) Members() []Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.roster.members()
}

// Changed yields a token after members or what they say have changed, one for
// any number of changes.
func (c *Cluster) Changed() <-chan struct{} { return c.changed }

// SetState says something of this node to all members, present and future, in
// place of what it said before. Each is told directly, at once; those that
// cannot be reached hear it later, from this node or another. An error says
// that doc is over MaxState; then nothing was changed.
func (c *Cluster) SetState(doc []byte) error {
	if len(doc) > c.cfg.MaxState {
		return fmt.Errorf("what this node says of itself has %d bytes, MaxState is %d", len(doc), c.cfg.MaxState)
	}
	c.mu.Lock()
	n := c.roster.publish(append([]byte{}, doc...), time.Now())
	c.outbox.publish(n.version, n.append(nil))
	c.mu.Unlock()
	c.outbox.wake()
	c.signal()
	return nil
}

// SetKeys replaces Config.Keys. A member that encrypts with a key that this one lacks is
// not heard, so a key changes in three steps, each on all nodes before the next: {old,
// new}, {new, old}, {new}. Gossip that is in the clear stays so, and none can be made so.
func (c *Cluster) SetKeys(keys [][]byte) error {
	if err := checkKeys(keys); err != nil {
		return err
	}
	if c.ring == nil || len(keys) == 0 {
		return errors.New("whether gossip is encrypted is settled when the cluster is opened; keys can be replaced by others alone")
	}
	c.rekeying.Lock()
	defer c.rekeying.Unlock()
	return rekey(c.ring, keys)
}

// rekey makes the keys those of a ring, the first the one that encrypts.
//
// The ring takes a key out of the very slice that its readers walk. At the end of it
// nothing moves under them, so that what goes is brought there first; only keys that
// were there before and stay encrypt meanwhile, which the others know.
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

// Leave tells the others that this node goes, so that nobody looks for it, and
// closes. The context bounds the telling.
func (c *Cluster) Leave(ctx context.Context) error {
	c.end.Lock()
	defer c.end.Unlock()
	if c.off {
		return nil
	}
	c.stop() // no Join after memberlist has left
	carried := c.farewell(ctx)
	// memberlist says goodbye too, and would wait until its gossip has carried
	// that, even where the others leave at the same time and nobody is left to
	// send it to.
	_ = c.list.Leave(time.Nanosecond)
	return errors.Join(c.await(ctx, carried), c.close())
}

// leavePatience bounds how long gossip is given to carry a goodbye.
const leavePatience = 5 * time.Second

// await has gossip carry a goodbye, until it has or nobody is left to hear it.
// It does not wait for the next packets of news: pings carry some too.
func (c *Cluster) await(ctx context.Context, carried <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, leavePatience)
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
			return fmt.Errorf("leave the cluster: the goodbye did not get through to %d members: they notice by themselves: %w", len(others), ctx.Err())
		default:
		}
		to := others[turn%len(others)]
		_, _ = c.list.Ping(to.id, net.UDPAddrFromAddrPort(to.at)) // whoever does not answer may be going as well
	}
}

// others are the members that are here, but for this node.
func (c *Cluster) others() []present {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(c.roster.current(), func(p present) bool { return p.id == c.self.id })
}

// Close stops at once: to the others this node has died. After Leave, or
// twice, it does nothing.
func (c *Cluster) Close() error {
	c.end.Lock()
	defer c.end.Unlock()
	return c.close()
}

func (c *Cluster) close() error {
	if c.off {
		return nil
	}
	c.off = true
	c.stop()
	c.network.cut()
	err := c.list.Shutdown()
	c.work.Wait()
	if err != nil {
		return fmt.Errorf("close the cluster's gossip: %w", err)
	}
	return nil
}

// signal says that something has changed.
func (c *Cluster) signal() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}
