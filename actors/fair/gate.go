package fair

import (
	"context"
	"slices"
	"sync"

	"github.com/rowmill/rowmill"
)

// A Gate limits how much work runs at a time: it has a number of places for all
// accounts, and some kept places for accounts that have no place yet, because work may
// take long. Waiting work is admitted in turns: by priority, the lowest number first,
// but in every fourth turn urgent work comes last, so that no work waits for ever. Within
// a priority the accounts take turns, however much work of each account waits. A Gate is
// safe for concurrent use.
type Gate struct {
	places, kept int

	mu     sync.Mutex
	inside map[string]int // by account: number of places in use
	taken  int            // number of all places in use, including kept places
	turn   int            // number of past turns
	levels [rowmill.Lowest + 1][]*line
}

// A line is the waiting work of an account.
type line struct {
	account string
	waiting []chan struct{} // closed when the work is admitted
}

// NewGate returns a gate with this many places, and this many kept places.
func NewGate(places, kept int) *Gate {
	return &Gate{places: places, kept: kept, inside: make(map[string]int)}
}

// canAdmit reports whether work of an account can be admitted now.
func (g *Gate) canAdmit(account string) bool {
	return g.taken < g.places || g.taken < g.places+g.kept && g.inside[account] == 0
}

func (g *Gate) admit(account string, mine chan struct{}) {
	g.inside[account]++
	g.taken++
	close(mine)
}

// Enter waits for a place; it returns false if ctx ends first.
func (g *Gate) Enter(ctx context.Context, account string, p rowmill.Priority) bool {
	return g.LineUp(account, p).Wait(ctx)
}

// A Turn is work in the waiting line of a gate. The caller must call Wait.
type Turn struct {
	gate    *Gate
	account string
	mine    chan struct{} // closed when the work is admitted
	level   rowmill.Priority
}

// LineUp puts work at the end of an account's line.
func (g *Gate) LineUp(account string, p rowmill.Priority) Turn {
	level := p.Nearest()
	return Turn{g, account, g.queue(account, level), level}
}

// Wait waits for admission; it returns false if ctx ends first.
func (t Turn) Wait(ctx context.Context) bool {
	select {
	case <-t.mine:
		return true
	case <-ctx.Done():
	}
	if !t.gate.withdraw(t.level, t.account, t.mine) { // the gate has admitted the work meanwhile
		t.gate.Leave(t.account)
	}
	return false
}

// queue adds work to its account's line, or admits the work if a place is free.
func (g *Gate) queue(account string, level rowmill.Priority) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	mine := make(chan struct{})
	if g.canAdmit(account) { // then no other waiting work could be admitted either
		g.admit(account, mine)
		return mine
	}
	lines := g.levels[level]
	if at := find(lines, account); at >= 0 {
		lines[at].waiting = append(lines[at].waiting, mine)
	} else {
		g.levels[level] = append(lines, &line{account, []chan struct{}{mine}})
	}
	return mine
}

// withdraw removes work from its line, and reports whether it was still waiting.
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

func find(lines []*line, account string) int {
	return slices.IndexFunc(lines, func(l *line) bool { return l.account == account })
}

// Leave returns a place of an account, and admits the next work.
func (g *Gate) Leave(account string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.taken--
	if g.inside[account]--; g.inside[account] == 0 {
		delete(g.inside, account)
	}
	for g.next() {
	}
}

// next admits the next waiting work, and reports whether there was any.
func (g *Gate) next() bool {
	order := rowmill.Priorities()
	if (g.turn+1)%4 == 0 {
		order = append(order[1:], order[0])
	}
	for _, level := range order {
		lines := g.levels[level]
		at := slices.IndexFunc(lines, func(l *line) bool { return g.canAdmit(l.account) })
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
