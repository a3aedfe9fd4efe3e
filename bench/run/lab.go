package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/internal/s3test"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/redis"
)

// A lab is a cluster on this machine: a Redis that flushes every write to disk, an S3
// server, and nodes with an inference server each. All are new processes with empty
// directories.
type lab struct {
	redis   *redistest.Server
	s3      *s3test.Server
	records store.Store // the nodes' records, read directly
	nodes   []*node
	roles   []string // of the nodes
	servers []*process
	engines []string // HOST:PORT of each server
}

// both returns the roles of n nodes that do everything.
func both(n int) []string { return slices.Repeat([]string{"both"}, n) }

// startLab starts a cluster of nodes with these roles and waits until all know each
// other. start starts the inference server of a node; settings apply to all nodes,
// NAME=VALUE.
func (b *bench) startLab(ctx context.Context, roles []string, start starter, settings ...string) (_ *lab, err error) {
	l := &lab{roles: roles}
	defer func() {
		if err != nil {
			l.end()
		}
	}()
	dir := filepath.Join(b.dir, "lab")
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("remove old data: %w", err)
	}
	for _, name := range []string{"redis", "s3"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return nil, fmt.Errorf("create data directory: %w", err)
		}
	}
	if l.redis, err = redistest.Run(ctx, filepath.Join(dir, "redis"), 0, "always"); err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	if l.s3, err = s3test.Run(ctx, filepath.Join(dir, "s3"), 0); err != nil {
		return nil, fmt.Errorf("start S3 server: %w", err)
	}
	if l.records, err = redis.Open(ctx, redis.Config{URL: l.redis.URL()}); err != nil {
		return nil, fmt.Errorf("open records: %w", err)
	}
	first := "" // gossip address of the first node, which the others join
	for i := range roles {
		if err := l.addNode(ctx, b, filepath.Join(dir, "node-"+strconv.Itoa(i)), &first, start, settings); err != nil {
			return nil, fmt.Errorf("node %d: %w", i, err)
		}
	}
	return l, l.assembled(ctx)
}

// addNode starts a server and a node for it.
func (l *lab) addNode(ctx context.Context, b *bench, data string, join *string, start starter, settings []string) error {
	server, engine, err := start(filepath.Join("lab", filepath.Base(data)+"-server.log"))
	if err != nil {
		return err
	}
	l.servers, l.engines = append(l.servers, server), append(l.engines, engine)
	gossip, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	peers, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	role := l.roles[len(l.nodes)]
	if role == "api" {
		engine = "" // this node runs no rows
	}
	settings = append([]string{
		"store.url=" + l.redis.URL(),
		"objects.url=s3://" + l.s3.Bucket,
		"objects.endpoint=" + l.s3.Endpoint,
		"objects.region=" + s3test.Region,
		"objects.access_key=" + l.s3.AccessKey,
		"objects.secret_key=" + l.s3.SecretKey,
		"cluster.node=" + filepath.Base(data),
		"cluster.role=" + role,
		"cluster.listen=" + gossip,
		"cluster.peer_listen=" + peers,
		"cluster.join=[" + *join + "]",
	}, settings...)
	if *join == "" {
		*join = gossip
	}
	node, err := startNode(ctx, b.rowmill, data, engine, settings...)
	if err != nil {
		return err
	}
	l.nodes = append(l.nodes, node)
	return nil
}

