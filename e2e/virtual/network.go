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

// A network joins processes: who is there, and requests between them. What
// becomes of a packet on its way is a function's choice.
type network struct {
	mu    sync.Mutex
	ports map[string]*port // by the address that they listen at
	last  map[string]*port // the same, those that are gone included
	ever  []*port          // all there ever were, by the ID of their member

	// reaches reports whether what one node sends another arrives, broken whether
	// it may not for some.
	reaches func(from, to *port) bool
	broken  func() bool
	// fate is what becomes of a request, or of its answer.
	fate func(from, to *port, kind string, text []byte) fate
	// awake waits while a port's machine is stopped, and reports whether it
	// still lives.
	awake func(p *port, what string) bool
	// said hears of each request that leaves, a message of the contract; may be nil.
	said func(request any)
	// later runs do after a while.
	later func(d time.Duration, do func())
	// deaf is how long it takes until a member is missed that does not answer.
	deaf time.Duration
	// handleTimeout is that of peer.Config; 0: its default.
	handleTimeout time.Duration
	log           *slog.Logger // of what goes wrong in answering
}

// A fate is what becomes of one message.
type fate struct {
	delay  time.Duration // until it arrives
	back   time.Duration // until its answer does
	lost   bool          // it does not arrive
	unsaid bool          // its answer does not
	again  time.Duration // it arrives a second time, so much later; 0: once
}

// A port is a process on the network. What requests and answers are is the real
// thing; a port carries them in place of TCP.
type port struct {
	net     *network
	node    int
	changed chan struct{}
	client  *peer.Client
	server  *peer.Responder
	life    context.Context // of what it answers: until it is gone
	end     context.CancelFunc
	under   sync.WaitGroup // requests that it answers

	number int   // how many were there before
	former *port // the last one of them at its address

	// Guarded by network.mu.
	member *cluster.Member // what it says of itself: replaced, never changed
	left   bool            // it is no member and takes no requests, but may have some under way
	gone   bool
	view   []seen // of each port, by number
}

// seen is what a process knows of another.
type seen struct {
	said  *cluster.Member // nil: it is no member
	heard time.Time       // when it last was
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

// of is what a process knows of another.
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

// close says that nobody listens any more. Told others know at once, if they can
// be reached, and what is under way is answered.
func (p *port) close(told bool) {
	p.net.mu.Lock()
	p.left = true
	if p.net.ports[p.member.Peer] == p {
		delete(p.net.ports, p.member.Peer)
	}
	if told {
		for _, address := range slices.Sorted(maps.Keys(p.net.ports)) {
			if o := p.net.ports[address]; p.net.reaches(p, o) {
				*o.of(p) = seen{}
				o.tell()
			}
		}
	}
	p.net.mu.Unlock()
	if told {
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

// begin says that a request is under way here, unless no more are taken.
func (p *port) begin() bool {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	if p.left {
		return false
	}
	p.under.Add(1)
	return true
}

// Self is this process.
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

// Members are those that were heard of lately, and this one.
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

// maxState is the longest document that a member may spread, as cluster has it.
const maxState = 16 << 10

// SetState says it to all who can be reached now; the others hear it when they
// meet.
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

// Node is the process at an address.
func (p *port) Node(address string) peerv1connect.NodeServiceClient { return p.client.Node(address) }

// says has a request go out, and its answer come in, while this process lives.
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

// called are the words by which schedules call requests, where those are not the names
// of their methods: what a seed does follows from them.
var called = map[string]string{
	"assign": "orders", "isdownloading": "download", "runerrand": "merge", "locaterows": "where",
	"listactors": "actors", "getfacts": "facts", "getfigures": "figures",
}

func kindOf(procedure string) string {
	method := strings.ToLower(path.Base(procedure))
	return cmp.Or(called[method], method)
}

// A response is what comes back.
type response struct {
	said *httptest.ResponseRecorder
	err  error
}

// RoundTrip carries a request to whoever listens at its address.
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

// deliver has a request answered by who listens at its address then.
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

// answer has a request answered here. That its asker hangs up is known a while
// after.
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
