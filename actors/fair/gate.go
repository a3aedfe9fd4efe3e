package fair

import (
	"context"
	"slices"
	"sync"

	"github.com/rowmill/rowmill"
)

// A Gate lets in as much work at a time as it has places, and some more of
// accounts that have none in it, where work is not soon done. What waits goes in
// by turns: the lowest number of a priority first, but for each fourth turn, when
// urgent work goes last, so that nothing waits for ever; within a priority the
// accounts one after another, however much each has waiting. It is safe for concurrent use.
type Gate struct {
	places, kept int

	mu     sync.Mutex
	inside map[string]int // by account
	taken  int            // places, kept ones included
	turn   int
	levels [rowmill.Lowest + 1][]*line
}

// A line is what waits of an account.
type line struct {
	account string
	waiting []chan struct{} // closed once it may go in
}

// NewGate returns a gate of so many places, with so many more kept for accounts
// that have none.
func NewGate(places, kept int) *Gate {
	return &Gate{places: places, kept: kept, inside: make(map[string]int)}
}

// may reports whether work of an account may go in.
func (g *Gate) may(account string) bool {
	return g.taken < g.places || g.taken < g.places+g.kept && g.inside[account] == 0
}

func (g *Gate) admit(account string, mine chan struct{}) {
	g.inside[account]++
	g.taken++
	close(mine)
}

// Enter waits for a place; it returns false when ctx ends first.
func (g *Gate) Enter(ctx context.Context, account string, p rowmill.Priority) bool {
	return g.LineUp(account, p).Wait(ctx)
}

// A Turn is a place in the line before a gate. Wait must be called.
type Turn struct {
	gate    *Gate
	account string
	mine    chan struct{}
	level   rowmill.Priority
}

// LineUp takes the last place in the line of an account.
func (g *Gate) LineUp(account string, p rowmill.Priority) Turn {
	level := p.Nearest()
	return Turn{g, account, g.queue(account, level), level}
}

// Wait waits until it is the turn; it returns false when ctx ends first.
func (t Turn) Wait(ctx context.Context) bool {
	select {
	case <-t.mine:
		return true
	case <-ctx.Done():
	}
	if !t.gate.withdraw(t.level, t.account, t.mine) { // it was let in meanwhile
		t.gate.Leave(t.account)
	}
	return false
}

// queue lines work up, and lets it in where there is a place.
func (g *Gate) queue(account string, level rowmill.Priority) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	mine := make(chan struct{})
	if g.may(account) { // then nothing waits that may, too
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

// withdraw takes out what gives up, and reports whether it still waited.
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

// Leave gives back a place of an account, and lets in whose turn it is.
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

// next lets in one that waits and may, if there is any.
func (g *Gate) next() bool {
	order := rowmill.Priorities()
	if (g.turn+1)%4 == 0 {
		order = append(order[1:], order[0])
	}
	for _, level := range order {
		lines := g.levels[level]
		at := slices.IndexFunc(lines, func(l *line) bool { return g.may(l.account) })
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
