package cluster

import (
	"log"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
)

// delegate receives memberlist's callbacks. They run under its locks, so that
// none may call it back.
type delegate Cluster

var (
	_ memberlist.Delegate      = (*delegate)(nil)
	_ memberlist.EventDelegate = (*delegate)(nil)
	_ memberlist.AliveDelegate = (*delegate)(nil)
)

// NotifyAlive refuses members that are no nodes of ours.
func (d *delegate) NotifyAlive(node *memberlist.Node) error {
	_, err := decodeProfile(node.Meta)
	return err
}

// NotifyJoin notes a member that came, or came back.
func (d *delegate) NotifyJoin(node *memberlist.Node) { (*Cluster)(d).joined(node) }

// NotifyUpdate notes what a member tells of itself.
func (d *delegate) NotifyUpdate(node *memberlist.Node) { (*Cluster)(d).joined(node) }

// NotifyLeave notes a member that is gone.
func (d *delegate) NotifyLeave(node *memberlist.Node) {
	c := (*Cluster)(d)
	c.mu.Lock()
	lost := c.roster.lose(node.Name, time.Now())
	c.settle()
	c.mu.Unlock()
	if lost {
		c.metrics.lost.Inc()
		c.cfg.Logger.Warn("a member is gone without leaving", "node", node.Name, "address", node.Address())
		c.signal()
	}
}

// NodeMeta is what this node tells of itself.
func (d *delegate) NodeMeta(int) []byte { return d.meta }

// NotifyMsg takes in messages that came by gossip or directly.
func (d *delegate) NotifyMsg(text []byte) { (*Cluster)(d).learn(text) }

// GetBroadcasts adds our messages to a packet.
func (d *delegate) GetBroadcasts(overhead, limit int) [][]byte {
	return d.gossip.GetBroadcasts(overhead, limit)
}

// LocalState is our half of a full exchange.
func (d *delegate) LocalState(bool) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	var text []byte
	for _, n := range d.roster.messages() {
		text = n.append(text)
	}
	return text
}

// MergeRemoteState takes in the other half.
func (d *delegate) MergeRemoteState(text []byte, _ bool) { (*Cluster)(d).learn(text) }

func (c *Cluster) joined(node *memberlist.Node) {
	told, err := decodeProfile(node.Meta)
	addr, ok := netip.AddrFromSlice(node.Addr)
	if err != nil || !ok || node.Name == c.self.id {
		return // NotifyAlive lets no foreign member in
	}
	p := present{id: node.Name, profile: told, at: netip.AddrPortFrom(addr.Unmap(), node.Port)}
	c.mu.Lock()
	_, known := c.roster.alive[p.id]
	fresh := c.roster.join(p)
	if fresh && !known {
		c.outbox.greet(p.id)
	}
	c.settle()
	c.mu.Unlock()
	if !fresh {
		return
	}
	c.cfg.Logger.Info("a member is here", "node", p.id, "address", p.at.String(), "peer", p.Peer, "api", p.API)
	switch {
	case p.Protocol != c.self.Protocol:
		c.cfg.Logger.Warn("a member speaks another version of requests: run the same release on all nodes",
			"node", p.id, "theirs", p.Protocol, "ours", c.self.Protocol)
	case p.at == c.self.at && p.Started > c.self.Started:
		c.cfg.Logger.Warn("another member says that it is reached at this node's address: check cluster addresses", "node", p.id, "address", p.at.String())
	}
	c.outbox.wake()
	c.signal()
}

// learn takes in messages. A goodbye that is new is passed on: who says it is
// not there to repeat it.
func (c *Cluster) learn(text []byte) {
	fresh := 0
	c.mu.Lock()
	err := decodeNews(text, c.cfg.MaxState, func(n news) {
		if !c.roster.learn(n, time.Now()) {
			return
		}
		fresh++
		if n.leaving {
			c.gossip.QueueBroadcast(goodbye{id: n.id, message: n.append(nil)})
			c.cfg.Logger.Info("a member leaves", "node", n.id)
		}
	})
	c.settle()
	c.mu.Unlock()
	if err != nil {
		c.cfg.Logger.Warn("a message of another member cannot be read: is its MaxState larger?", "err", err)
	}
	if fresh > 0 {
		c.signal()
	}
}

// settle brings what depends on the roster in line with it; c.mu is held.
func (c *Cluster) settle() {
	c.head.Store(int64(len(c.roster.alive)))
	c.outbox.keep(c.roster.alive)
}

// gossipLog turns memberlist's lines into records: its levels overstate what is
// ordinary here, a member that does not answer.
type gossipLog struct{ logger *slog.Logger }

func (g gossipLog) Write(line []byte) (int, error) {
	level, text, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
	text = strings.TrimPrefix(text, "memberlist: ")
	switch {
	case strings.HasPrefix(text, emptyStream):
		g.logger.Debug("memberlist reported", "detail", text)
	case level == "[ERR]", level == "[WARN]":
		g.logger.Info("memberlist reported", "detail", text)
	default:
		g.logger.Debug("memberlist reported", "detail", text)
	}
	return len(line), nil
}

// emptyStream begins what memberlist says of a connection that was closed before
// anything was sent. A member makes such ones when the time for a ping runs out
// while it connects, on a busy machine, and so does whoever looks whether the
// port is open: the label that it lacks is no fault of theirs.
const emptyStream = `discarding stream with unacceptable label ""`

func newGossipLog(logger *slog.Logger) *log.Logger { return log.New(gossipLog{logger}, "", 0) }
