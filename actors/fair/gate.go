package fair

import (
	"context"
	"slices"
	"sync"
)

// A Gate lets in as much work at a time as it has places. What waits goes in by
// turns: priority 0 before the rest, but for each fourth turn, so that nothing
// waits for ever; within both the accounts one after another, however much each
// has waiting. It is for work that is soon done, and safe for concurrent use.
type Gate struct {
	mu     sync.Mutex
	free   int
	turn   int
	levels [2][]*line
}

// A line is what waits of an account.
type line struct {
	account string
	waiting []chan struct{} // closed once it may go in
}

// NewGate returns a gate of so many places.
func NewGate(places int) *Gate { return &Gate{free: places} }

// Enter waits for a place; it returns false when ctx ends first.
func (g *Gate) Enter(ctx context.Context, account string, urgent bool) bool {
	mine, level := g.queue(account, urgent)
	select {
	case <-mine:
		return true
	case <-ctx.Done():
	}
	if !g.withdraw(level, account, mine) { // it was let in meanwhile
		g.Leave()
	}
	return false
}

// queue lines work up, and lets it in where there is a place.
func (g *Gate) queue(account string, urgent bool) (mine chan struct{}, level int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	mine = make(chan struct{})
	if g.free > 0 { // then nothing waits
		g.free--
		close(mine)
		return mine, 0
	}
	if !urgent {
		level = 1
	}
	lines := g.levels[level]
	if at := find(lines, account); at >= 0 {
		lines[at].waiting = append(lines[at].waiting, mine)
	} else {
		g.levels[level] = append(lines, &line{account, []chan struct{}{mine}})
	}
	return mine, level
}

// withdraw takes out what gives up, and reports whether it still waited.
func (g *Gate) withdraw(level int, account string, mine chan struct{}) bool {
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

// Leave gives a place to whose turn it is.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.turn++
	first := 0
	if g.turn%4 == 0 {
		first = 1
	}
	for _, level := range []int{first, 1 - first} {
		if lines := g.levels[level]; len(lines) > 0 {
			l := lines[0]
			close(l.waiting[0])
			l.waiting, g.levels[level] = l.waiting[1:], lines[1:]
			if len(l.waiting) > 0 {
				g.levels[level] = append(g.levels[level], l)
			}
			return
		}
	}
	g.free++
}
