package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// crashNodes is the number of nodes in B9 before one is killed.
const crashNodes = 4

// A crash holds the figures of a job that lost a node.
type crash struct {
	ratio   float64       // makespan relative to the model
	again   float64       // rows answered twice
	noticed time.Duration // from the kill until a node reacted
	makes   time.Duration // from the submission to the commit of the last row
	killed  time.Duration // from the submission to the kill
}

// crashes is B9: the time of a job that loses one of four nodes halfway, compared with
// a model in which the other three nodes continue at once at their old speed. It kills
// a worker and the job's owner in turn, at a random moment.
func (b *bench) crashes(ctx context.Context) error {
	rows := int64(crashNodes * slowRate(slowAnswer) * b.length.Seconds())
	in, err := dataset{rows: rows, bytes: slowBytes, seed: 9}.make(b.dir)
	if err != nil {
		return err
	}
	victims := []string{"a worker", "the owner"}
	all := make([][]crash, len(victims))
	for round := range b.rounds {
		for i, victim := range victims {
			c, err := b.crash(ctx, in, rows, victim == "the owner", rand.New(rand.NewPCG(uint64(round), uint64(i))))
			if err != nil {
				return fmt.Errorf("kill of %s, seed %d: %w", victim, round, err)
			}
			all[i] = append(all[i], c)
			b.log.Info("measured", "killed", victim, "seed", round, "ratio", c.ratio, "rows_again", c.again,
				"noticed_after", c.noticed, "makespan", c.makes, "killed_after", c.killed)
		}
	}
	fmt.Printf("\nB9 kill -9 of one of %d nodes about half way through a job of %d rows (%.0f rows/s a node), %d rounds, median (min–max)\n\n",
		crashNodes, rows, slowRate(slowAnswer), b.rounds)
	t := table{head: []string{"killed", "makespan ÷ fluid model", "rows answered twice", "noticed after, s"}}
	for i, victim := range victims {
		t.add(victim, collect(all[i], func(c crash) float64 { return c.ratio }).precise(),
			collect(all[i], func(c crash) float64 { return c.again }).String(),
			collect(all[i], func(c crash) float64 { return c.noticed.Seconds() }).String())
	}
	t.print(os.Stdout)
	return nil
}

// crash runs a job on four new nodes and kills one.
func (b *bench) crash(ctx context.Context, in string, rows int64, owner bool, random *rand.Rand) (c crash, err error) {
	l, err := b.startLab(ctx, both(crashNodes), b.slow(slowAnswer))
	if err != nil {
		return c, err
	}
	defer l.end()
	if err := l.warm(ctx, b); err != nil {
		return c, fmt.Errorf("first job: %w", err)
	}
	meters, err := l.watch(ctx)
	if err != nil {
		return c, err
	}
	// Parts are written every few seconds. A random moment makes the result independent
	// of the parts.
	const jitter = 0.1
	after := time.Duration((0.5 + jitter*(random.Float64()-0.5)) * float64(b.length))
	var victim int
	var killed time.Time
	begun := time.Now()
	id, err := l.submit(ctx, b, in)
	if err != nil {
		return c, err
	}
	course, err := l.follow(ctx, id, func(g progressReading) error {
		if !killed.IsZero() || g.at.Sub(begun) < after {
			return nil
		}
		if victim, err = l.pick(ctx, owner, random); err != nil {
			return err
		}
		l.nodes[victim].kill()
		killed = time.Now()
		return nil
	})
	if err != nil {
		return c, err
	}
	c.makes, c.killed = committed(course).Sub(begun), killed.Sub(begun)

	// The model: rows answered before the kill count, except the rows that the dead
	// node had not committed, which are answered twice. Three nodes run the rest, each
	// at a quarter of the earlier speed.
	answered, rate := 0.0, 0.0
	for i, m := range meters {
		readings, err := m.stop()
		if err != nil {
			return c, err
		}
		until := readings.before(killed)
		f, err := until.figures()
		if err != nil {
			return c, fmt.Errorf("server %d: %w", i, err)
		}
		answered += f.done
		rate += f.rate
		c.again += f.done
		if i != victim {
			c.again += readings[len(readings)-1].done - until[len(until)-1].done
		}
	}
	c.again -= float64(rows)
	left := float64(rows) - answered + c.again
	fluid := c.killed.Seconds() + left/(rate*(crashNodes-1)/crashNodes)
	c.ratio = c.makes.Seconds() / fluid
	if c.noticed, err = l.noticed(killed); err != nil {
		return c, err
	}
	return c, b.checked(ctx, l.nodes[(victim+1)%crashNodes], id, rows)
}

// pick returns the node to kill: the job's owner, or another.
func (l *lab) pick(ctx context.Context, owner bool, random *rand.Rand) (int, error) {
	for _, i := range random.Perm(len(l.nodes)) {
		values, err := l.nodes[i].metrics(ctx)
		if err != nil {
			return 0, err
		}
		if owner == (values["rowmill_jobs_active"] > 0) {
			return i, nil
		}
	}
	return 0, errors.New("no node owns the job")
}

// noticed returns the time from the kill until the reaction: the job's owner logs a
// lost worker and reassigns its rows at once, or another node logs that it has claimed
// the job.
func (l *lab) noticed(killed time.Time) (time.Duration, error) {
	var last time.Duration
	for _, n := range l.nodes {
		log, err := os.ReadFile(n.log)
		if err != nil {
			return 0, fmt.Errorf("read log: %w", err)
		}
		for lines := bufio.NewScanner(bytes.NewReader(log)); lines.Scan(); {
			var said struct {
				Time time.Time `json:"time"`
				Msg  string    `json:"msg"`
			}
			if json.Unmarshal(lines.Bytes(), &said) != nil { // the first line is not JSON
				continue
			}
			if said.Time.After(killed) && (said.Msg == "worker lost" || said.Msg == "job claimed") {
				last = max(last, said.Time.Sub(killed))
			}
		}
	}
	if last == 0 {
		return 0, fmt.Errorf("no node of %s logged a lost worker or a claim of the job", filepath.Dir(l.nodes[0].log))
	}
	return last, nil
}
