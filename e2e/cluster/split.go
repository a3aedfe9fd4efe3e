package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/rowmill/rowmill/internal/faultnet"
)

// A split brain needs a replica of Redis and Sentinels, which make it the primary when the
// primary is silent.
const (
	sentinels    = 3               // on one host, so that a cut leaves them a majority
	primaryName  = "primary"       // the primary's name at the Sentinels
	silentFor    = 2 * time.Second // the time after which a Sentinel takes the primary as down
	electsWithin = 20 * time.Second
)

// startSentinels starts a replica of Redis, and the Sentinels.
func (c *Cluster) startSentinels(ctx context.Context) (err error) {
	host, port, err := net.SplitHostPort(c.Redis.address)
	if err != nil {
		return err
	}
	if c.replica, err = c.startServer(ctx, "replica", "--replicaof", host, port); err != nil {
		return err
	}
	if err := c.replica.await(ctx, "has all records of the primary", c.replica.follows); err != nil {
		return err
	}
	if c.watchers, err = newHost(ctx, c.network, "sentinels"); err != nil {
		return err
	}
	for i := range sentinels {
		s := &redisServer{host: c.watchers, dir: filepath.Join(c.dir, fmt.Sprint("sentinel", i))}
		if s.address, err = s.host.listen(ctx, 26379+i); err != nil {
			return err
		}
		if err := os.MkdirAll(s.dir, 0o700); err != nil {
			return err
		}
		config := filepath.Join(s.dir, "sentinel.conf") // a Sentinel changes its file
		lines := fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]s %[4]d\nsentinel down-after-milliseconds %[1]s %[5]d\nsentinel failover-timeout %[1]s 5000\n",
			primaryName, host, port, sentinels/2+1, silentFor.Milliseconds())
		if err := os.WriteFile(config, []byte(lines), 0o600); err != nil {
			return err
		}
		bind, own, err := net.SplitHostPort(s.address)
		if err != nil {
			return err
		}
		s.name, s.log = filepath.Base(s.dir), s.dir+".log"
		s.command = func(ctx context.Context) *exec.Cmd {
			return s.host.command(ctx, "redis-server", config, "--sentinel", "--bind", bind, "--port", own, "--dir", s.dir, "--protected-mode", "no")
		}
		c.sentinels = append(c.sentinels, s)
		if err := s.begin(ctx); err != nil {
			return err
		}
	}
	return nil
}

// redisURL returns the URL of the records.
func (c *Cluster) redisURL() string {
	if !c.config.Sentinels {
		return "redis://" + c.Redis.address + "/0"
	}
	var all []string
	for _, s := range c.sentinels {
		all = append(all, s.address)
	}
	return "redis+sentinel://" + strings.Join(all, ",") + "/" + primaryName + "/0"
}

// elected reports whether the Sentinels name a server as the primary.
func (c *Cluster) elected(ctx context.Context, r *redisServer) error {
	said, err := c.sentinels[0].cli(ctx, "sentinel", "get-master-addr-by-name", primaryName)
	if got := strings.Join(strings.Fields(said), ":"); err == nil && got != r.address {
		err = fmt.Errorf("the Sentinels name %s", got)
	}
	return err
}

// follows returns an error unless the server is a replica with all records of its primary.
func (r *redisServer) follows(ctx context.Context) error {
	said, err := r.cli(ctx, "info", "replication")
	if err == nil && (!strings.Contains(said, "role:slave") || !strings.Contains(said, "master_link_status:up")) {
		err = errors.New("it does not follow a primary")
	}
	return err
}

// splitBrain cuts the owner and the Redis primary off from the other nodes and the Sentinels,
// which make the replica the primary. Both sides run the job and take each other's rows as not
// done. After that time the old primary becomes a replica and loses its writes since the cut.
func splitBrain(lasts time.Duration) func(context.Context, *Trial) error {
	return func(ctx context.Context, t *Trial) error {
		if err := t.runs(ctx); err != nil {
			return err
		}
		own, err := t.owner(ctx)
		if err != nil {
			return err
		}
		t.besides() // otherwise its new jobs would be lost
		old, next := t.Redis, t.replica
		strike := Strike{
			Fault: fmt.Sprintf("split brain of %v with %s", lasts, own.name), Forgot: true, Forgets: lasts + electsWithin, Lives: true,
			Rows: int(t.config.rate() * lasts.Seconds()),
		}
		rest := []*faultnet.Host{next.host.net, t.watchers.net}
		for _, n := range t.nodes() {
			strike.Lost += 2 // the rows in flight, and a flush that the other side does not know
			if n != own {
				rest = append(rest, n.host.net)
			}
		}
		t.struck(strike)
		struck, began := &t.strikes[len(t.strikes)-1], time.Now()
		if err := t.network.Partition(ctx, []*faultnet.Host{own.host.net, old.host.net}, rest); err != nil {
			return err
		}
		err = await(ctx, "the replica becomes the primary", electsWithin, func(ctx context.Context) error { return t.elected(ctx, next) })
		time.Sleep(lasts - time.Since(began))
		if err := errors.Join(err, t.heal(ctx)); err != nil {
			return err
		}
		if lasted := time.Since(began); lasted > lasts { // an election can take longer
			struck.Rows = int(t.config.rate() * lasted.Seconds())
		}
		t.Redis, t.replica = next, old
		return old.await(ctx, "follows the new primary", old.follows)
	}
}
