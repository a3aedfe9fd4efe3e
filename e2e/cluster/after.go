package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/store"
)

// variants are the queries of all Parquet files of a succeeded job.
var variants = []string{
	"include_inputs=true&include_cumulative_logprobs=true", "include_inputs=true&include_cumulative_logprobs=false",
	"include_inputs=false&include_cumulative_logprobs=true", "include_inputs=false&include_cumulative_logprobs=false",
}

// succeeded returns errOver if the job did not succeed: after a broken download there are no
// results to create or to remove.
func (t *Trial) succeeded(ctx context.Context) error {
	rec, err := t.look(ctx)
	if err == nil && rec.Status != "succeeded" {
		err = errOver
	}
	return err
}

// killMaking kills a node and the S3 server while clients request every Parquet file of
// the result, and then fetches all files.
func killMaking(ctx context.Context, t *Trial) error {
	if err := t.succeeded(ctx); err != nil {
		return err
	}
	path := "/v1/jobs/" + t.Job + "/results-url?format=parquet&"
	asked, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, v := range variants {
		go func() { _ = t.call(asked, http.MethodGet, path+v, nil, nil, nil) }() // may be cut off
	}
	time.Sleep(t.between(time.Millisecond, 100*time.Millisecond))
	n := t.nodes()[t.random.IntN(len(t.config.Roles))]
	strike := Strike{Fault: "kill " + n.name + " and the S3 server while files are made"}
	t.s3Down = true
	n.kill()
	t.S3.Kill()
	t.struck(strike)
	time.Sleep(t.between(shortest, longest))
	if err := t.Repair(ctx); err != nil {
		return err
	}
	for _, v := range variants {
		var file struct {
			URLs struct {
				Get string `json:"get"`
			} `json:"urls"`
		}
		if err := t.insist(ctx, http.MethodGet, path+v, nil, &file); err != nil {
			return fmt.Errorf("the file with %s: %w", v, err)
		}
		got, err := t.client.download(ctx, file.URLs.Get)
		if err == nil && (len(got) < 8 || string(got[len(got)-4:]) != "PAR1") {
			err = fmt.Errorf("%d bytes that are no Parquet", len(got))
		}
		if err != nil {
			return fmt.Errorf("the file with %s: %w", v, err)
		}
	}
	return nil
}

// killRemoval kills all nodes while the data of the job is removed, and then checks that it
// is gone.
func killRemoval(ctx context.Context, t *Trial) error {
	if err := t.succeeded(ctx); err != nil {
		return err
	}
	kept, err := t.results(ctx, t.Job)
	if err != nil {
		return err
	}
	t.removed = &kept
	path := "/v1/jobs/" + t.Job + "/data"
	asked, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { _ = t.call(asked, http.MethodDelete, path, nil, nil, nil) }() // may be cut off
	time.Sleep(t.between(time.Millisecond, 100*time.Millisecond))
	if err := killAll(ctx, t); err != nil {
		return err
	}
	if err := t.insist(ctx, http.MethodDelete, path, nil, nil); err != nil {
		return err
	}
	err = t.call(ctx, http.MethodGet, "/v1/jobs/"+t.Job+"/results", nil, nil, nil)
	var r *refusal
	if !errors.As(err, &r) || r.status != http.StatusGone {
		return fmt.Errorf("results that were removed are not answered with 410: %w", err)
	}
	return nil
}

// quietWithin is how long leftovers of a job may stay after its end and after the end of all
// faults.
const quietWithin = 20 * time.Second

// settleTime is jobs.settle_time: longer than the writes that a power cut loses.
const settleTime = 2 * time.Second

// recordBytes limits the memory of an ended job in Redis.
const recordBytes = 8 << 10

// leftovers waits until bucket and Redis have no leftovers of an ended job, and returns those
// that stay. Objects that only the sweep removes may stay.
func (c *Cluster) leftovers(ctx context.Context, job string, may excuse) ([]string, error) {
	s, err := c.openStore(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }() // only read
	client := c.redisClient()
	defer func() { _ = client.Close() }()
	var found []string
	err = await(ctx, "the job's data goes", quietWithin, func(ctx context.Context) error {
		now, err := c.left(ctx, s, client, job, may)
		if err != nil {
			return err
		}
		if found = now; len(found) > 0 {
			return errLeft
		}
		return nil
	})
	if errors.Is(err, errLeft) {
		err = nil
	}
	return found, err
}

func (c *Cluster) redisClient() *goredis.Client {
	return goredis.NewClient(&goredis.Options{Addr: c.Redis.address})
}

var errLeft = errors.New("there are leftovers")

// An excuse says which leftovers of a job are allowed: objects without a record, which the
// sweep removes after retention.orphan_age, and records of parts. losers are objects with a later
// epoch than the job's: the losing side of a split wrote them, and no owner removes objects of a
// later epoch.
type excuse struct{ objects, records, losers bool }

// left returns the names of leftovers of a job.
func (c *Cluster) left(ctx context.Context, s store.Store, client *goredis.Client, job string, may excuse) (found []string, err error) {
	rec, err := s.Get(ctx, job)
	if err != nil {
		return nil, err
	}
	if !rec.Job.Status.IsTerminal() {
		return []string{fmt.Sprintf("the job is %s again", rec.Job.Status)}, nil
	}
	named := map[string]bool{}
	if rec.DataRemoved == nil {
		for _, a := range rec.Artifacts {
			named[a.Key] = true
		}
	}
	objects, err := c.objects("jobs/" + job)
	if err != nil {
		return nil, err
	}
	for _, key := range objects {
		if key == layout.FileListKey(job) && rec.Spec.Source != "" && rec.DataRemoved == nil { // jobs that reuse rows read it
			continue
		}
		if !named[key] && !may.objects && (!may.losers || layout.EpochFromKey(key) <= rec.Epoch) {
			found = append(found, "object "+key)
		}
		delete(named, key)
	}
	for key := range maps.Keys(named) {
		found = append(found, "no object "+key+", which the record names")
	}
	if may.records {
		return found, nil
	}
	parts, err := s.ListParts(ctx, job)
	if err != nil {
		return nil, err
	}
	if len(parts) > 0 {
		found = append(found, fmt.Sprintf("%d records of parts", len(parts)))
	}
	total := int64(0)
	for keys := client.Scan(ctx, 0, "*"+job+"*", 1000).Iterator(); keys.Next(ctx); {
		bytes, err := client.MemoryUsage(ctx, keys.Val(), 0).Result() // of all fields, not of a sample of five
		if err != nil && !errors.Is(err, goredis.Nil) {
			return nil, err
		}
		total += bytes
	}
	if total > recordBytes {
		found = append(found, fmt.Sprintf("%d bytes in Redis, want %d at most", total, recordBytes))
	}
	return found, nil
}

// bucketRoot is the directory of the S3 server with the objects, by their keys.
func (c *Cluster) bucketRoot() string { return filepath.Join(c.S3.Dir, "objects", c.S3.Bucket) }

// objects returns the keys in a folder of the bucket, from the disk of the S3 server.
func (c *Cluster) objects(folder string) (keys []string, err error) {
	root := c.bucketRoot()
	err = filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile, or never created
		}
		if err == nil && !entry.IsDir() {
			keys = append(keys, strings.TrimPrefix(path, root+"/"))
		}
		return err
	})
	slices.Sort(keys)
	return keys, err
}
