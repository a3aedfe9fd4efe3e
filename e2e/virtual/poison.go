package virtual

import (
	"fmt"
	"strings"
	"time"
)

// When a poison job kills its owner, as an input that uses up all memory would.
const (
	poisonAdopted = "adopt" // when an owner loads it
	poisonRuns    = "run"   // when its first rows are recorded
)

// parkTime is how long jobs are parked. A poison job ends its owners only until then.
const parkTime = 20 * time.Second

// comesBackFrom is the downtime of a node after a poison job killed it.
const comesBackFrom = 1500 * time.Millisecond

// poison makes some job a poison job.
func (g *generator) poison() {
	if g.IntN(12) > 0 {
		return
	}
	i := g.IntN(len(g.Jobs))
	for _, j := range g.Jobs {
		if j.Continues == i+1 || g.Jobs[i].Continues > 0 || g.Jobs[i].From != "" {
			return // the checks of continued jobs need a normal end
		}
	}
	g.Jobs[i].Poison = g.one(poisonAdopted, poisonRuns)
}

// poisoned kills the process if an effect shows that it works on a poison job.
func (p *proc) poisoned(e effect) bool {
	if p.world.account == nil {
		return false
	}
	kinds := map[string]string{"store.list-parts": poisonAdopted, "store.commit-parts": poisonRuns}
	for _, j := range p.world.account.jobs {
		id := j.known()
		if j.Poison == "" || j.isParked() || j.Poison != kinds[e.kind] || id == "" || !strings.HasPrefix(e.key, short(id)) {
			continue
		}
		rec, err := j.look(id)
		if err != nil || rec.Job.Status.IsTerminal() {
			continue
		}
		if j.Poison == poisonAdopted && !p.has(id) {
			continue
		}
		j.mu.Lock()
		j.killed++
		j.mu.Unlock()
		p.world.tell(p.node, e.kind, e.key, "the job ends its owner")
		p.world.crash(p.node, Fault{For: Duration(comesBackFrom)})
		return true
	}
	return false
}

func (j *jobCase) isParked() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.parked > 0
}

// takes notes that the process has claimed a job.
func (p *proc) takes(id string) {
	if a := p.world.account; a != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.takers[id] = p
	}
}

// has reports whether the process was the last to claim a job.
func (p *proc) has(id string) bool {
	a := p.world.account
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.takers[id] == p
}

// kills returns how many processes poison jobs killed.
func (a *account) kills() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, j := range a.jobs {
		n += j.killed
	}
	return n
}

// judgePoison checks that a poison job kills at most four owners before it is parked, and at
// most two more for each other fault.
func (j *jobCase) judgePoison() {
	most := 4
	if len(j.world.Nodes) > 1 && time.Duration(j.world.Lease) <= j.world.net.deaf+time.Second {
		most++ // the first may still count as a member when the second claims the job
	}
	if j.struckFaults() > 0 {
		most += 2 * (j.world.mayChange() - j.account.kills())
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.killed > most {
		j.wrongs = append(j.wrongs, fmt.Sprintf("job %d has ended %d of its owners, %d may be", j.index, j.killed, most))
	}
}

// park notes that a job is parked, and reports whether it may be: two of its owners crashed
// while they ran no other job. A poison job is harmless from then on.
func (j *jobCase) park() (may bool) {
	alone := make(map[string]bool)
	for _, a := range j.tried {
		if a.Alone && j.crashed[a.Process] {
			alone[a.Process] = true
		}
	}
	if j.parked++; j.Poison == "" {
		j.innocent++
	}
	return len(alone) >= 2
}

// die kills the process and notes a crash.
func (p *proc) die() {
	p.kill()
	if a := p.world.account; a != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.crashed[p.id] = true
	}
}
