package virtual

import (
	"slices"
	"time"
)

// trials gives a job a limit and has other jobs run the rest, sometimes with a fault at that
// time.
func (g *generator) trials() {
	i := g.IntN(len(g.Jobs))
	j := &g.Jobs[i]
	if j.Continues > 0 || j.Poison != "" || j.Urgent || j.Equal > 0 || j.Broken > 0 || j.Rows < 2 || g.IntN(2) > 0 {
		return
	}
	j.Limit = 1 + g.IntN(j.Rows-1)
	g.runRest(i)
}

// maxSample is the maximum number of rows of an estimate. Its sample is then the whole input.
const maxSample = 100

// estimates makes a job an estimate, and has other jobs run its input.
func (g *generator) estimates() {
	i := g.IntN(len(g.Jobs))
	j := &g.Jobs[i]
	continued := slices.ContainsFunc(g.Jobs, func(other Job) bool { return other.Continues == i+1 })
	if continued || j.Continues > 0 || j.Poison != "" || j.Urgent || j.Equal > 0 || j.Broken > 0 || j.Limit > 0 || j.Rows > maxSample || g.IntN(2) > 0 {
		return
	}
	j.Estimate = true
	g.runRest(i)
}

// runRest has one or two jobs run the rest of job i, sometimes with a fault at that time.
func (g *generator) runRest(i int) {
	for range 1 + g.IntN(2) {
		rest := Job{At: g.upTo(4 * time.Second), Node: g.IntN(len(g.Nodes)), Continues: i + 1, Rest: true}
		if g.IntN(4) == 0 {
			rest.Cancel = rest.At + g.upTo(10*time.Second)
		}
		g.Jobs = append(g.Jobs, rest)
	}
	if g.IntN(2) == 0 {
		g.faultAt(g.IntN(len(g.Nodes)), g.one("blob.put", "store.update", "store.commit-parts", "store.keep-input", "store.continued"))
		g.Faults[len(g.Faults)-1].Nth += g.IntN(12)
	}
}
