package virtual

import (
	"regexp"
	"slices"
)

// Shrink returns the smallest failing schedule that it finds. It calls fails at most asks
// times.
func Shrink(s Schedule, asks int, fails func(Schedule) bool) Schedule {
	try := func(smaller Schedule) bool {
		if asks--; asks < 0 || !fails(smaller) {
			return false
		}
		s = smaller
		return true
	}
	for changed := true; changed && asks > 0; {
		changed = false
		for i := len(s.Faults) - 1; i >= 0; i-- {
			smaller := s
			smaller.Faults = slices.Delete(slices.Clone(s.Faults), i, i+1)
			changed = try(smaller) || changed
		}
		for i := len(s.Jobs) - 1; i >= 0 && len(s.Jobs) > 1; i = min(i, len(s.Jobs)) - 1 {
			if smaller := s.withoutJob(i); len(smaller.Jobs) > 0 {
				changed = try(smaller) || changed
			}
		}
		for i := len(s.Nodes) - 1; i >= 0 && len(s.Nodes) > 1; i-- {
			changed = try(s.without(i)) || changed
		}
		for i := range s.Jobs {
			for s.Jobs[i].Rows > 1 {
				smaller := s
				smaller.Jobs = slices.Clone(s.Jobs)
				smaller.Jobs[i].Rows /= 2
				smaller.Jobs[i].Limit = min(smaller.Jobs[i].Limit, smaller.Jobs[i].Rows-1)
				smaller.Jobs[i].Broken = min(smaller.Jobs[i].Broken, smaller.Jobs[i].Rows-1)
				if !try(smaller) {
					break
				}
				changed = true
			}
			for _, plain := range []func(*Job){
				func(j *Job) { j.Schema = false }, func(j *Job) { j.Broken = 0 }, func(j *Job) { j.Deadly = 0 }, func(j *Job) { j.Equal = 0 }, func(j *Job) { j.Cancel = 0 },
				func(j *Job) { j.From = "" }, func(j *Job) { j.Remove = 0 }, func(j *Job) { j.Account = "" }, func(j *Job) { j.Urgent = false }, func(j *Job) { j.Poison = "" }, func(j *Job) { j.Estimate = false }, func(j *Job) { j.Switch = false },
				func(j *Job) { j.Pause, j.Paused, j.Switch = 0, 0, false },
			} {
				smaller := s
				smaller.Jobs = slices.Clone(s.Jobs)
				if plain(&smaller.Jobs[i]); smaller.Jobs[i] != s.Jobs[i] {
					changed = try(smaller) || changed
				}
			}
		}
		for _, plain := range []func(*Limits){
			func(l *Limits) { l.CostLimit = 0 }, func(l *Limits) { l.Places = 0 }, func(l *Limits) { l.RetentionDays = 0 }, func(l *Limits) { l.InputRetention = 0 },
		} {
			smaller := s
			if plain(&smaller.Limits); smaller.Limits != s.Limits {
				changed = try(smaller) || changed
			}
		}
		for i := range s.Nodes {
			if s.Nodes[i].Clock != 0 {
				smaller := s
				smaller.Nodes = slices.Clone(s.Nodes)
				smaller.Nodes[i].Clock = 0
				changed = try(smaller) || changed
			}
		}
	}
	return s
}

// without returns the schedule without a node. Its faults strike the node before it.
func (s Schedule) without(node int) Schedule {
	s.Nodes = slices.Delete(slices.Clone(s.Nodes), node, node+1)
	move := func(n int) int {
		if n > node || n == node && n > 0 {
			return n - 1
		}
		return n
	}
	s.Faults, s.Jobs = slices.Clone(s.Faults), slices.Clone(s.Jobs)
	for i := range s.Faults {
		s.Faults[i].Node, s.Faults[i].To = move(s.Faults[i].Node), move(s.Faults[i].To)
	}
	for i := range s.Jobs {
		s.Jobs[i].Node = move(s.Jobs[i].Node)
	}
	return s
}

// withoutJob returns the schedule without a job, and without the jobs that continue it, read its input or reuse its rows.
func (s Schedule) withoutJob(job int) Schedule {
	was, place := s.Jobs, make([]int, len(s.Jobs)+1)
	s.Jobs = nil
	for i, j := range was {
		if i == job || j.Continues > 0 && place[j.Continues] == 0 || j.Reads > 0 && place[j.Reads] == 0 || j.Reuses > 0 && place[j.Reuses] == 0 {
			continue
		}
		j.Continues, j.Reads, j.Reuses = place[j.Continues], place[j.Reads], place[j.Reuses]
		s.Jobs = append(s.Jobs, j)
		place[i+1] = len(s.Jobs)
	}
	return s
}

var figures = regexp.MustCompile(`[0-9a-f]*[0-9][0-9a-f.]*(ms|µs|s|m|h)?`)

// shape returns a message without its numbers. Two failures of the same shape usually have
// the same cause.
func shape(wrong string) string { return figures.ReplaceAllString(wrong, "#") }

// shaped reports whether a verdict has a message with a shape.
func (v *Verdict) shaped(like string) bool {
	return slices.ContainsFunc(v.Wrongs, func(w string) bool { return shape(w) == like })
}
