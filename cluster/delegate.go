package cluster

import (
	"log"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
)

// gossipDelegate is a Cluster that receives memberlist's callbacks. The callbacks run while
// memberlist has locks, so they must not call memberlist.
type gossipDelegate Cluster

var (
	_ memberlist.Delegate      = (*gossipDelegate)(nil)
	_ memberlist.EventDelegate = (*gossipDelegate)(nil)
	_ memberlist.AliveDelegate = (*gossipDelegate)(nil)
)

// NotifyAlive refuses members that are not Rowmill nodes.
func (d *gossipDelegate) NotifyAlive(node *memberlist.Node) error {
	_, err := decodeProfile(node.Meta)
	return err
}

// NotifyJoin records a member that joined or came back.
func (d *gossipDelegate) NotifyJoin(node *memberlist.Node) { (*Cluster)(d).recordJoin(node) }

// NotifyUpdate records a changed profile of a member.
func (d *gossipDelegate) NotifyUpdate(node *memberlist.Node) { (*Cluster)(d).recordJoin(node) }

// NotifyLeave records that a member no longer answers or has left.
func (d *gossipDelegate) NotifyLeave(node *memberlist.Node) {
	c := (*Cluster)(d)
	c.mu.Lock()
	lost := c.roster.removeVanished(node.Name, time.Now())
	c.rosterChanged()
	c.mu.Unlock()
	if lost {
		c.metrics.lost.Inc()
		c.cfg.Logger.Warn("a member vanished without leaving; this node looks for it", "node", node.Name, "address", node.Address())
		c.signal()
	}
}

// NodeMeta returns the profile of this node.
func (d *gossipDelegate) NodeMeta(int) []byte { return d.meta }

// NotifyMsg handles messages of other members that came by gossip or directly.
func (d *gossipDelegate) NotifyMsg(text []byte) { (*Cluster)(d).receive(text) }

// GetBroadcasts adds queued goodbyes to a packet.
func (d *gossipDelegate) GetBroadcasts(overhead, limit int) [][]byte {
	return d.gossip.GetBroadcasts(overhead, limit)
}

// LocalState returns this node's part of a full exchange: the documents of all alive
// members.
func (d *gossipDelegate) LocalState(bool) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	var text []byte
	for _, n := range d.roster.messages() {
		text = n.append(text)
	}
	return text
}

// MergeRemoteState handles the other member's part of a full exchange.
func (d *gossipDelegate) MergeRemoteState(text []byte, _ bool) { (*Cluster)(d).receive(text) }

// recordJoin records a member that is alive, or a change of its profile.
func (c *Cluster) recordJoin(node *memberlist.Node) {
	decoded, err := decodeProfile(node.Meta)
	addr, ok := netip.AddrFromSlice(node.Addr)
	if err != nil || !ok || node.Name == c.self.id {
		return // NotifyAlive refuses foreign members
	}
	p := aliveMember{id: node.Name, profile: decoded, at: netip.AddrPortFrom(addr.Unmap(), node.Port)}
	c.mu.Lock()
	_, known := c.roster.alive[p.id]
	fresh := c.roster.join(p)
	if fresh && !known {
		c.outbox.resend(p.id)
	}
	c.rosterChanged()
	c.mu.Unlock()
	if !fresh {
		return
	}
	c.cfg.Logger.Info("a member joined", "node", p.id, "address", p.at.String(), "peer", p.Peer, "api", p.API)
	switch {
	case p.Protocol != c.self.Protocol:
		c.cfg.Logger.Warn("a member uses another version of the messages between nodes: run the same release on all nodes",
			"node", p.id, "theirs", p.Protocol, "ours", c.self.Protocol)
	case p.at == c.self.at && p.Started > c.self.Started:
		c.cfg.Logger.Warn("another member advertises the gossip address of this node: check the cluster addresses of both", "node", p.id, "address", p.at.String())
	}
	c.outbox.wake()
	c.signal()
}

// receive applies messages of other members to the roster. It passes a new goodbye on
// by gossip, because the leaving member cannot repeat it.
func (c *Cluster) receive(text []byte) {
	fresh := 0
	c.mu.Lock()
	err := decodeUpdates(text, maxState, func(n memberUpdate) {
		if !c.roster.applyUpdate(n, time.Now()) {
			return
		}
		fresh++
		if n.leaving {
			c.gossip.QueueBroadcast(goodbye{id: n.id, message: n.append(nil)})
			c.cfg.Logger.Info("a member left", "node", n.id)
		}
	})
	c.rosterChanged()
	c.mu.Unlock()
	if err != nil {
		c.cfg.Logger.Warn("a message of another member was ignored because decoding failed; check that all nodes run the same version", "err", err)
	}
	if fresh > 0 {
		c.signal()
	}
}

// rosterChanged updates the fields that depend on the roster. The caller has locked
// c.mu.
func (c *Cluster) rosterChanged() {
	c.aliveCount.Store(int64(len(c.roster.alive)))
	c.outbox.dropExcept(c.roster.alive)
}

// gossipLog writes memberlist's log lines to slog. It lowers their levels: memberlist
// logs a warning whenever a member does not answer, which is normal.
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

// emptyStream is the start of memberlist's log line about a connection that was closed
// before any data came. A member on a busy machine closes a connection if its ping
// times out before the connection is open; port checks do the same. Both are harmless.
const emptyStream = `discarding stream with unacceptable label ""`

func newGossipLog(logger *slog.Logger) *log.Logger { return log.New(gossipLog{logger}, "", 0) }
