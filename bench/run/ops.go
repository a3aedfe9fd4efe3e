package main

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Sizes of ops.
const (
	opsNodes = 3
	opsRows  = 100_000
	opsBytes = 300 // size of a row's text

	// cleanUp is longer than a job needs after its end to remove temporary data.
	cleanUp = 15 * time.Second
)

// A tally counts the requests of nodes to others so far, by kind.
type tally map[string]float64

// minus returns the difference to an earlier tally.
func (t tally) minus(earlier tally) tally {
	difference := make(tally)
	for name, value := range t {
		if value != earlier[name] {
			difference[name] = value - earlier[name]
		}
	}
	return difference
}

// sum adds the counts whose names have a prefix.
func (t tally) sum(prefix string) (sum float64) {
	for name, value := range t {
		if strings.HasPrefix(name, prefix) {
			sum += value
		}
	}
	return sum
}

// operations measures the requests of a job of a hundred thousand rows on three nodes
// to Redis, the S3 server and other nodes, compared with the same time without a job.
func (b *bench) operations(ctx context.Context) error {
	in, err := dataset{rows: opsRows, bytes: opsBytes, seed: 8}.make(b.dir)
	if err != nil {
		return err
	}
	// With 256 rows/s on each of three servers the job takes two minutes, long enough to
	// include the periodic work of nodes.
	l, err := b.startLab(ctx, both(opsNodes), b.paced(256, time.Second))
	if err != nil {
		return err
	}
	defer l.end()
	if err := l.warm(ctx, b); err != nil {
		return fmt.Errorf("first job: %w", err)
	}
	time.Sleep(cleanUp)
	before, err := l.tally(ctx)
	if err != nil {
		return err
	}
	time.Sleep(idleTime)
	begun := time.Now()
	rested, err := l.tally(ctx)
	if err != nil {
		return err
	}
	id, err := l.submit(ctx, b, in)
	if err != nil {
		return err
	}
	// Do not read the records for this: Redis would count the read.
	if err := l.over(ctx, rested); err != nil {
		return err
	}
	took := time.Since(begun)
	time.Sleep(cleanUp)
	after, err := l.tally(ctx)
	if err != nil {
		return err
	}
	length := time.Since(begun)
	if err := b.checked(ctx, l.nodes[0], id, opsRows); err != nil {
		return err
	}
	objects, err := l.objects(id)
	if err != nil {
		return err
	}
	used, rest := after.minus(rested), rested.minus(before)
	fmt.Printf("\nOperations: a job of %d rows of %d B on %d nodes, %.0f rows/s; %d objects are left of it\n\n",
		opsRows, opsBytes, opsNodes, opsRows/took.Seconds(), objects)
	t := table{head: []string{"what", "in all", "per 1,000 rows", "in the same time without a job"}}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if name == succeeded {
			continue
		}
		t.add(name, fmt.Sprintf("%.0f", used[name]), short(used[name]*1000/opsRows), fmt.Sprintf("%.0f", rest[name]*length.Seconds()/idleTime.Seconds()))
	}
	t.print(os.Stdout)
	return l.stop()
}

// over waits until the nodes have ended one more job. It reads metrics, because Redis
// would count a read of the records.
func (l *lab) over(ctx context.Context, before tally) error {
	for {
		now, err := l.tallyNodes(ctx)
		if err != nil {
			return err
		}
		if now.sum("jobs: ") > before.sum("jobs: ") {
			if now[succeeded] == before[succeeded] {
				return fmt.Errorf("the job did not succeed: %v", now)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// succeeded is the name of the count of succeeded jobs in a tally.
const succeeded = "jobs: succeeded"

// tally returns all counts so far.
func (l *lab) tally(ctx context.Context) (tally, error) {
	t, err := l.tallyNodes(ctx)
	if err != nil {
		return nil, err
	}
	return t, l.tallyRedis(t)
}

// tallyNodes adds the nodes' own metrics of their requests.
func (l *lab) tallyNodes(ctx context.Context) (tally, error) {
	t := make(tally)
	for _, n := range l.nodes {
		values, err := n.metrics(ctx)
		if err != nil {
			return nil, err
		}
		for series, value := range values {
			name, labels, _ := strings.Cut(series, "{")
			switch name {
			case "rowmill_store_redis_seconds_count":
				t["Redis: requests"] += value
			case "rowmill_s3_requests_total":
				t["S3: "+label(labels, "operation")] += value
			case "rowmill_s3_bytes_total":
				t["S3: bytes "+label(labels, "direction")] += value
			case "rowmill_peer_requests_total":
				if label(labels, "direction") == "out" {
					t["nodes: "+label(labels, "kind")] += value
				}
			case "rowmill_peer_bytes_total":
				if label(labels, "direction") == "out" {
					t["nodes: bytes"] += value
				}
			case "rowmill_jobs_total":
				t["jobs: "+label(labels, "status")] += value
			}
		}
	}
	return t, nil
}

// tallyRedis adds Redis' own statistics.
func (l *lab) tallyRedis(t tally) error {
	for _, section := range []string{"commandstats", "stats"} {
		text, err := l.redis.Command("INFO", section)
		if err != nil {
			return fmt.Errorf("ask Redis for its %s: %w", section, err)
		}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			switch {
			case name == "total_net_input_bytes":
				t["Redis: bytes received"], err = strconv.ParseFloat(value, 64)
			case name == "total_net_output_bytes":
				t["Redis: bytes sent"], err = strconv.ParseFloat(value, 64)
			case strings.HasPrefix(name, "cmdstat_") && name != "cmdstat_info":
				calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
				var n float64
				n, err = strconv.ParseFloat(calls, 64)
				t["Redis: commands, those within scripts too"] += n
			}
			if err != nil {
				return fmt.Errorf("read Redis' section %s: unexpected line %q", section, line)
			}
		}
	}
	return nil
}

// label returns the value of a label of a series.
func label(labels, name string) string {
	_, rest, _ := strings.Cut(labels, name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// objects returns the number of a job's objects in the S3 server.
func (l *lab) objects(id string) (count int, err error) {
	err = filepath.WalkDir(filepath.Join(l.s3.Dir, "objects"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && strings.Contains(path, id) {
			count++
		}
		return err
	})
	return count, err
}
