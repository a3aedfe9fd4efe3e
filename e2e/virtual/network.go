package virtual

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/cluster/peer"
)

// A network joins processes: who is there, and requests between them. What
// becomes of a packet on its way is a function's choice.
type network struct {
	mu    sync.Mutex
	ports map[string]*port // by the address that they listen at

	// reaches reports whether what one node sends another arrives.
	reaches func(from, to *port) bool
	// fate is what becomes of a request, or of its answer.
	fate func(from, to *port, kind string) fate
	// awake waits while a port's machine is stopped, and reports whether it
	// still lives.
	awake func(p *port) bool
	// later runs do after a while.
	later func(d time.Duration, do func())
	// deaf is how long it takes until a member is missed that does not answer.
	deaf time.Duration
}

// A fate is what becomes of one message.
type fate struct {
	delay  time.Duration // until it arrives
	back   time.Duration // until its answer does
	lost   bool          // it does not arrive
	unsaid bool          // its answer does not
	again  time.Duration // it arrives a second time, so much later; 0: once
}

// A port is a process on the network.
type port struct {
	net     *network
	node    int
	changed chan struct{}
	serve   atomic.Pointer[func(ctx context.Context, e peer.Envelope) (any, error)] // nil before it has started

	// Guarded by network.mu.
	member cluster.Member
	doc    int // version of member.State
	gone   bool
	view   map[string]seen // by ID
}

// seen is what a process knows of a member.
type seen struct {
	cluster.Member
	doc   int
	heard time.Time
}

var _ actors.Peers = (*port)(nil)

func newNetwork() *network {
	return &network{
		ports:   make(map[string]*port),
		reaches: func(_, _ *port) bool { return true },
		fate:    func(_, _ *port, _ string) fate { return fate{delay: time.Millisecond, back: time.Millisecond} },
		awake:   func(p *port) bool { return !p.left() },
		later:   func(d time.Duration, do func()) { time.AfterFunc(d, do) },
		deaf:    2 * time.Second,
	}
}

// listen adds a process.
func (n *network) listen(node int, m cluster.Member) *port {
	m.Self = true
	p := &port{net: n, node: node, member: m, changed: make(chan struct{}, 1), view: make(map[string]seen)}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ports[m.Peer] = p
	return p
}

// gossip has a process hear of the others, and them of it, until done.
func (p *port) gossip(done <-chan struct{}, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		p.meet()
		select {
		case <-done:
			return
		case <-tick.C:
		}
	}
}

// meet exchanges what is known with all who can be reached, and misses those
// who were not heard of for long.
func (p *port) meet() {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	if p.gone {
		return
	}
	now := time.Now()
	for _, at := range slices.Sorted(maps.Keys(p.net.ports)) {
		o := p.net.ports[at]
		if o == p || o.gone || !p.net.reaches(p, o) || !p.net.reaches(o, p) {
			continue
		}
		p.hear(o, now)
		o.hear(p, now)
	}
	for id, s := range p.view {
		if now.Sub(s.heard) > p.net.deaf {
			delete(p.view, id)
			p.tell()
		}
	}
}

func (p *port) hear(o *port, now time.Time) {
	s, known := p.view[o.member.ID]
	if !known || s.doc < o.doc {
		s.Member, s.doc = o.member, o.doc
		s.Self = false
		p.tell()
	}
	s.heard = now
	p.view[o.member.ID] = s
}

func (p *port) tell() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// close says that nobody listens any more. Told others know at once.
func (p *port) close(told bool) {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	p.gone = true
	if p.net.ports[p.member.Peer] == p {
		delete(p.net.ports, p.member.Peer)
	}
	if told {
		for _, o := range p.net.ports {
			delete(o.view, p.member.ID)
			o.tell()
		}
	}
}

func (p *port) left() bool {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	return p.gone
}

// Self is this process.
func (p *port) Self() cluster.Member {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	return p.member
}

