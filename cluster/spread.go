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

	// spreadRetry is the time until a failed delivery is tried again.
	spreadRetry = time.Second

	// spreadAtOnce is how many members are sent to at a time.
	spreadAtOnce = 8
)

// outbox knows which members lack this node's document. Each gets it directly:
// it is there at once, whatever its size, and nobody has to pass it on. Its
// fields are guarded by the cluster's mutex, except for due.
type outbox struct {
	version uint64 // of the message
	message []byte
	has     map[string]uint64 // the version that a member has been sent; absent for a member that has just come
	sending map[string]bool
	due     chan struct{} // a token when a round is due
}

func newOutbox() *outbox {
	return &outbox{has: make(map[string]uint64), sending: make(map[string]bool), due: make(chan struct{}, 1)}
}

// publish replaces the message.
func (o *outbox) publish(version uint64, message []byte) { o.version, o.message = version, message }

// greet notes a member that has just come.
func (o *outbox) greet(id string) { delete(o.has, id) }

// keep forgets members that are gone.
func (o *outbox) keep(here map[string]present) {
	for id := range o.has {
		if _, ok := here[id]; !ok {
			delete(o.has, id)
		}
	}
}

func (o *outbox) wake() {
	select {
	case o.due <- struct{}{}:
	default:
	}
}

// delivery is one message for one member.
type delivery struct {
	to      present
	version uint64
	message []byte
}

// next returns the deliveries that are lacking and marks them as under way.
func (o *outbox) next(members []present, self string) (list []delivery) {
	for _, p := range members {
		if p.id == self || o.version == 0 || o.sending[p.id] || o.has[p.id] == o.version {
			continue
		}
		o.sending[p.id] = true
		list = append(list, delivery{to: p, version: o.version, message: o.message})
	}
	return list
}

// done notes how a delivery went, and reports whether another is needed.
func (o *outbox) done(d delivery, ok bool) (again bool) {
	delete(o.sending, d.to.id)
	if ok {
		o.has[d.to.id] = d.version
	}
	return !ok || d.version != o.version
}

// spread sends this node's document to those who lack it, until Close.
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

// delivered notes the end of a delivery and has a failed one repeated.
func (c *Cluster) delivered(d delivery, err error) {
	c.mu.Lock()
	again := c.outbox.done(d, err == nil)
	c.mu.Unlock()
	if err != nil {
		c.cfg.Logger.Debug("state was not delivered", "node", d.to.id, "err", err)
		if !c.pause(spreadRetry) {
			return
		}
	}
	if again {
		c.outbox.wake()
	}
}

// send gives a message to a member over TCP.
func (c *Cluster) send(to present, message []byte) error {
	node := &memberlist.Node{Name: to.id, Addr: net.IP(to.at.Addr().AsSlice()), Port: to.at.Port()}
	return c.list.SendReliable(node, message)
}

// farewell tells each member directly that this node goes: memberlist's own
// goodbye looks to them like a death. The channel is closed once gossip has
// carried it as well.
func (c *Cluster) farewell(ctx context.Context) (carried <-chan struct{}) {
	n := news{id: c.self.id, leaving: true}
	message := n.append(nil)
	var told sync.WaitGroup
	room := make(chan struct{}, spreadAtOnce)
	for _, p := range c.others() {
		told.Add(1)
		c.work.Go(func() {
			defer told.Done()
			room <- struct{}{}
			defer func() { <-room }()
			if err := c.send(p, message); err != nil {
				c.cfg.Logger.Debug("goodbye was not delivered", "node", p.id, "err", err)
			}
		})
	}
	all := make(chan struct{})
	c.work.Go(func() { defer close(all); told.Wait() })
	timer := time.NewTimer(farewellPatience)
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

// farewellPatience bounds how long a goodbye waits for members that do not
// answer; those that do pass it on.
const farewellPatience = time.Second

// goodbye is a message in memberlist's queue.
type goodbye struct {
	id       string
	message  []byte
	finished func() // it was sent as often as it should; nil: nobody waits for that
}

var _ memberlist.NamedBroadcast = goodbye{}

// Name is that of the member that leaves: one goodbye of each is enough.
func (g goodbye) Name() string { return g.id }

// Message is what is sent.
func (g goodbye) Message() []byte { return g.message }

// Invalidates is for messages without names.
func (g goodbye) Invalidates(memberlist.Broadcast) bool { return false }

// Finished ends the wait of whoever leaves.
func (g goodbye) Finished() {
	if g.finished != nil {
		g.finished()
	}
}

// pause waits, and reports false when this node closes meanwhile.
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
