package virtual

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cluster/peer/peerv1/peerv1connect"
)

// A network connects processes: membership, and requests between processes. The function
// fate decides the faults of each message.
type network struct {
	mu    sync.Mutex
	ports map[string]*port // by listen address
	last  map[string]*port // the last port of each address, also after its end
	ever  []*port          // all ports, also after their end, sorted by the ID of the member

	// reaches reports whether messages from one node to another arrive; broken, whether
	// reaches may return false for some nodes.
	reaches func(from, to *port) bool
	broken  func() bool
	// fate decides the delays and faults of a request and of its answer.
	fate func(from, to *port, kind string, text []byte) fate
	// awake waits while the machine of a port is stopped, and reports whether the
	// process still runs.
	awake func(p *port, what string) bool
	// said is called with each sent request, a message of the contract; may be nil.
	said func(request any)
	// later runs do after d.
	later func(d time.Duration, do func())
	// deaf is the time after which a silent member is removed.
	deaf time.Duration
	// handleTimeout is HandleTimeout of peer.Config; 0: the default.
	handleTimeout time.Duration
	log           *slog.Logger // errors of handlers
}

// A fate holds the delays and faults of a request and its answer.
type fate struct {
	delay  time.Duration // until the request arrives
	back   time.Duration // until the answer arrives
	lost   bool          // the request does not arrive
	unsaid bool          // the answer does not arrive
	again  time.Duration // the request arrives again after this time; 0: once only
}

// A port is a process on the network. It uses the real peer client and server, and
// carries their requests in place of TCP.
type port struct {
	net     *network
	node    int
	changed chan struct{}
	client  *peer.Client
	server  *peer.Responder
	life    context.Context // of its handlers: ends with the process
	end     context.CancelFunc
	under   sync.WaitGroup // requests that its handlers run

	number int   // number of ports before this one
	former *port // the previous port with the same address

	// Guarded by network.mu.
	member *cluster.Member // its own description: replaced, never changed
	left   bool            // not a member any more: it takes no new requests, but may still run some
	gone   bool
	view   []seen // knowledge about each port, by its number
}

// seen is the knowledge of a process about another.
type seen struct {
	said  *cluster.Member // nil: not a member
	heard time.Time       // time of the last contact
}

var _ actors.Peers = (*port)(nil)

func newNetwork() *network {
	return &network{
		ports:   make(map[string]*port),
		last:    make(map[string]*port),
		reaches: func(_, _ *port) bool { return true },
		broken:  func() bool { return false },
		fate: func(_, _ *port, _ string, _ []byte) fate {
			return fate{delay: time.Millisecond, back: time.Millisecond}
		},
		awake: func(p *port, _ string) bool { return !p.isGone() },
		later: func(d time.Duration, do func()) { time.AfterFunc(d, do) },
		deaf:  2 * time.Second,
		log:   slog.New(slog.DiscardHandler),
	}
}

// listen adds a process.
func (n *network) listen(node int, m cluster.Member) *port {
	p := &port{net: n, node: node, member: &m, changed: make(chan struct{}, 1)}
	p.life, p.end = context.WithCancel(context.Background())
	limits := peer.Config{Node: m.ID, HandleTimeout: n.handleTimeout, Carrier: p, Logger: n.log}
	p.server = peer.NewResponder(limits)
	limits.Interceptors = []connect.Interceptor{connect.UnaryInterceptorFunc(p.says)}
	p.client, _ = peer.NewClient(limits) // an error is about TLS
	n.mu.Lock()
	defer n.mu.Unlock()
	p.number, p.former = len(n.ever), n.last[m.Peer]
	n.ports[m.Peer], n.last[m.Peer] = p, p
	at, _ := slices.BinarySearchFunc(n.ever, p, func(a, b *port) int { return strings.Compare(a.member.ID, b.member.ID) })
	n.ever = slices.Insert(n.ever, at, p)
	return p
}

// gossip exchanges descriptions with the other processes until done is closed.
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

// meet exchanges descriptions with all reachable processes, and removes members that were
// silent for longer than deaf.
func (p *port) meet() {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	if p.left {
		return
	}
	now, broken := time.Now(), p.net.broken()
	for _, address := range slices.Sorted(maps.Keys(p.net.ports)) {
		o := p.net.ports[address]
		if o == p || o.left || broken && (!p.net.reaches(p, o) || !p.net.reaches(o, p)) {
			continue
		}
		p.hear(o, now)
		o.hear(p, now)
	}
	for i, s := range p.view {
		if s.said != nil && now.Sub(s.heard) > p.net.deaf {
			p.view[i] = seen{}
			p.tell()
		}
	}
}

func (p *port) hear(o *port, now time.Time) {
	s := p.of(o)
	if s.said == nil {
		for f := o.former; f != nil; f = f.former {
			*p.of(f) = seen{}
		}
	}
	if s.said != o.member {
		s.said = o.member
		p.tell()
	}
	s.heard = now
}

// of returns the knowledge of a process about another.
func (p *port) of(o *port) *seen {
	if o.number >= len(p.view) {
		p.view = append(p.view, make([]seen, len(p.net.ever)-len(p.view))...)
	}
	return &p.view[o.number]
}

