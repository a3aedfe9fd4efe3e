package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// A Fault is one kind of fault of a cluster during a job.
type Fault struct {
	Name  string
	Hosts bool // needs hosts with a network between them
	Root  bool // needs root, to mount a file system
	Keys  bool // needs encryption between nodes
	Fails bool // makes Redis fail over, so it needs Sentinels
	Away  bool // makes something unavailable that requests need: records, objects, network, disk or processor

	// When is the phase of the job in which the fault strikes.
	When Moment

	// Lasts is the approximate duration of a strike. The job should run longer.
	Lasts time.Duration

	// Strike makes the fault, notes a Strike in the trial, and returns after the fault.
	// Repair fixes the rest, such as a node that is down.
	Strike func(ctx context.Context, t *Trial) error
}

// Times of the faults.
const (
	shortest = 500 * time.Millisecond // downtime of a killed process
	longest  = 3 * time.Second
)

// Faults lists all faults. The durations of the long ones are shorter than the lease, longer,
// and much longer.
func Faults() []Fault {
	faults := []Fault{
		{Name: "kill -9 the owner", Lasts: 3 * time.Second, Strike: killNode(owner)},
		{Name: "kill -9 the owner after each of six starts", Lasts: 18 * time.Second, Strike: loopNode},
		{Name: "kill -9 a worker", Lasts: 3 * time.Second, Strike: killNode(worker)},
		{Name: "kill -9 all nodes", Lasts: 4 * time.Second, Strike: killAll},
		{Name: "kill -9 redis-server", Away: true, Lasts: 3 * time.Second, Strike: killRedis},
		{Name: "power cut at Redis, everysec", Away: true, Lasts: 4 * time.Second, Strike: cutPower},
		{Name: "all restored from a copy", Lasts: 8 * time.Second, Strike: restoreAll},
		{Name: "kill -9 the S3 server", Away: true, Lasts: 3 * time.Second, Strike: killS3},
		{Name: "SIGTERM to the owner", Lasts: 4 * time.Second, Strike: terminate(owner)},
		{Name: "SIGTERM to a worker", Lasts: 4 * time.Second, Strike: terminate(worker)},
		{Name: "rolling restart", Lasts: 10 * time.Second, Strike: rollingRestart},
		{Name: "rotation of keys", Keys: true, Lasts: 8 * time.Second, Strike: rotateKeys},
		{Name: "a node joins", Lasts: 2 * time.Second, Strike: join},
		{Name: "pause of the job", Lasts: 6 * time.Second, Strike: pauseJob},
		{Name: "clock + 1 h", Lasts: 8 * time.Second, Strike: wrongClock(time.Hour)},
		{Name: "clock - 1 h", Lasts: 8 * time.Second, Strike: wrongClock(-time.Hour)},
		{Name: "two nodes of one name", Lasts: 2 * time.Second, Strike: sameName},
		{Name: "disk full on a worker", Away: true, Root: true, Lasts: 8 * time.Second, Strike: fillDisk},
		{Name: "owner cut off", Away: true, Hosts: true, Lasts: partedFor, Strike: cutOff(owner)},
		{Name: "worker cut off", Away: true, Hosts: true, Lasts: partedFor, Strike: cutOff(worker)},
		{Name: "half and half", Away: true, Hosts: true, Lasts: partedFor, Strike: halves},
		{Name: "owner's packets to a worker lost", Away: true, Hosts: true, Lasts: partedFor, Strike: oneWay(true)},
		{Name: "worker's packets to the owner lost", Away: true, Hosts: true, Lasts: partedFor, Strike: oneWay(false)},
		{Name: "Redis unreachable for the owner", Away: true, Hosts: true, Lasts: partedFor, Strike: withoutRedis(owner)},
		{Name: "Redis unreachable for a worker", Away: true, Hosts: true, Lasts: partedFor, Strike: withoutRedis(worker)},
		{Name: "30 % packet loss", Away: true, Hosts: true, Lasts: partedFor, Strike: lossy},

		{Name: "kill -9 the owner in the ingest", When: Ingesting, Lasts: 4 * time.Second, Strike: killDownload(false)},
		{Name: "kill -9 all nodes in the ingest", When: Ingesting, Lasts: 5 * time.Second, Strike: killDownload(true)},
		{Name: "kill -9 redis-server in the ingest", Away: true, When: Ingesting, Lasts: 3 * time.Second, Strike: killRedis},
		{Name: "Redis away for 20s in the ingest", Away: true, When: Ingesting, Lasts: awayFor, Strike: redisAway},
		{Name: "owner cut off in the ingest", Away: true, Hosts: true, When: Ingesting, Lasts: partedFor, Strike: cutOff(owner)},
		{Name: "SIGSTOP the owner for 10s in the ingest", Away: true, When: Ingesting, Lasts: 10 * time.Second, Strike: pauseNode(owner, 10*time.Second)},
		{Name: "kill -9 the S3 server in the ingest", Away: true, When: Ingesting, Lasts: 3 * time.Second, Strike: killS3},

		{Name: "kill -9 the owner at the end", When: Ending, Lasts: 3 * time.Second, Strike: killNode(formerOwner)},
		{Name: "kill -9 all nodes at the end", When: Ending, Lasts: 4 * time.Second, Strike: killAll},
		{Name: "kill -9 redis-server at the end", Away: true, When: Ending, Lasts: 3 * time.Second, Strike: killRedis},
		{Name: "kill -9 the S3 server at the end", Away: true, When: Ending, Lasts: 3 * time.Second, Strike: killS3},
		{Name: "SIGSTOP the owner for 10s at the end", Away: true, When: Ending, Lasts: 10 * time.Second, Strike: pauseNode(formerOwner, 10*time.Second)},
		{Name: "power cut at Redis, everysec, at the end", Away: true, When: Ending, Lasts: 4 * time.Second, Strike: cutPower},

		{Name: "power cut at Redis, everysec, takes the end", Away: true, When: Ending, Lasts: 2 * time.Second, Strike: cutEnd},
		{Name: "kill -9 the owner after the end", When: Over, Strike: killNode(formerOwner)},
		{Name: "kill -9 the answering node", When: Over, Strike: killAnswering},
		{Name: "kill -9 all nodes after the end", When: Over, Strike: killAll},
		{Name: "power cut at Redis, everysec, after the end", Away: true, When: Over, Strike: cutPower},
		{Name: "kill -9 a node and the S3 server while files are made", Away: true, When: Over, Strike: killMaking},
		{Name: "kill -9 all nodes while data is removed", When: Over, Strike: killRemoval},

		{Name: "S3 unreachable for the owner", Away: true, Hosts: true, Lasts: partedFor, Strike: withoutS3(owner)},
		{Name: "S3 unreachable for a worker", Away: true, Hosts: true, Lasts: partedFor, Strike: withoutS3(worker)},
		{Name: "S3 away for 20s", Away: true, Lasts: awayFor, Strike: s3Away},
		{Name: "Redis away for 20s", Away: true, Lasts: awayFor, Strike: redisAway},
		{Name: "Redis full", Away: true, Lasts: fullFor, Strike: redisFull},
		{Name: "S3 full", Away: true, Hosts: true, Root: true, Lasts: fullFor, Strike: s3Full},
		{Name: "S3 slow", Away: true, Hosts: true, Lasts: partedFor, Strike: slowly("S3 slow", 1000, func(t *Trial) *host { return t.s3Host })},
		{Name: "hostile answers of an engine", Lasts: partedFor, Strike: hostileEngine},
		{Name: "Redis slow", Away: true, Hosts: true, Lasts: partedFor, Strike: slowly("Redis slow", 400, func(t *Trial) *host { return t.Redis.host })},
	}
	for _, d := range []time.Duration{5 * time.Second, 20 * time.Second, 2 * time.Minute} {
		faults = append(faults, Fault{Name: fmt.Sprintf("split brain of %v", d), Away: true, Hosts: true, Fails: true, Lasts: d, Strike: splitBrain(d)})
	}
	for _, d := range []time.Duration{3 * time.Second, 10 * time.Second, 30 * time.Second} {
		faults = append(faults,
			Fault{Name: fmt.Sprintf("SIGSTOP the owner for %v", d), Away: true, Lasts: d, Strike: pauseNode(owner, d)},
			Fault{Name: fmt.Sprintf("SIGSTOP a worker for %v", d), Away: true, Lasts: d, Strike: pauseNode(worker, d)},
		)
	}
	return faults
}

