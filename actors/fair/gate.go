package fair

import (
	"context"
	"slices"
	"sync"

	"github.com/rowmill/rowmill"
)

// A Gate limits how much work runs at a time. It has a number of places for all
// accounts, and some kept places for accounts that have no place yet, because a place
// may be in use for long. Waiting work is admitted in turns: by priority, the lowest
// number first, but in every fourth turn urgent work comes last, so that no work waits
// for ever. Within a priority the accounts take turns, however much work of each
// account waits. A Gate is safe for concurrent use.
type Gate struct {
	places, kept int // number of places for all accounts, and number of kept places

	mu     sync.Mutex
	inside map[string]int                      // by account: number of places in use
	taken  int                                 // number of places in use, including kept places
	turn   int                                 // number of past turns
	levels [rowmill.Lowest + 1][]*accountQueue // by priority: the waiting lines, in the order of their turns
}

// An accountQueue has the waiting work of one account with one priority.
type accountQueue struct {
	account string
	waiting []chan struct{} // one channel for each work, closed when the work is admitted
}

// NewGate returns a gate with this many places for all accounts, and this many kept
// places.
func NewGate(places, kept int) *Gate {
	return &Gate{places: places, kept: kept, inside: make(map[string]int)}
}

// canAdmit reports whether a place is free for work of this account.
func (g *Gate) canAdmit(account string) bool {
	return g.taken < g.places || g.taken < g.places+g.kept && g.inside[account] == 0
}

// admit gives a place to work of an account, and closes the work's channel mine.
func (g *Gate) admit(account string, mine chan struct{}) {
	g.inside[account]++
	g.taken++
	close(mine)
}

// Enter waits for a place for work of an account; it returns false if ctx ends first.
// If it returns true, the caller must call Leave after the work.
func (g *Gate) Enter(ctx context.Context, account string, p rowmill.Priority) bool {
	return g.LineUp(account, p).Wait(ctx)
}

// A Ticket is one work in the waiting line of a Gate. The caller must call Wait.
type Ticket struct {
	gate    *Gate
	account string
	mine    chan struct{} // closed when the work is admitted
	level   rowmill.Priority
}

// LineUp puts work at the end of the account's waiting line.
func (g *Gate) LineUp(account string, p rowmill.Priority) Ticket {
	level := p.ClampToKnown()
	return Ticket{g, account, g.enqueue(account, level), level}
}

// Wait waits until the work gets a place; it returns false if ctx ends first.
func (t Ticket) Wait(ctx context.Context) bool {
	select {
	case <-t.mine:
		return true
	case <-ctx.Done():
	}
	if !t.gate.withdraw(t.level, t.account, t.mine) { // the work got a place meanwhile
		t.gate.Leave(t.account)
	}
	return false
}

// enqueue admits work of an account if a place is free, and otherwise adds it to the
// account's line. It returns the channel that is closed when the work is admitted.
func (g *Gate) enqueue(account string, level rowmill.Priority) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	mine := make(chan struct{})
	if g.canAdmit(account) { // no waiting work is overtaken: it could not use this place
		g.admit(account, mine)
		return mine
	}
	lines := g.levels[level]
	if at := find(lines, account); at >= 0 {
		lines[at].waiting = append(lines[at].waiting, mine)
	} else {
		g.levels[level] = append(lines, &accountQueue{account, []chan struct{}{mine}})
	}
	return mine
}

// withdraw removes waiting work from its line. It returns false if the work does not
// wait any more.
func (g *Gate) withdraw(level rowmill.Priority, account string, mine chan struct{}) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := find(g.levels[level], account)
	if at < 0 {
		return false
	}
	l := g.levels[level][at]
	place := slices.Index(l.waiting, mine)
	if place < 0 {
		return false
	}
	if l.waiting = slices.Delete(l.waiting, place, place+1); len(l.waiting) == 0 {
		g.levels[level] = slices.Delete(g.levels[level], at, at+1)
	}
	return true
}

// find returns the index of an account's line, or -1.
func find(lines []*accountQueue, account string) int {
	return slices.IndexFunc(lines, func(l *accountQueue) bool { return l.account == account })
}

// Leave frees a place of an account, and admits waiting work.
func (g *Gate) Leave(account string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.taken--
	if g.inside[account]--; g.inside[account] == 0 {
		delete(g.inside, account)
	}
	for g.admitNext() {
	}
}

// admitNext admits the next waiting work. It returns false if no waiting work can be
// admitted.
func (g *Gate) admitNext() bool {
	order := rowmill.Priorities()
	if (g.turn+1)%4 == 0 {
		order = append(order[1:], order[0])
	}
	for _, level := range order {
		lines := g.levels[level]
		at := slices.IndexFunc(lines, func(l *accountQueue) bool { return g.canAdmit(l.account) })
		if at < 0 {
			continue
		}
		g.turn++
		l := lines[at]
		g.admit(l.account, l.waiting[0])
		l.waiting, g.levels[level] = l.waiting[1:], slices.Delete(lines, at, at+1)
		if len(l.waiting) > 0 {
			g.levels[level] = append(g.levels[level], l)
		}
		return true
	}
	return false
}