func (p *port) tell() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// close ends a port. If announce is set, reachable processes learn it at once, and
// close waits for the requests that handlers still run.
func (p *port) close(announce bool) {
	p.net.mu.Lock()
	p.left = true
	if p.net.ports[p.member.Peer] == p {
		delete(p.net.ports, p.member.Peer)
	}
	if announce {
		for _, address := range slices.Sorted(maps.Keys(p.net.ports)) {
			if o := p.net.ports[address]; p.net.reaches(p, o) {
				*o.of(p) = seen{}
				o.tell()
			}
		}
	}
	p.net.mu.Unlock()
	if announce {
		p.under.Wait()
	}
	p.net.mu.Lock()
	p.gone = true
	p.net.mu.Unlock()
	p.end()
}

func (p *port) isGone() bool {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	return p.gone
}

// begin counts a request as running, unless the port takes no more.
func (p *port) begin() bool {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	if p.left {
		return false
	}
	p.under.Add(1)
	return true
}

// Self returns this process.
func (p *port) Self() cluster.Member {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	return p.self()
}

func (p *port) self() cluster.Member {
	m := *p.member
	m.Self = true
	return m
}

// Members returns this process and the members that it heard of recently.
func (p *port) Members() []cluster.Member {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	out := make([]cluster.Member, 0, len(p.net.ever))
	for _, o := range p.net.ever {
		if o == p {
			out = append(out, p.self())
		} else if o.number < len(p.view) && p.view[o.number].said != nil {
			out = append(out, *p.view[o.number].said)
		}
	}
	return out
}

// Changed holds a token after Members changed.
func (p *port) Changed() <-chan struct{} { return p.changed }

// maxState is the limit of package cluster for the state of a member, in bytes.
const maxState = 16 << 10

// SetState sets the state. Reachable processes get it after a delay, others when they
// meet this process.
func (p *port) SetState(doc []byte) error {
	if len(doc) > maxState {
		return fmt.Errorf("the state has %d bytes, %d are allowed", len(doc), maxState)
	}
	p.net.mu.Lock()
	m := *p.member
	m.State = append([]byte{}, doc...)
	p.member = &m
	p.net.mu.Unlock()
	p.tell()
	d := p.net.fate(p, p, "state", nil).delay
	p.net.later(d, p.meet)
	return nil
}

// Node returns a client for the process at an address.
func (p *port) Node(address string) peerv1connect.NodeServiceClient { return p.client.Node(address) }

// says lets requests leave and answers arrive only while this process runs.
func (p *port) says(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		if !p.net.awake(p, r.Spec().Procedure) {
			return nil, errDead
		}
		if p.net.said != nil {
			p.net.said(r.Any())
		}
		res, err := next(ctx, r)
		if !p.net.awake(p, "<"+r.Spec().Procedure) {
			return nil, errDead
		}
		return res, err
	}
}

// called maps methods to the names of requests in schedules, where both differ. Another
// name changes the effect of every seed.
var called = map[string]string{
	"assign": "orders", "isdownloading": "download", "runcompaction": "merge", "locaterows": "where",
	"listactors": "actors", "getfacts": "facts", "getfigures": "figures",
}

func kindOf(procedure string) string {
	method := strings.ToLower(path.Base(procedure))
	return cmp.Or(called[method], method)
}

// A response is an answer or an error.
type response struct {
	said *httptest.ResponseRecorder
	err  error
}

// RoundTrip carries a request to the process that listens at its address.
func (p *port) RoundTrip(r *http.Request) (*http.Response, error) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	ctx, address := r.Context(), r.URL.Host
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, err
	}
	kind := kindOf(r.URL.Path)
	o := p.net.at(address)
	if o == nil {
		if err := pause(ctx, p.net.fate(p, p, kind, text).delay); err != nil {
			return nil, err
		}
		return nil, syscall.ECONNREFUSED
	}
	f := p.net.fate(p, o, kind, text)
	answers := make(chan response, 1)
	if !f.lost && p.net.reaches(p, o) {
		p.net.later(f.delay, func() { p.deliver(r, text, f, answers) })
	}
	if f.again > 0 {
		again := r.WithContext(context.WithoutCancel(ctx))
		p.net.later(f.delay+f.again, func() { p.deliver(again, text, fate{unsaid: true}, nil) })
	}
	select {
	case a := <-answers:
		if a.err != nil {
			return nil, a.err
		}
		return a.said.Result(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// deliver gives a request to the process that listens at its address at this time.
func (p *port) deliver(r *http.Request, text []byte, f fate, answers chan<- response) {
	o := p.net.at(r.URL.Host)
	if o == nil {
		if !f.unsaid {
			answers <- response{err: syscall.ECONNREFUSED}
		}
		return
	}
	a := response{err: syscall.ECONNRESET}
	if p.net.awake(o, fmt.Sprint(p.node, r.URL.Path)) && o.begin() {
		if said := o.answer(r, text, f.back); !o.isGone() {
			a = response{said: said}
		}
	}
	if f.unsaid {
		return
	}
	time.Sleep(f.back)
	if p.net.reaches(o, p) {
		answers <- a
	}
}

// answer runs the handler of a request. If the sender gives up, the handler learns it
// after the time while.
func (p *port) answer(r *http.Request, text []byte, while time.Duration) *httptest.ResponseRecorder {
	defer p.under.Done()
	ctx, hangUp := context.WithCancel(p.life)
	defer hangUp()
	defer context.AfterFunc(r.Context(), func() {
		time.Sleep(while)
		hangUp()
	})()
	arrived := r.Clone(ctx)
	arrived.Body = io.NopCloser(bytes.NewReader(text))
	w := httptest.NewRecorder()
	p.server.ServeHTTP(w, arrived)
	return w
}

func (n *network) at(address string) *port {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ports[address]
}