// Members are those that were heard of lately, and this one.
func (p *port) Members() []cluster.Member {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	out := []cluster.Member{p.member}
	for _, s := range p.view {
		out = append(out, s.Member)
	}
	slices.SortFunc(out, func(a, b cluster.Member) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return out
}

// Changed holds a token after Members changed.
func (p *port) Changed() <-chan struct{} { return p.changed }

// maxState is the longest document that a member may spread, as cluster has it.
const maxState = 32 << 10

// SetState says it to all who can be reached now; the others hear it when they
// meet.
func (p *port) SetState(doc []byte) error {
	if len(doc) > maxState {
		return fmt.Errorf("the state has %d bytes, %d are allowed", len(doc), maxState)
	}
	p.net.mu.Lock()
	p.member.State = append([]byte(nil), doc...)
	p.doc++
	p.net.mu.Unlock()
	p.tell()
	d := p.net.fate(p, p, "state").delay
	p.net.later(d, p.meet)
	return nil
}

// handleTimeout bounds a request, as that of peer.Config.
const handleTimeout = 30 * time.Second

// Ask sends a request and waits for its answer.
func (p *port) Ask(ctx context.Context, address string, e peer.Envelope, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, handleTimeout)
	defer cancel()
	answer, err := p.ask(ctx, address, e)
	if err != nil {
		return fmt.Errorf("ask %s for %s: %w", address, e.Kind, err)
	}
	if reply == nil {
		return nil
	}
	return json.Unmarshal(answer, reply)
}

// A response is what comes back.
type response struct {
	doc []byte
	err error
}

func (p *port) ask(ctx context.Context, address string, e peer.Envelope) ([]byte, error) {
	if !p.net.awake(p) {
		return nil, errDead
	}
	if ctx.Err() != nil {
		return nil, unanswered(ctx)
	}
	e.Protocol = peer.Protocol
	o := p.net.at(address)
	if o == nil {
		if err := pause(ctx, p.net.fate(p, p, e.Kind).delay); err != nil {
			return nil, unanswered(ctx)
		}
		return nil, peer.ErrRefused
	}
	f := p.net.fate(p, o, e.Kind)
	answers := make(chan response, 1)
	if !f.lost && p.net.reaches(p, o) {
		p.net.later(f.delay, func() { p.deliver(address, e, f, answers) })
	}
	if f.again > 0 {
		p.net.later(f.delay+f.again, func() { p.deliver(address, e, fate{unsaid: true}, nil) })
	}
	select {
	case r := <-answers:
		if !p.net.awake(p) {
			return nil, errDead
		}
		return r.doc, r.err
	case <-ctx.Done():
		return nil, unanswered(ctx)
	}
}

// deliver has a request handled by who listens at an address then.
func (p *port) deliver(address string, e peer.Envelope, f fate, answers chan<- response) {
	o := p.net.at(address)
	if o == nil || !p.net.awake(o) {
		if !f.unsaid && o == nil {
			answers <- response{err: peer.ErrRefused}
		}
		return // who was stopped and then killed never answers
	}
	ctx, cancel := context.WithTimeout(context.Background(), handleTimeout)
	defer cancel()
	reply, err := o.answer(ctx, e)
	if f.unsaid || o.left() {
		return
	}
	if err == nil {
		doc, merr := json.Marshal(reply)
		p.back(o, f, answers, response{doc, merr})
		return
	}
	p.back(o, f, answers, response{err: err})
}

func (p *port) back(o *port, f fate, answers chan<- response, r response) {
	time.Sleep(f.back)
	if p.net.reaches(o, p) {
		answers <- r
	}
}

func (p *port) answer(ctx context.Context, e peer.Envelope) (any, error) {
	serve := p.serve.Load()
	if serve == nil {
		return nil, &peer.Refusal{Code: peer.CodeStarting, Message: "the node does not answer yet"}
	}
	return (*serve)(ctx, e)
}

func (n *network) at(address string) *port {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ports[address]
}

// unanswered is what an asker hears whose time is over.
func unanswered(ctx context.Context) error {
	if ctx.Err() == context.Canceled {
		return ctx.Err()
	}
	return fmt.Errorf("%w: no answer in time: %w", peer.ErrUnreachable, ctx.Err())
}
