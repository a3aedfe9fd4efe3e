package virtual

import "time"

// accounts gives a second account jobs: among the others with any faults, or small and urgent
// jobs beside many rows of the first account.
func (g *generator) accounts() {
	switch g.IntN(10) {
	case 0:
		g.amongOthers()
	case 1:
		g.besideMasses()
	}
}

func (g *generator) amongOthers() {
	for i := range g.Jobs {
		if j := &g.Jobs[i]; j.Continues == 0 && g.IntN(3) == 0 {
			j.Account, j.Urgent = otherAccount, g.IntN(2) == 0
		}
	}
	for range 1 + g.IntN(3) {
		g.Jobs = append(g.Jobs, Job{
			At: g.upTo(8 * time.Second), Node: g.IntN(len(g.Nodes)), Rows: 1 + g.IntN(3), Account: otherAccount, Urgent: g.IntN(2) == 0,
		})
	}
	if g.IntN(2) == 0 {
		g.Places = 1 + g.IntN(3)
	}
}

// mostMass limits the rows of a world.
const mostMass = 400

// besideMasses gives one account enough rows for all engines for up to a minute. Faults
// strike early or not at all, so that later jobs of the other account must keep their time
// limits.
func (g *generator) besideMasses() {
	g.Pace, g.Places = Duration(time.Duration(500+g.IntN(1000))*time.Millisecond), 1+g.IntN(2)
	urgent, begins, lasts := g.IntN(2) == 0, Duration(4*time.Second), 25.0
	early := g.Faults
	if g.Faults = nil; g.IntN(2) == 0 {
		begins, lasts = Duration(recovers+14*time.Second), 85.0
		for _, f := range early {
			if f.Nth > 0 {
				continue
			}
			f.At %= Duration(6 * time.Second)
			if f.Kind != "clock" {
				f.For %= Duration(6 * time.Second)
			}
			g.Faults = append(g.Faults, f)
		}
	}
	engines := 0.0
	for _, n := range g.Nodes {
		if !n.NoEngine {
			engines++
		}
	}
	for mass := min(mostMass, int(lasts*engines*float64(g.Slots)/time.Duration(g.Pace).Seconds())); mass > 0; {
		j := Job{At: g.upTo(3 * time.Second), Node: g.IntN(len(g.Nodes)), Rows: min(mass, 3+g.IntN(20)), Urgent: urgent}
		g.Jobs = append(g.Jobs, j)
		mass -= j.Rows
	}
	for range 1 + g.IntN(3) {
		g.Jobs = append(g.Jobs, Job{
			At: begins + Duration(g.IntN(int(2*time.Second))), Node: g.IntN(len(g.Nodes)), Rows: 1, Account: otherAccount, Urgent: true,
		})
		begins += Duration(9 * time.Second)
	}
}
