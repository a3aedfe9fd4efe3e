package assign

import (
	"cmp"
	"maps"
	"slices"
)

// A Suspect is a row that was in flight when an inference server crashed, and that may
// have caused the crash. The worker reports the suspect when it gives the row back. The
// owner tells the next worker, which sends the row apart from other rows.
type Suspect struct {
	Shard   int
	Row     int // number in the shard
	Group   int // the next worker tries the row in a group of this size; 1: alone
	Crashes int // how often a server crashed while no other row was there
}

// suspects has suspect rows, by shard and row.
type suspects map[place]Suspect

type place struct{ shard, row int }

func (s suspects) add(row Suspect) { s[place{row.Shard, row.Row}] = row }

// in returns the suspects for which has returns true, in the order of rows; nil if there
// are none.
func (s suspects) in(has func(shard, row int) bool) (rows []Suspect) {
	for at, row := range s {
		if has(at.shard, at.row) {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b Suspect) int { return cmp.Or(a.Shard-b.Shard, a.Row-b.Row) })
	return rows
}

// remove removes the suspects for which has returns true.
func (s suspects) remove(has func(shard, row int) bool) {
	maps.DeleteFunc(s, func(at place, _ Suspect) bool { return has(at.shard, at.row) })
}

// suspectsGivenBack reports whether the heartbeat gives back all rows in Suspects.
func (h *Heartbeat) suspectsGivenBack() bool {
	if len(h.Suspects) == 0 {
		return true
	}
	back := rowsOf(h.Back)
	return !slices.ContainsFunc(h.Suspects, func(s Suspect) bool { return !back.has(s.Shard, s.Row) })
}
