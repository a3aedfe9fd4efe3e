package work

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/rowmill/rowmill/actors/dispatch"
	"github.com/rowmill/rowmill/actors/order"
)

// A Sender sends the rows of a job to servers. It sends no more rows than the servers
// want, and no more than the memory budget allows, including the expected answers.
type Sender struct {
	Rows *dispatch.PendingRows // loaded rows, including rows that wait for a retry

	memory *WorkerMemory
	ports  map[string]*targetServer // by name of the server
	opened int                      // number of servers added so far
	sent   int                      // number of rows at servers or in their queues
	answer int64                    // expected size of an answer in bytes: a moving average
	full   bool                     // the budget refused the last request
}

// A Queue sends rows to one server, as dispatch.Queue does.
type Queue interface {
	Demand() int         // number of rows of this job that should be at the server
	RowsPerRequest() int // number of rows in a request
	CacheTokens() int64  // size of the server's KV cache in tokens; 0 if unknown
	Waiting() int        // number of rows of this job that are not in flight yet
	Warnings() []string  // warnings for the job about the server
	Put(tasks []*dispatch.RowTask)
	Withdraw() []*dispatch.RowTask
}

// A targetServer is a server to which rows are sent.
type targetServer struct {
	id    order.ServerIndex
	queue Queue
	sent  int // number of rows at the server or in its queue
	left  int // during SendRows: number of rows for which the server has room
}

// firstAnswer is the assumed size of an answer in bytes, before the first answer
// arrives.
const firstAnswer = 2 << 10

// NewSender returns a Sender for a job with this many rows. answer is the expected size
// of each answer in bytes; 0 if unknown.
func NewSender(memory *WorkerMemory, rows, answer int64) *Sender {
	if answer == 0 {
		answer = firstAnswer
	}
	return &Sender{Rows: dispatch.NewPendingRows(rows), memory: memory, ports: make(map[string]*targetServer), answer: answer}
}

// Open adds a server with its queue.
func (s *Sender) Open(server string, q Queue) {
	s.ports[server] = &targetServer{id: order.ServerIndex(s.opened), queue: q}
	s.opened++
	if tokens := q.CacheTokens(); tokens > 0 {
		s.Rows.SetCacheTokens(tokens)
	}
}

// HasServer reports whether a server was added and not removed.
func (s *Sender) HasServer(server string) bool { return s.ports[server] != nil }

// CountServers returns the number of servers.
func (s *Sender) CountServers() int { return len(s.ports) }

// Sent returns the number of rows that are at servers or in their queues.
func (s *Sender) Sent() int { return s.sent }

// Warnings returns the warnings of all servers: settings that they do not support, and
// problems in their answers.
func (s *Sender) Warnings() (all []string) {
	for _, server := range slices.Sorted(maps.Keys(s.ports)) {
		all = append(all, s.ports[server].queue.Warnings()...)
	}
	return all
}

// Running returns the number of rows that servers have started.
func (s *Sender) Running() int {
	running := s.sent
	for _, p := range s.ports {
		running -= p.queue.Waiting()
	}
	return running
}

// Empty reports whether the Sender has no rows and no rows are at servers.
func (s *Sender) Empty() bool { return s.sent == 0 && s.Rows.Empty() }

// Close removes a server. Its rows in flight come back as usual.
func (s *Sender) Close(server string) {
	p := s.ports[server]
	delete(s.ports, server)
	s.Rows.Leave(p.id)
	s.withdraw(p)
}

// CloseAll removes all servers.
func (s *Sender) CloseAll() {
	for _, server := range slices.Sorted(maps.Keys(s.ports)) {
		s.Close(server)
	}
}

// Withdraw takes back the rows that servers have not started.
func (s *Sender) Withdraw() {
	for _, server := range slices.Sorted(maps.Keys(s.ports)) {
		s.withdraw(s.ports[server])
	}
}

// withdraw takes back the rows of one server that are not in flight.
func (s *Sender) withdraw(p *targetServer) {
	back := p.queue.Withdraw()
	s.sent -= len(back)
	p.sent -= len(back)
	for _, t := range back {
		s.unreserve(t)
	}
	s.Rows.Return(back)
}

