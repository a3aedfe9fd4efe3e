package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rowmill/rowmill/internal/faultnet"
)

// awayFor is longer than a lease, and longer than workers start rows without a commit.
const awayFor = 20 * time.Second

// withoutS3 separates a node from the bucket only.
func withoutS3(which target) func(context.Context, *Trial) error {
	return func(ctx context.Context, t *Trial) error {
		n, err := which(ctx, t)
		if err != nil {
			return err
		}
		// Its rows may move to other nodes, which can write them.
		strike := t.hit(ctx, "no S3 for", n)
		strike.OwnerLost = false
		return t.parted(ctx, strike, func() error {
			return t.network.Partition(ctx, []*faultnet.Host{n.host.net}, []*faultnet.Host{t.s3Host.net})
		})
	}
}

// redisAway makes Redis unavailable to all nodes for longer than their leases.
func redisAway(ctx context.Context, t *Trial) error {
	t.Redis.kill()
	t.struck(Strike{Fault: "Redis away", Unwritten: awayFor})
	time.Sleep(awayFor)
	return t.Redis.begin(ctx)
}

// s3Away makes the bucket unavailable to all nodes.
func s3Away(ctx context.Context, t *Trial) error {
	t.s3Down = true
	t.S3.Kill()
	t.struck(Strike{Fault: "S3 away"})
	time.Sleep(awayFor)
	if err := t.S3.Restart(ctx); err != nil {
		return err
	}
	t.s3Down = false
	return nil
}

// fullFor is how long a store is full.
const fullFor = 8 * time.Second

// redisFull makes Redis refuse every write that needs memory.
func redisFull(ctx context.Context, t *Trial) error {
	if err := t.Redis.limit(ctx, 1); err != nil {
		return err
	}
	t.struck(Strike{Fault: "Redis full", Unwritten: fullFor})
	time.Sleep(fullFor)
	return t.Redis.limit(ctx, 0)
}

// limit sets the memory limit of Redis in bytes; 0: no limit.
func (r *redisServer) limit(ctx context.Context, bytes int) error {
	answer, err := r.ask(ctx, fmt.Sprintf("CONFIG SET maxmemory %d", bytes))
	if err == nil && answer != "+OK" {
		err = fmt.Errorf("limit the memory of Redis: it says %q", answer)
	}
	return err
}

// bucketSize is the size of the S3 server's own file system.
const bucketSize = "256m"

// mountBucket gives the S3 server a small file system of its own.
func (c *Cluster) mountBucket(dir string) error {
	if c.network == nil || os.Getuid() != 0 {
		return nil // no fault needs it
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+bucketSize); err != nil {
		return fmt.Errorf("mount a file system for the bucket: %w", err)
	}
	c.bucketDir = dir
	return nil
}

// unmountBucket unmounts this file system, also if it is in use.
func (c *Cluster) unmountBucket() error {
	dir := c.bucketDir
	if c.bucketDir = ""; dir == "" {
		return nil
	}
	return syscall.Unmount(dir, syscall.MNT_DETACH)
}

// s3Full fills the disk of the S3 server.
func s3Full(_ context.Context, t *Trial) error {
	ballast := filepath.Join(t.bucketDir, "ballast")
	if err := fillWith(ballast); err != nil {
		return err
	}
	t.struck(Strike{Fault: "S3 full"})
	time.Sleep(fullFor)
	return os.Remove(ballast)
}

// slowly limits the bandwidth of answers of a server.
func slowly(name string, kbit int, of func(*Trial) *host) func(context.Context, *Trial) error {
	return func(ctx context.Context, t *Trial) error {
		strike := Strike{Fault: name}
		for _, n := range t.nodes() {
			if n.Runs && n.up() {
				strike.Lost++ // its lease may expire, as with lost packets
			}
		}
		if err := t.network.Throttle(ctx, of(t).net, kbit); err != nil {
			return err
		}
		t.struck(strike)
		time.Sleep(partedFor)
		return t.network.Throttle(ctx, of(t).net, 0)
	}
}
