package virtual

import (
	"strings"
	"time"

	"github.com/rowmill/rowmill"
)

// A poisonous job ends whoever owns it, as memory that is used up does.
const (
	poisonAdopted = "adopt" // when it is taken up
	poisonRuns    = "run"   // when its first rows are to be recorded
)

// comesBackFrom is how long a node is down that such a job has ended.
const comesBackFrom = 1500 * time.Millisecond

// poison has some job end its owners.
func (g *generator) poison() {
	if g.IntN(12) > 0 {
		return
	}
	i := g.IntN(len(g.Jobs))
	for _, j := range g.Jobs {
		if j.Continues == i+1 || g.Jobs[i].Continues > 0 || g.Jobs[i].From != "" {
			return // what becomes of those is told by how it ends
		}
	}
	g.Jobs[i].Poison = g.one(poisonAdopted, poisonRuns)
}

// poisoned ends the process that an effect shows to be taken up with what it does
// not survive.
func (p *proc) poisoned(e effect) bool {
	if p.world.account == nil {
		return false
	}
	kinds := map[string]string{"store.list-parts": poisonAdopted, "store.commit-parts": poisonRuns}
	for _, j := range p.world.account.jobs {
		id := j.known()
		if j.Poison == "" || j.Poison != kinds[e.kind] || id == "" || !strings.HasPrefix(e.key, short(id)) {
			continue
		}
		rec, err := j.look(id)
		if err != nil || rec.Job.Status.Terminal() {
			continue
		}
		if j.Poison == poisonAdopted && !p.has(id) {
			continue
		}
		j.mu.Lock()
		j.kills++
		j.mu.Unlock()
		p.world.tell(p.node, e.kind, e.key, "the job ends its owner")
		p.world.crash(p.node, Fault{For: Duration(comesBackFrom)})
		return true
	}
	return false
}

// takes notes that the process has claimed a job.
func (p *proc) takes(id string) {
	if a := p.world.account; a != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.takers[id] = p
	}
}

// has reports whether it was the last to do so.
func (p *proc) has(id string) bool {
	a := p.world.account
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.takers[id] == p
}

// kills is how many processes jobs have ended.
func (a *account) kills() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, j := range a.jobs {
		n += j.kills
	}
	return n
}

// judgePoison wants a job that ends its owners to end none after the second, nor
// after another two for each thing that has struck meanwhile.
func (j *jobCase) judgePoison(job rowmill.Job) {
	most := 2
	if len(j.world.Nodes) > 1 && time.Duration(j.world.Lease) <= j.world.net.deaf+time.Second {
		most++ // the first may not be missed yet where the second takes the job up
	}
	if j.struckFaults() > 0 {
		most += 2 * (j.world.mayChange() - j.account.kills())
	}
	j.mu.Lock()
	kills := j.kills
	j.mu.Unlock()
	if kills > most {
		j.wrong("job %d has ended %d of its owners, %d may be", j.index, kills, most)
	}
	if kills > 0 && job.Status == rowmill.StatusSucceeded { // else it was done before its client knew which it is
		j.wrong("job %d, which ends its owners, has succeeded", j.index)
	}
}

// bereaved reports whether two owners of a job that is not to blame have ended all
// the same before anything of it was done: nobody can tell it from one that is.
func (j *jobCase) bereaved() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	killed := 0
	for _, a := range j.tried {
		if j.crashed[a.Process] {
			killed++
		}
	}
	if killed < 2 {
		return false
	}
	j.mourned++
	return true
}

// die is kill for what strikes the process.
func (p *proc) die() {
	p.kill()
	if a := p.world.account; a != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.crashed[p.id] = true
	}
}
