package placement_test

import (
	"cmp"
	"slices"
)

// gpusOfOptimum is the number of GPUs of the offline schedules.
const gpusOfOptimum = 8

// A rigid is a server with the whole work of its model, for an offline schedule.
type rigid struct {
	gpus      int
	run, free float64 // time from the start to the end of the work, and until its GPUs are free
}

// A partial is the begin of a schedule: some jobs have a start, in the order of their
// starts, so all other jobs start at last or later.
type partial struct {
	set  uint64 // jobs that have a start
	last float64
	end  float64
	free [gpusOfOptimum]float64 // ascending; not before last
}

// An optimum searches the shortest schedule by branch and bound over all list schedules.
// One of them is optimal.
type optimum struct {
	jobs   []rigid
	best   float64
	budget int
	drains float64              // longest drains on all GPUs
	seen   map[uint64][]partial // by set
}

// solve returns the makespan of the shortest schedule that is shorter than known, or known;
// false if the budget ends the search.
func solve(jobs []rigid, known float64, budget int) (float64, bool) {
	o := &optimum{jobs: jobs, best: known, budget: budget, seen: map[uint64][]partial{}}
	slices.SortStableFunc(o.jobs, func(a, b rigid) int {
		return cmp.Compare(float64(b.gpus)*b.run, float64(a.gpus)*a.run)
	})
	var drains []float64
	for _, job := range jobs {
		drains = append(drains, slices.Repeat([]float64{job.free - job.run}, job.gpus)...)
	}
	slices.Sort(drains)
	for _, drain := range drains[max(len(drains)-gpusOfOptimum, 0):] {
		o.drains += drain
	}
	done := o.bound(partial{}) >= known || o.branch(partial{})
	return o.best, done
}

// branch tries each job without a start as the next one. It returns false if the budget is
// spent.
func (o *optimum) branch(p partial) bool {
	if p.set == 1<<len(o.jobs)-1 {
		o.best = min(o.best, p.end)
		return true
	}
	type choice struct {
		partial
		bound float64
	}
	var choices []choice
	for j, job := range o.jobs {
		if p.set&(1<<j) == 0 {
			next := p.add(j, job)
			choices = append(choices, choice{next, max(next.end, o.bound(next))})
		}
	}
	slices.SortStableFunc(choices, func(a, b choice) int {
		return cmp.Or(cmp.Compare(a.bound, b.bound), cmp.Compare(a.last, b.last))
	})
	for _, c := range choices {
		if c.bound >= o.best || o.dominated(c.partial) {
			continue
		}
		if o.budget--; o.budget < 0 || !o.branch(c.partial) {
			return false
		}
	}
	return true
}

// add starts a job as early as possible.
func (p partial) add(j int, job rigid) partial {
	p.set |= 1 << j
	p.last = p.free[job.gpus-1]
	p.end = max(p.end, p.last+job.run)
	for i := range p.free {
		p.free[i] = max(p.free[i], p.last)
		if i < job.gpus {
			p.free[i] = p.last + job.free
		}
	}
	slices.Sort(p.free[:])
	return p
}

// dominated reports whether the search has seen a schedule of the same jobs that leaves
// each GPU free at the same time or earlier.
func (o *optimum) dominated(p partial) bool {
	noLater := func(a, b partial) bool {
		for i := range a.free {
			if a.free[i] > b.free[i] {
				return false
			}
		}
		return a.end <= b.end
	}
	all := o.seen[p.set]
	if slices.ContainsFunc(all, func(q partial) bool { return noLater(q, p) }) {
		return true
	}
	o.seen[p.set] = append(slices.DeleteFunc(all, func(q partial) bool { return noLater(p, q) }), p)
	return false
}

// bound returns a lower bound of the makespan of all schedules that begin with p: all jobs
// need their GPU time, except the drains at the end, and each job needs its own time.
func (o *optimum) bound(p partial) float64 {
	area, bound := -o.drains, 0.0
	for _, f := range p.free {
		area += f
	}
	for j, job := range o.jobs {
		if p.set&(1<<j) == 0 {
			bound = max(bound, p.free[job.gpus-1]+job.run)
			area += float64(job.gpus) * job.free
		}
	}
	return max(bound, area/gpusOfOptimum)
}