// A target chooses a node.
type target func(ctx context.Context, t *Trial) (*Node, error)

func owner(ctx context.Context, t *Trial) (*Node, error)  { return t.owner(ctx) }
func worker(ctx context.Context, t *Trial) (*Node, error) { return t.worker(ctx) }

// hit returns the strike of a lost node, with its job and rows.
func (t *Trial) hit(ctx context.Context, fault string, n *Node) Strike {
	s := Strike{Fault: fault + " " + n.name}
	if n.Runs {
		s.Lost = 1
	}
	if own, err := t.owner(ctx); err == nil && own == n {
		s.OwnerLost = true
	}
	return s
}

func killNode(which target) func(context.Context, *Trial) error {
	return func(ctx context.Context, t *Trial) error {
		n, err := which(ctx, t)
		if err != nil {
			return err
		}
		strike := t.hit(ctx, "kill", n)
		n.kill()
		t.struck(strike)
		time.Sleep(t.between(shortest, longest))
		return t.begin(ctx, n)
	}
}

// loopNode kills the owner of the job again and again, soon after each start.
func loopNode(ctx context.Context, t *Trial) error {
	n, err := owner(ctx, t)
	for i := 0; err == nil && i < 6; i++ {
		strike := t.hit(ctx, "kill", n)
		n.kill()
		t.struck(strike)
		time.Sleep(shortest)
		err = t.begin(ctx, n)
		time.Sleep(t.between(shortest, longest))
	}
	return err
}

