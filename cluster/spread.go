package cluster

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// spreadPause is the least time between two rounds of sending.
	spreadPause = 250 * time.Millisecond

	// spreadRetry is the time until a failed delivery is retried.
	spreadRetry = time.Second

	// spreadAtOnce limits concurrent deliveries.
	spreadAtOnce = 8
)

// outbox knows which members lack this node's document. The document goes to each
// member directly: it arrives at once, whatever its size, and no other member has to
// pass it on. The cluster's mutex guards all fields except due.
type outbox struct {
	version uint64 // of the message
	message []byte
	sent    map[string]uint64 // by member ID: the last version sent to the member; no entry for a new member
	sending map[string]bool
	due     chan struct{} // a token when a round of deliveries is due
}

func newOutbox() *outbox {
	return &outbox{sent: make(map[string]uint64), sending: make(map[string]bool), due: make(chan struct{}, 1)}
}

// publish replaces the message.
func (o *outbox) publish(version uint64, message []byte) { o.version, o.message = version, message }

// resend makes next send the document again, to a member that has just joined.
func (o *outbox) resend(id string) { delete(o.sent, id) }

// keep drops the entries of members that are not in here.
func (o *outbox) keep(here map[string]aliveMember) {
	for id := range o.sent {
		if _, ok := here[id]; !ok {
			delete(o.sent, id)
		}
	}
}

func (o *outbox) wake() {
	select {
	case o.due <- struct{}{}:
	default:
	}
}

// delivery is one message to one member.
type delivery struct {
	to      aliveMember
	version uint64
	message []byte
}

// next returns the outstanding deliveries and marks them as being sent.
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

// done records the result of a delivery and reports whether another one is needed.
func (o *outbox) done(d delivery, ok bool) (again bool) {
	delete(o.sending, d.to.id)
	if ok {
		o.sent[d.to.id] = d.version
	}
	return !ok || d.version != o.version
}

// spread sends this node's document to the members that lack it, until Close.
func (c *Cluster) spread() {
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
		list := c.outbox.next(c.roster.current(), c.self.id)
		c.mu.Unlock()
		for _, d := range list {
			sending.Go(func() {
				room <- struct{}{}
				err := c.send(d.to, d.message)
				<-room
				c.delivered(d, err)
			})
		}
		if !c.pause(spreadPause) {
			return
		}
	}
}

// delivered records the end of a delivery, and makes spread repeat a failed delivery.
func (c *Cluster) delivered(d delivery, err error) {
	c.mu.Lock()
	again := c.outbox.done(d, err == nil)
	c.mu.Unlock()
	if err != nil {
		c.cfg.Logger.Debug("delivering the state failed, retrying", "node", d.to.id, "err", err)
		if !c.pause(spreadRetry) {
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

// sayGoodbye tells each member directly that this node leaves: with memberlist's own
// message they would count this node as vanished. The channel is closed once gossip
// has carried the goodbye as well.
func (c *Cluster) sayGoodbye(ctx context.Context) (carried <-chan struct{}) {
	n := update{id: c.self.id, leaving: true}
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

// goodbyeTimeout limits how long Leave waits for members that do not answer; the other
// members pass the goodbye on.
const goodbyeTimeout = time.Second

// goodbye is the message that a member leaves, in memberlist's queue.
type goodbye struct {
	id       string
	message  []byte
	finished func() // memberlist has sent the message often enough; may be nil
}

var _ memberlist.NamedBroadcast = goodbye{}

// Name returns the ID of the leaving member: the queue keeps one goodbye per name.
func (g goodbye) Name() string { return g.id }

// Message returns the bytes to send.
func (g goodbye) Message() []byte { return g.message }

// Invalidates returns false: the queue compares names instead.
func (g goodbye) Invalidates(memberlist.Broadcast) bool { return false }

// Finished tells the leaving node that gossip has carried the goodbye.
func (g goodbye) Finished() {
	if g.finished != nil {
		g.finished()
	}
}

// pause waits for d. It reports false if this node closes meanwhile.
func (c *Cluster) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}
