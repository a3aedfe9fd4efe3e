package assign

import (
	"cmp"
	"maps"
	"slices"
)

// A SuspectRow is a row that was in flight when an inference server crashed, and that may
// have caused the crash. The worker gives the row back and reports it as a suspect. The
// owner tells the next worker, which sends the row separately from other rows.
type SuspectRow struct {
	Shard   int
	Row     int // number of the row in the shard
	Group   int // maximum size of the group in which the next worker tries the row; 1: the row alone
	Crashes int // number of crashes of a server while it ran only this row
}

// suspects has the suspect rows by their place.
type suspects map[rowKey]SuspectRow

// rowKey identifies a row: its shard, and its number in the shard.
type rowKey struct{ shard, row int }

func (s suspects) add(row SuspectRow) { s[rowKey{row.Shard, row.Row}] = row }

// filter returns the suspects for which has returns true, in the order of the input; nil if
// there are none.
func (s suspects) filter(has func(shard, row int) bool) (rows []SuspectRow) {
	for at, row := range s {
		if has(at.shard, at.row) {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b SuspectRow) int { return cmp.Or(a.Shard-b.Shard, a.Row-b.Row) })
	return rows
}

// remove removes the suspects for which has returns true.
func (s suspects) remove(has func(shard, row int) bool) {
	maps.DeleteFunc(s, func(at rowKey, _ SuspectRow) bool { return has(at.shard, at.row) })
}

// suspectsGivenBack reports whether every row in Suspects is also in Back.
func (h *Heartbeat) suspectsGivenBack() bool {
	if len(h.Suspects) == 0 {
		return true
	}
	back := rowsOf(h.Back)
	return !slices.ContainsFunc(h.Suspects, func(s SuspectRow) bool { return !back.has(s.Shard, s.Row) })
}