// killAll kills all nodes at once. No node can take jobs over before they start again.
func killAll(ctx context.Context, t *Trial) error {
	strike := Strike{Fault: "kill all", AllLost: true}
	for _, n := range t.nodes() {
		if n.up() && n.Runs {
			strike.Lost++
		}
		n.kill()
	}
	t.struck(strike)
	time.Sleep(t.between(shortest, longest))
	return t.Repair(ctx)
}

// pauseJob pauses the job as its client, and ends the pause. It costs no row.
func pauseJob(ctx context.Context, t *Trial) error {
	t.struck(Strike{Fault: "a pause of the job"})
	over := false // the job ended before the request
	for _, paused := range []bool{true, false} {
		err := await(ctx, "an answer", patience, func(ctx context.Context) error {
			err := t.call(ctx, http.MethodPatch, "/v1/jobs/"+t.Job, nil, map[string]bool{"paused": paused}, nil)
			var r *refusal
			if over = errors.As(err, &r) && r.status == http.StatusConflict; over {
				return nil
			}
			return err
		})
		if err != nil || over {
			return err
		}
		if paused {
			time.Sleep(t.between(shortest, 2*longest))
		}
	}
	return nil
}

// killRedis loses no data: acknowledged writes are on disk. Owners with an expired lease claim
// their jobs again and keep their rows.
func killRedis(ctx context.Context, t *Trial) error {
	t.Redis.kill()
	t.struck(Strike{Fault: "kill redis-server"})
	time.Sleep(t.between(shortest, longest))
	return t.Redis.begin(ctx)
}

// powerLoss is how much time of writes appendfsync everysec may lose. Rows that were
// committed in this time run again.
const powerLoss = time.Second

func cutPower(ctx context.Context, t *Trial) error {
	return t.cutPower(ctx, "power cut at Redis", func() error { return nil })
}

// cutEnd cuts the power within the second after the end of the job, so that Redis forgets an
// end that clients have seen.
func cutEnd(ctx context.Context, t *Trial) error {
	return t.cutPower(ctx, "power cut at Redis that takes the end", func() error {
		err := t.watched.until(ctx, "over", func(g Glimpse) bool { return g.Over })
		time.Sleep(t.between(0, powerLoss*3/4))
		return err
	})
}

func (t *Trial) cutPower(ctx context.Context, name string, when func() error) error {
	if err := t.runs(ctx); err != nil { // otherwise the job itself may be lost
		return err
	}
	strike := Strike{Fault: name, Forgot: true}
	for _, n := range t.nodes() {
		if n.up() && n.Runs {
			strike.Lost += 2 // one committed flush, and one not committed
		}
	}
	if err := t.Redis.powerCut(powerLoss, when); err != nil {
		return err
	}
	t.struck(strike)
	time.Sleep(t.between(shortest, longest))
	return t.Redis.begin(ctx)
}

func killS3(ctx context.Context, t *Trial) error {
	t.s3Down = true
	t.S3.Kill()
	t.struck(Strike{Fault: "kill the S3 server"})
	time.Sleep(t.between(shortest, longest))
	if err := t.S3.Restart(ctx); err != nil {
		return err
	}
	t.s3Down = false
	return nil
}

// silence is jobs.adoption_timeout: how long the next owner of a job waits for a silent node
// that downloads the input.
const silence = 30 * time.Second

// pauseNode stops a node. After a timeout its rows run elsewhere, and perhaps also on the node
// when it continues.
func pauseNode(which target, d time.Duration) func(context.Context, *Trial) error {
	return func(ctx context.Context, t *Trial) error {
		n, err := which(ctx, t)
		if err != nil {
			return err
		}
		strike := t.hit(ctx, fmt.Sprintf("SIGSTOP for %v of", d), n)
		strike.OwnerLost = strike.OwnerLost && d > t.config.Lease
		strike.Lives = d <= silence/2
		if err := n.pause(); err != nil {
			return err
		}
		t.struck(strike)
		time.Sleep(d)
		return n.resume()
	}
}