// Resume makes the next call of SendRows ask the budget again after a refusal.
func (s *Sender) Resume() { s.full = false }

// Room returns the number of rows for which all servers together have room.
func (s *Sender) Room() (rows int) {
	for _, p := range s.ports {
		rows += max(p.room(), 0)
	}
	return rows
}

// room returns the number of rows for which the server has room; it may be negative.
func (p *targetServer) room() int { return p.queue.Demand() - p.sent }

// SendRows sends rows to servers, first to the server with the most room. If there are few
// rows, it sends only a few at a time. full means that the budget ran out of room
// during this call: then finished rows should be written.
func (s *Sender) SendRows() (full bool) {
	open := make([]*targetServer, 0, len(s.ports))
	for _, server := range slices.Sorted(maps.Keys(s.ports)) {
		p := s.ports[server]
		if p.left = p.room(); p.left >= p.queue.RowsPerRequest() { // fewer rows than a group are not worth a request
			open = append(open, p)
		}
	}
	before := s.full
	for len(open) > 0 && s.Rows.Ready() > 0 {
		p := slices.MinFunc(open, func(a, b *targetServer) int { return cmp.Or(b.left-a.left, cmp.Compare(a.id, b.id)) })
		share := max(s.Rows.Ready()/(16*len(s.ports)), p.queue.RowsPerRequest(), 1)
		n := s.reserveAnswers(min(p.left, share, s.Rows.Ready()))
		tasks := s.Rows.Take(p.id, n, len(s.ports) == 1)
		s.memory.adjustBytes(-int64(n-len(tasks)) * s.answer) // gives back the room for rows that Take did not return
		s.send(p, tasks)
		if p.left -= n; n == 0 || len(tasks) < n || p.left < p.queue.RowsPerRequest() {
			open = slices.DeleteFunc(open, func(other *targetServer) bool { return other == p })
		}
	}
	return s.full && !before
}

// reserveAnswers reserves memory for answers, and returns how many of n rows may be sent. If no
// row is at a server, at least one row may be sent, so that each job makes progress.
func (s *Sender) reserveAnswers(n int) int {
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
	s.memory.adjustBytes(s.answer)
	return 1
}

// send gives tasks to a server. The memory for their answers must be reserved.
func (s *Sender) send(p *targetServer, tasks []*dispatch.RowTask) {
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

// MarkReturned records that a server has returned a task.
func (s *Sender) MarkReturned(t *dispatch.RowTask) {
	s.sent--
	for _, p := range s.ports {
		if p.id == t.Port {
			p.sent--
		}
	}
}

// RecordAnswer replaces the memory that was reserved for the answer of a task by the actual
// size of the answer, and learns from it.
func (s *Sender) RecordAnswer(t *dispatch.RowTask) {
	n := t.OutputBytes()
	s.answer += (n - s.answer) / 64
	if !t.Out.Failed() {
		s.Rows.Learn(t)
	}
	s.memory.adjustBytes(n - t.Reserved)
}

// unreserve gives back the memory that was reserved for the answer to a task.
func (s *Sender) unreserve(t *dispatch.RowTask) {
	s.memory.adjustBytes(-t.Reserved)
	t.Reserved = 0
}

// WantsRows asks for more rows than the servers have room for, so that rows with long
// answers can go first: up to aheadRows, and only while less than aheadShare of the node's
// budget is in use.
const (
	aheadRows  = 16_384
	aheadShare = 0.25
)

// WantsRows reports whether more rows should be loaded. room is the number of rows for
// which the servers had room before SendRows.
func (s *Sender) WantsRows(room int) bool {
	ready := s.Rows.Ready()
	return len(s.ports) > 0 && (ready <= room || ready < aheadRows && !s.memory.isScarce(aheadShare))
}

// Retry stores a task for another attempt.
func (s *Sender) Retry(t *dispatch.RowTask, now time.Time) {
	s.unreserve(t)
	s.Rows.Retry(t, now)
}
