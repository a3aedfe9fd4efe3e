package cluster

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// spreadPause is the shortest time between two rounds in which runDeliveries sends
	// messages.
	spreadPause = 250 * time.Millisecond

	// spreadRetry is the time until a failed delivery is retried.
	spreadRetry = time.Second

	// spreadAtOnce is the largest number of concurrent deliveries.
	spreadAtOnce = 8
)

// outbox tracks which members do not have this node's newest document, which is the
// state that SetState sets. The node sends the document to each member directly: it
// then arrives at once, whatever its size, and no other member has to pass it on. The
// cluster's mutex guards all fields except due.
type outbox struct {
	version uint64            // version of the document in message; 0: there is no document yet
	message []byte            // the encoded update with the document
	sent    map[string]uint64 // by member ID: the last version sent to the member; no entry for a new member
	sending map[string]bool   // by member ID: a delivery to the member is in progress
	due     chan struct{}     // holds a token when spread should start a round of deliveries
}

func newOutbox() *outbox {
	return &outbox{sent: make(map[string]uint64), sending: make(map[string]bool), due: make(chan struct{}, 1)}
}

// publish replaces the message that members should get.
func (o *outbox) publish(version uint64, message []byte) { o.version, o.message = version, message }

// resend makes next return a delivery of the document to this member, which has just
// joined.
func (o *outbox) resend(id string) { delete(o.sent, id) }

// dropExcept drops the entries of all members except the members in here.
func (o *outbox) dropExcept(here map[string]aliveMember) {
	for id := range o.sent {
		if _, ok := here[id]; !ok {
			delete(o.sent, id)
		}
	}
}

// wake makes runDeliveries start a round of deliveries.
func (o *outbox) wake() {
	select {
	case o.due <- struct{}{}:
	default:
	}
}

// delivery is a message on its way to one member.
type delivery struct {
	to      aliveMember
	version uint64
	message []byte
}

// next returns a delivery for each member that does not have the newest document, and
// marks these deliveries as being sent.
func (o *outbox) next(members []aliveMember, self string) (list []delivery) {
	for _, p := range members {
		if p.id == self || o.version == 0 || o.sending[p.id] || o.sent[p.id] == o.version {
			continue
		}
		o.sending[p.id] = true
		list = append(list, delivery{to: p, version: o.version, message: o.message})
	}
	return list
}

// finishDelivery records the result of a delivery and reports whether another one is needed.
func (o *outbox) finishDelivery(d delivery, ok bool) (again bool) {
	delete(o.sending, d.to.id)
	if ok {
		o.sent[d.to.id] = d.version
	}
	return !ok || d.version != o.version
}

// runDeliveries sends this node's document to the members that do not have it, until the
// Cluster closes.
func (c *Cluster) runDeliveries() {
	var sending sync.WaitGroup
	defer sending.Wait()
	room := make(chan struct{}, spreadAtOnce)
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.outbox.due:
		}
		c.mu.Lock()
		list := c.outbox.next(c.roster.currentMembers(), c.self.id)
		c.mu.Unlock()
		for _, d := range list {
			sending.Go(func() {
				room <- struct{}{}
				err := c.send(d.to, d.message)
				<-room
				c.recordDelivery(d, err)
			})
		}
		if !c.sleepUnlessClosed(spreadPause) {
			return
		}
	}
}

// recordDelivery records the result of a delivery, and makes runDeliveries repeat a failed or
// outdated delivery.
func (c *Cluster) recordDelivery(d delivery, err error) {
	c.mu.Lock()
	again := c.outbox.finishDelivery(d, err == nil)
	c.mu.Unlock()
	if err != nil {
		c.cfg.Logger.Debug("delivering the state failed, retrying", "node", d.to.id, "err", err)
		if !c.sleepUnlessClosed(spreadRetry) {
			return
		}
	}
	if again {
		c.outbox.wake()
	}
}

// send sends a message to a member over TCP.
func (c *Cluster) send(to aliveMember, message []byte) error {
	node := &memberlist.Node{Name: to.id, Addr: net.IP(to.at.Addr().AsSlice()), Port: to.at.Port()}
	return c.list.SendReliable(node, message)
}

// sayGoodbye tells each member directly that this node leaves. Without this message,
// members would count this node as vanished. The channel carried is closed when gossip
// has also sent the goodbye often enough.
func (c *Cluster) sayGoodbye(ctx context.Context) (carried <-chan struct{}) {
	n := memberUpdate{id: c.self.id, leaving: true}
	message := n.append(nil)
	var wg sync.WaitGroup
	room := make(chan struct{}, spreadAtOnce)
	for _, p := range c.others() {
		wg.Add(1)
		c.work.Go(func() {
			defer wg.Done()
			room <- struct{}{}
			defer func() { <-room }()
			if err := c.send(p, message); err != nil {
				c.cfg.Logger.Debug("telling a member that this node leaves failed; other members pass the message on", "node", p.id, "err", err)
			}
		})
	}
	all := make(chan struct{})
	c.work.Go(func() { defer close(all); wg.Wait() })
	timer := time.NewTimer(goodbyeTimeout)
	defer timer.Stop()
	select {
	case <-all:
	case <-timer.C:
	case <-ctx.Done():
	}
	gossiped := make(chan struct{})
	c.gossip.QueueBroadcast(goodbye{id: c.self.id, message: message, finished: func() { close(gossiped) }})
	return gossiped
}

// goodbyeTimeout limits how long Leave waits for members that do not answer. They get
// the goodbye from other members.
const goodbyeTimeout = time.Second

// goodbye is an entry in memberlist's queue of messages to gossip: it says that a
// member leaves.
type goodbye struct {
	id       string
	message  []byte
	finished func() // called when memberlist has sent the message often enough; may be nil
}

var _ memberlist.NamedBroadcast = goodbye{}

// Name returns the ID of the leaving member. The queue keeps one goodbye per name.
func (g goodbye) Name() string { return g.id }

// Message returns the bytes to send.
func (g goodbye) Message() []byte { return g.message }

// Invalidates returns false, because the queue compares names to find old entries.
func (g goodbye) Invalidates(memberlist.Broadcast) bool { return false }

// Finished is called by memberlist when gossip has sent the goodbye often enough.
func (g goodbye) Finished() {
	if g.finished != nil {
		g.finished()
	}
}

// sleepUnlessClosed waits for d and returns true. If the Cluster closes meanwhile, it returns false
// at once.
func (c *Cluster) sleepUnlessClosed(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}