// hostileShare is the share of hostile answers of an engine: so low that no row uses up its
// attempts.
const hostileShare = 0.2

// hostileEngine makes the engine of a node give all kinds of hostile answers. No row may fail,
// and no account may pay for them.
func hostileEngine(ctx context.Context, t *Trial) error {
	n, err := t.worker(ctx)
	if err != nil {
		return err
	}
	t.struck(Strike{Fault: "hostile answers at " + n.name, Lives: true})
	if err := n.sim.hostile(ctx, t.client, hostileShare); err != nil {
		return err
	}
	time.Sleep(partedFor)
	return n.sim.hostile(ctx, t.client, 0)
}

// terminate sends SIGTERM to a node: it gives its rows and jobs back, and no row runs
// again.
func terminate(which target) func(context.Context, *Trial) error {
	return func(ctx context.Context, t *Trial) error {
		n, err := which(ctx, t)
		if err != nil {
			return err
		}
		if err := t.stopNicely(n); err != nil {
			return err
		}
		time.Sleep(t.between(shortest, longest))
		return t.begin(ctx, n)
	}
}

func (t *Trial) stopNicely(n *Node) error {
	t.struck(Strike{Fault: "SIGTERM " + n.name})
	code, err := n.terminate(drainWithin + 10*time.Second)
	if err == nil && code != 0 {
		err = fmt.Errorf("%s was drained and ended with code %d, want 0; see %s", n.name, code, n.log)
	}
	return err
}

// rollingRestart restarts one node after the other while clients submit jobs.
func rollingRestart(ctx context.Context, t *Trial) error {
	return t.withClients(ctx, func() error {
		for _, n := range t.nodes() {
			if n.Spare {
				continue
			}
			err := t.stopNicely(n)
			if err == nil {
				err = t.begin(ctx, n)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// joinWithin limits the time until a new node gets rows of a running job.
const joinWithin = 2 * time.Second

// join starts a new node, which must get rows at once.
func join(ctx context.Context, t *Trial) error {
	n, err := t.spare(ctx)
	if err != nil {
		return err
	}
	t.struck(Strike{Fault: "join of " + n.name})
	if err := t.begin(ctx, n); err != nil {
		return err
	}
	ready := time.Now()
	err = await(ctx, n.name+" gets rows", patience, func(ctx context.Context) error {
		if err := t.over(); err != nil {
			return final{err}
		}
		rows, err := t.metric(ctx, n, "rowmill_engine_rows_inflight")
		if err == nil && rows == 0 {
			err = errors.New("none is at its engine")
		}
		return err
	})
	if took := time.Since(ready); err == nil && took > joinWithin {
		err = fmt.Errorf("%s got its first row %v after it was ready, want %v at most", n.name, took.Round(10*time.Millisecond), joinWithin)
	}
	return err
}

// spare returns the node that runs only during some faults. The first call creates it.
func (t *Trial) spare(ctx context.Context) (*Node, error) {
	for _, n := range t.nodes() {
		if n.Spare {
			return n, nil
		}
	}
	n, err := t.AddNode(ctx, "both")
	if err == nil {
		n.Spare = true
	}
	return n, err
}

// wrongClock restarts a worker with a wrong clock.
func wrongClock(by time.Duration) func(context.Context, *Trial) error {
	return func(ctx context.Context, t *Trial) error {
		n, err := t.worker(ctx)
		if err != nil {
			return err
		}
		if err := t.stopNicely(n); err != nil {
			return err
		}
		n.Clock = by
		if err := t.begin(ctx, n); err != nil {
			return err
		}
		return killNode(owner)(ctx, t) // the worker may take the job over, or see another node do it
	}
}

// sameName starts a second node under the name of a worker.
func sameName(ctx context.Context, t *Trial) error {
	twin, err := t.worker(ctx)
	if err != nil {
		return err
	}
	n, err := t.spare(ctx)
	if err != nil {
		return err
	}
	n.Name = twin.Name
	t.struck(Strike{Fault: "join of a second " + twin.Name})
	return t.begin(ctx, n)
}

// scratchSize is the size of the file system of a node with a full disk.
const scratchSize = "24m"

// fillDisk restarts a worker on a small disk and fills the disk for some time.
func fillDisk(ctx context.Context, t *Trial) error {
	n, err := t.worker(ctx)
	if err != nil {
		return err
	}
	if err := t.stopNicely(n); err != nil {
		return err
	}
	n.scratch = scratchSize
	if err := t.begin(ctx, n); err != nil {
		return err
	}
	strike := t.hit(ctx, "disk full on", n)
	strike.OwnerLost = false
	if err := n.fill(); err != nil {
		return err
	}
	t.struck(strike)
	time.Sleep(5 * time.Second)
	return n.free()
}
