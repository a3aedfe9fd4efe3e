package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/rowmill/rowmill/blob/blobtest"
	"github.com/rowmill/rowmill/blob/dir"
	"github.com/rowmill/rowmill/blob/s3"
	"github.com/rowmill/rowmill/internal/s3test"
)

// A backup is a copy of Redis and then of the bucket, as in docs/backup.md.
type backup struct {
	records string // an RDB file
	objects *dir.Bucket
}

// backupTries limits the attempts of a copy. A copy that takes longer than jobs.settle_time may
// lack objects of its records.
const backupTries = 5

// backup copies Redis and the bucket while they are in use. It copies most of the bucket before
// Redis, so that little is left after Redis.
func (c *Cluster) backup(ctx context.Context, folder string) (b backup, err error) {
	bucket, err := c.openBucket(ctx)
	if err != nil {
		return backup{}, err
	}
	defer func() { _ = bucket.Close() }() // only read
	if b.objects, err = dir.Open(dir.Config{Root: filepath.Join(folder, "bucket"), NoSync: true}); err != nil {
		return backup{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.objects.Close())
		}
	}()
	for try := range backupTries {
		b.records = filepath.Join(folder, fmt.Sprintf("%d.rdb", try))
		// No record of the copy names an object that is removed by now.
		if err := errors.Join(blobtest.Copy(ctx, bucket, b.objects), blobtest.Prune(ctx, bucket, b.objects)); err != nil {
			return b, err
		}
		began := time.Now()
		if _, err := c.Redis.cli(ctx, "--rdb", b.records); err != nil {
			return b, err
		}
		if err := blobtest.Copy(ctx, bucket, b.objects); err != nil {
			return b, err
		}
		if time.Since(began) < settleTime {
			return b, nil
		}
	}
	return b, fmt.Errorf("%d copies of what the bucket had got meanwhile took longer than %v each", backupTries, settleTime)
}

func (c *Cluster) openBucket(ctx context.Context) (*s3.Bucket, error) {
	return s3.Open(ctx, s3.Config{
		Endpoint: c.S3.Endpoint, Region: s3test.Region, Bucket: c.S3.Bucket, AccessKey: c.S3.AccessKey, SecretKey: c.S3.SecretKey,
	})
}

// restoreAll copies records and objects, kills every machine some time later, and restores the
// copies: everything in between is forgotten.
func restoreAll(ctx context.Context, t *Trial) error {
	if err := t.runs(ctx); err != nil { // otherwise the copy may not have the job
		return err
	}
	t.besides() // otherwise its jobs would be forgotten too
	folder, err := os.MkdirTemp(t.dir, "backup-")
	if err != nil {
		return err
	}
	began := time.Now()
	copied, err := t.backup(ctx, folder)
	if err != nil {
		return err
	}
	time.Sleep(t.between(shortest, longest))
	strike := Strike{Fault: "restored from a copy", AllLost: true, Forgot: true}
	for _, n := range t.nodes() {
		if n.up() && n.Runs {
			strike.Lost++
		}
		n.kill()
	}
	t.Redis.kill()
	// Answers since the beginning of the copy are forgotten too.
	strike.Rows = int(t.config.rate()*time.Since(began).Seconds()) * strike.Lost
	t.struck(strike)
	err = t.restore(ctx, copied)
	if err = errors.Join(err, copied.objects.Close(), os.RemoveAll(folder)); err != nil {
		return err
	}
	return t.Repair(ctx)
}

// restore replaces records and objects by a copy. No node runs.
func (c *Cluster) restore(ctx context.Context, b backup) error {
	bucket, err := c.openBucket(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = bucket.Close() }() // everything was committed
	there, err := bucket.List(ctx, "")
	if err != nil {
		return err
	}
	for _, o := range there {
		if err := bucket.Delete(ctx, o.Key); err != nil {
			return err
		}
	}
	return errors.Join(blobtest.Copy(ctx, b.objects, bucket), c.Redis.restore(ctx, b.records))
}

// restore starts the server from an RDB file and then uses an append-only file.
func (r *redisServer) restore(ctx context.Context, records string) error {
	if err := os.RemoveAll(filepath.Join(r.dir, "appendonlydir")); err != nil {
		return err
	}
	if err := os.Rename(records, filepath.Join(r.dir, "dump.rdb")); err != nil {
		return err
	}
	usual := r.command
	r.command = func(ctx context.Context) *exec.Cmd {
		command := usual(ctx)
		command.Args = append(command.Args, "--appendonly", "no")
		return command
	}
	err := r.begin(ctx)
	r.command = usual
	if err == nil {
		_, err = r.cli(ctx, "config", "set", "appendonly", "yes")
	}
	if err != nil {
		return err
	}
	return r.await(ctx, "has an append-only file", func(ctx context.Context) error {
		said, err := r.cli(ctx, "info", "persistence")
		if err == nil && (!strings.Contains(said, "aof_rewrite_in_progress:0") || !strings.Contains(said, "aof_rewrite_scheduled:0")) {
			err = errors.New("it still writes it")
		}
		return err
	})
}

// cli runs redis-cli and returns its output.
func (r *redisServer) cli(ctx context.Context, args ...string) (string, error) {
	host, port, _ := strings.Cut(r.address, ":")
	out, err := exec.CommandContext(ctx, "redis-cli", append([]string{"-h", host, "-p", port}, args...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("redis-cli %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}
