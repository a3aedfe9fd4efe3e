package work

import (
	"maps"
	"slices"
	"time"

	"github.com/rowmill/rowmill/actors/dispatch"
	"github.com/rowmill/rowmill/actors/order"
)

// A Sender hands rows to the servers: never more than those want and than the
// budget has room for with their answers.
type Sender struct {
	Rows *dispatch.Rows // what is loaded, and what must wait

	memory *Memory
	ports  map[string]*port // by server
	opened int              // ports, ever
	sent   int              // tasks at servers
	answer int64            // bytes an answer takes, as learned
	full   bool             // the budget had no room
}

// A Queue is a way into a server; that of dispatch is one.
type Queue interface {
	Demand() int        // rows the server should have of this job
	Group() int         // rows in one request
	CacheTokens() int64 // of its KV cache; 0 when unknown
	Waiting() int       // rows that the server has not begun
	Warnings() []string // of the server, so far
	Put(tasks []*dispatch.Task)
	Withdraw() []*dispatch.Task
}

type port struct {
	id    order.Port
	queue Queue
	sent  int
}

// firstAnswer is how many bytes an answer is taken to need before any has come.
const firstAnswer = 2 << 10

// NewSender returns a Sender for a job of so many rows. answer is how many
// bytes each answer takes, 0 when that is not known.
func NewSender(memory *Memory, rows, answer int64) *Sender {
	if answer == 0 {
		answer = firstAnswer
	}
	return &Sender{Rows: dispatch.NewRows(rows), memory: memory, ports: make(map[string]*port), answer: answer}
}

// Open takes a server into use.
func (s *Sender) Open(server string, q Queue) {
	s.ports[server] = &port{id: order.Port(s.opened), queue: q}
	s.opened++
	if tokens := q.CacheTokens(); tokens > 0 {
		s.Rows.Remember(tokens)
	}
}

// Uses reports whether a server is in use.
func (s *Sender) Uses(server string) bool { return s.ports[server] != nil }

// Ports is how many servers are in use.
func (s *Sender) Ports() int { return len(s.ports) }

// Sent is how many rows are at servers or wait before them.
func (s *Sender) Sent() int { return s.sent }

// Warnings are what servers cannot honour, and what their answers have shown.
func (s *Sender) Warnings() (all []string) {
	for _, server := range slices.Sorted(maps.Keys(s.ports)) {
		all = append(all, s.ports[server].queue.Warnings()...)
	}
	return all
}

// Running is how many rows servers have begun.
func (s *Sender) Running() int {
	running := s.sent
	for _, p := range s.ports {
		running -= p.queue.Waiting()
	}
	return running
}

// Empty reports whether there are no rows, neither here nor at servers.
func (s *Sender) Empty() bool { return s.sent == 0 && s.Rows.Empty() }

// Close takes a server out of use. What is running there comes back as usual.
func (s *Sender) Close(server string) {
	p := s.ports[server]
	delete(s.ports, server)
	s.Rows.Leave(p.id)
	s.withdraw(p)
}

// CloseAll takes all servers out of use.
func (s *Sender) CloseAll() {
	for _, server := range slices.Sorted(maps.Keys(s.ports)) {
		s.Close(server)
	}
}

// Withdraw takes back what waits before the servers.
func (s *Sender) Withdraw() {
	for _, server := range slices.Sorted(maps.Keys(s.ports)) {
		s.withdraw(s.ports[server])
	}
}

func (s *Sender) withdraw(p *port) {
	back := p.queue.Withdraw()
	s.sent -= len(back)
	p.sent -= len(back)
	for _, t := range back {
		s.unreserve(t)
	}
	s.Rows.Return(back)
}

// Resume makes Fill ask the budget again.
func (s *Sender) Resume() { s.full = false }

// Room is how many rows the servers have room for.
func (s *Sender) Room() (rows int) {
	for _, p := range s.ports {
		rows += max(p.room(), 0)
	}
	return rows
}

func (p *port) room() int { return p.queue.Demand() - p.sent }

// Fill hands rows to the servers, to the least busy first and a few at a time
// where rows are short. full says that the budget has just turned out to have
// no room: what is finished should be written.
func (s *Sender) Fill() (full bool) {
	open := make([]*port, 0, len(s.ports))
	rooms := make(map[*port]int, len(s.ports))
	for _, server := range slices.Sorted(maps.Keys(s.ports)) {
		p := s.ports[server]
		if room := p.room(); room >= p.queue.Group() { // a few at a time is not worth a call
			open = append(open, p)
			rooms[p] = room
		}
	}
	before := s.full
	for len(open) > 0 && s.Rows.Ready() > 0 {
		least := 0
		for i, p := range open {
			if rooms[p] > rooms[open[least]] || rooms[p] == rooms[open[least]] && p.id < open[least].id {
				least = i
			}
		}
		p := open[least]
		share := max(s.Rows.Ready()/(16*len(s.ports)), p.queue.Group(), 1)
		n := s.afford(min(rooms[p], share, s.Rows.Ready()))
		tasks := s.Rows.Take(p.id, n, len(s.ports) == 1)
		s.memory.take(-int64(n-len(tasks)) * s.answer) // those that were not there to send
		s.send(p, tasks)
		if rooms[p] -= n; n == 0 || len(tasks) < n || rooms[p] < p.queue.Group() {
			open = append(open[:least], open[least+1:]...)
		}
	}
	return s.full && !before
}

// afford returns how many of n rows may go out, now that their answers need
// room. One always may, so that no job stands still.
func (s *Sender) afford(n int) int {
	if n == 0 {
		return 0
	}
	if !s.full {
		if got := s.memory.acquire(n, s.answer, toSend); got > 0 {
			return got
		}
		s.full = true
	}
	if s.sent > 0 {
		return 0
	}
	s.memory.take(s.answer)
	return 1
}

// send gives tasks, whose answers have room, to a server.
func (s *Sender) send(p *port, tasks []*dispatch.Task) {
	if len(tasks) == 0 {
		return
	}
	for _, t := range tasks {
		t.Port, t.Reserved = p.id, s.answer
	}
	p.sent += len(tasks)
	s.sent += len(tasks)
	p.queue.Put(tasks)
}

// Back notes that a task has come back from its server.
func (s *Sender) Back(t *dispatch.Task) {
	s.sent--
	for _, p := range s.ports {
		if p.id == t.Port {
			p.sent--
		}
	}
}

// Answered takes the memory of an answer that stands.
func (s *Sender) Answered(t *dispatch.Task) {
	n := t.OutputBytes()
	s.answer += (n - s.answer) / 64
	if !t.Out.Failed() {
		s.Rows.Learn(t)
	}
	s.memory.take(n - t.Reserved)
}

// unreserve gives back the room for the answer of a task that brought none.
func (s *Sender) unreserve(t *dispatch.Task) {
	s.memory.take(-t.Reserved)
	t.Reserved = 0
}

// Rows are loaded ahead of what the servers have room for, so that the longest
// of them can go first, up to aheadRows and as long as aheadShare of the node's
// memory is not in use.
const (
	aheadRows  = 16_384
	aheadShare = 0.25
)

// Wants reports whether more rows should be loaded, where the servers had room
// for so many before it was filled.
func (s *Sender) Wants(room int) bool {
	ready := s.Rows.Ready()
	return len(s.ports) > 0 && (ready <= room || ready < aheadRows && !s.memory.scarce(aheadShare))
}

// Retry keeps a task for another attempt.
func (s *Sender) Retry(t *dispatch.Task, now time.Time) {
	s.unreserve(t)
	s.Rows.Retry(t, now)
}
