package virtual

import (
	"encoding/json"
	"net/http"
	"time"
)

// Clients pause some jobs for a while, and change the priority of some of them. No row runs again
// because of a pause, beyond the rows that a fault explains.

// pauses draws the pauses of jobs, sometimes with a fault while the owner gives the job back.
func (g *generator) pauses() {
	for i := range g.Jobs {
		j := &g.Jobs[i]
		if j.Poison != "" || g.IntN(2) == 0 {
			continue
		}
		j.Pause, j.Paused, j.Switch = j.At+g.upTo(8*time.Second), g.upTo(30*time.Second), g.IntN(3) == 0
		if len(g.Jobs) < 8 && g.IntN(3) == 0 { // more rows of many jobs would take too long
			j.Rows = max(j.Rows, 20+g.IntN(60))
		}
		if g.IntN(3) == 0 {
			g.faultAt(g.IntN(len(g.Nodes)), g.one("store.release", "store.reschedule", "store.claim", "store.commit-parts", "blob.put"))
			g.Faults[len(g.Faults)-1].Nth += g.IntN(4)
		}
	}
}

// pause pauses the job, and ends the pause later.
func (j *jobCase) pause(began time.Duration) {
	time.Sleep(began + time.Duration(j.Pause) - j.world.now())
	change := map[string]any{"paused": true}
	if !j.reschedule(change) {
		return
	}
	time.Sleep(time.Duration(j.Paused))
	change["paused"] = false
	if j.Switch {
		change["job_priority"] = 1 - j.priority()
	}
	j.reschedule(change)
	j.world.all.Go(func() {
		for ; !j.world.over(); time.Sleep(5 * time.Second) {
			// A store that forgets what it acknowledged may forget the end of the pause. The client
			// sees a paused job, and ends the pause again.
			if rec, err := j.look(j.known()); err == nil && rec.Job.Paused {
				j.reschedule(change)
			}
		}
	})
}

// reschedule sends a change of the job's schedule until a node answers. It returns false if the job
// is over or gone.
func (j *jobCase) reschedule(change map[string]any) bool {
	body, _ := json.Marshal(change)
	if !j.insist(http.MethodPatch, "/v1/jobs/"+j.known(), body, nil) {
		return false
	}
	j.world.tell(-1, "rescheduled", short(j.known()), string(body))
	return true
}