// assembled waits until every node knows the models of all other nodes.
func (l *lab) assembled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	want := len(slices.DeleteFunc(slices.Clone(l.roles), func(role string) bool { return role == "api" }))
	for _, n := range l.nodes {
		for {
			serving, err := n.serving(ctx)
			if err == nil && serving == want {
				break
			}
			select {
			case <-ctx.Done():
				return errors.Join(err, fmt.Errorf("%s knows %d nodes with engines, want %d (log: %s)", n.base, serving, want, n.log))
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	return nil
}

// owners returns how many of the first nodes take requests and own jobs.
func (l *lab) owners() int {
	if i := slices.Index(l.roles, "engines"); i >= 0 {
		return i
	}
	return len(l.nodes)
}

// serving returns the number of nodes with a model that this node knows.
func (n *node) serving(ctx context.Context) (count int, err error) {
	var answer struct {
		Nodes []struct {
			Models []string `json:"models"`
		} `json:"nodes"`
	}
	err = n.call(ctx, http.MethodGet, "/v1/nodes", nil, &answer)
	for _, other := range answer.Nodes {
		if len(other.Models) > 0 {
			count++
		}
	}
	return count, err
}

// cpu returns the processor time of all nodes so far.
func (l *lab) cpu() (sum time.Duration, err error) {
	for _, n := range l.nodes {
		used, err := n.cpu()
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// stop lets the nodes finish, and ends the other processes.
func (l *lab) stop() error {
	errs := make([]error, 0, len(l.nodes))
	for _, n := range l.nodes {
		errs = append(errs, n.stop())
	}
	l.end()
	return errors.Join(errs...)
}

// end ends all processes, after a stop or an error.
func (l *lab) end() {
	for _, n := range l.nodes {
		n.kill()
	}
	for _, s := range l.servers {
		s.end()
	}
	if l.records != nil {
		_ = l.records.Close() // an error does not matter after reads
	}
	if l.s3 != nil {
		l.s3.Stop()
	}
	if l.redis != nil {
		_ = l.redis.Kill() // its data is not needed any more
	}
}

// warm runs a small job on all nodes, so that they load their vocabularies.
func (l *lab) warm(ctx context.Context, b *bench) error {
	in, err := dataset{rows: int64(128 * len(l.nodes)), bytes: 100, seed: 1}.make(b.dir)
	if err != nil {
		return err
	}
	_, err = l.job(ctx, b, in)
	return err
}

// idleTime is how long the processor time of idle nodes is measured.
const idleTime = 10 * time.Second

// idle returns the processor time of an idle node, in seconds per second.
func (l *lab) idle() (float64, error) {
	used, err := costOf(l.cpu, func() error {
		time.Sleep(idleTime)
		return nil
	})
	return used.cpu.Seconds() / used.wall.Seconds() / float64(len(l.nodes)), err
}

// A labJob holds the figures of a succeeded job.
type labJob struct {
	id        string
	submitted time.Time
	course    []progressReading
	cpu       time.Duration // processor time of all nodes
}

// job runs a job with a file of the work directory, submitted to the first node.
func (l *lab) job(ctx context.Context, b *bench, in string) (j labJob, err error) {
	used, err := costOf(l.cpu, func() (err error) {
		j.submitted = time.Now()
		if j.id, err = l.submit(ctx, b, in); err == nil {
			j.course, err = l.follow(ctx, j.id, func(progressReading) error { return nil })
		}
		return err
	})
	j.cpu = used.cpu
	return j, err
}

func (l *lab) submit(ctx context.Context, b *bench, in string) (string, error) {
	return l.nodes[0].submit(ctx, b.fileOf(in))
}

// A progressReading is a job's progress at one time.
type progressReading struct {
	at   time.Time
	done int64 // committed rows
}

// progressInterval is the time between two reads of a job's record.
const progressInterval = 50 * time.Millisecond

// follow reads a job's record until the job is over, and returns its course. A job that
// does not succeed completely is an error. each is called after every read.
func (l *lab) follow(ctx context.Context, id string, each func(progressReading) error) ([]progressReading, error) {
	var course []progressReading
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for {
		r, err := l.records.Get(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("look at job %s: %w", id, err)
		}
		g := progressReading{time.Now(), r.Job.RowsDone}
		course = append(course, g)
		if r.Job.Status.IsTerminal() {
			if r.Job.Status != "succeeded" || r.Job.FailedRows > 0 {
				return nil, fmt.Errorf("job %s %s with %d failed rows (log: %s)", id, r.Job.Status, r.Job.FailedRows, l.nodes[0].log)
			}
			return course, nil
		}
		if err := each(g); err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// committed returns when the last row was committed.
func committed(course []progressReading) time.Time {
	last := course[len(course)-1]
	for i := len(course) - 1; i > 0; i-- {
		if course[i-1].done < last.done {
			return course[i].at
		}
	}
	return last.at
}

// metrics returns all samples of a node's metrics page, by name with labels, such as
// rowmill_s3_requests_total{op="put"}.
func (n *node) metrics(ctx context.Context) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, n.base+"/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	page, err := read(n.client, request)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	values := make(map[string]float64)
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if blank := strings.LastIndexByte(line, ' '); blank > 0 && !strings.HasPrefix(line, "#") {
			if value, err := strconv.ParseFloat(line[blank+1:], 64); err == nil {
				values[line[:blank]] = value
			}
		}
	}
	return values, nil
}
