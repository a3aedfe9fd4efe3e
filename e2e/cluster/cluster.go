package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rowmill/rowmill/internal/certtest"
	"github.com/rowmill/rowmill/internal/faultnet"
	"github.com/rowmill/rowmill/internal/s3test"
)

// shardRows keeps shards small, so that a job of a few thousand rows has several: some merged,
// some begun, some not.
const shardRows = 1024

// Config describes a cluster.
type Config struct {
	Binary string // rowmill
	Lake   bool   // nodes have a source, see lake.go; the last release does not know sources
	Dir    string // of all data, logs and witness logs

	// Roles are the roles of the nodes: both, api or engines.
	Roles []string

	// Hosts gives every machine a network namespace, which network faults need.
	// Otherwise all run on loopback.
	Hosts bool

	// Slots and Answer set the speed of a simulator: it runs Slots rows at once, each
	// for Answer. Default 16 and 120 ms, 133 rows a second: a job must last for some
	// time, and two cores must be enough for all.
	Slots  int
	Answer time.Duration

	// Lease is jobs.lease_ttl. Default 4s.
	Lease time.Duration

	// PartInterval is jobs.part_interval. Default 1s, for many parts.
	PartInterval time.Duration

	// Secure encrypts gossip, and the requests between nodes with certificates of both
	// sides.
	Secure bool

	// Sentinels gives Redis a replica, and Sentinels that make it the primary.
	Sentinels bool

	// Fsync is Redis's appendfsync. Default always.
	Fsync string

	// Settings are further settings of all nodes, NAME=VALUE.
	Settings []string
}

func (c Config) withDefaults() Config {
	if c.Slots == 0 {
		c.Slots = 16
	}
	if c.Answer == 0 {
		c.Answer = 120 * time.Millisecond
	}
	if c.Lease == 0 {
		c.Lease = 4 * time.Second
	}
	if c.PartInterval == 0 {
		c.PartInterval = time.Second
	}
	if c.Fsync == "" {
		c.Fsync = "always"
	}
	return c
}

// rate returns the rows per second of a simulator.
func (c Config) rate() float64 { return float64(c.Slots) / c.Answer.Seconds() }

// A Cluster is a running cluster with its servers and network.
type Cluster struct {
	Redis *redisServer
	S3    *s3test.Server

	config    Config
	dir       string
	network   *faultnet.Network // nil on loopback
	replica   *redisServer      // nil without Config.Sentinels
	sentinels []*redisServer    // on the host watchers
	watchers  *host
	s3Host    *host
	s3Down    bool
	bucketDir string // the file system of the S3 server, if it has its own
	authority *certtest.Authority
	gossipKey string
	oracle    oracle
	client    *client

	mu    sync.Mutex
	Nodes []*Node // grows when nodes join

	sightings []Sighting // of all simulators so far
	account   Ledger     // expected charge of all jobs so far
	neighbour *Crowd     // nil before the first trial
	requests  requests   // requests of clients
}

// Start starts a cluster and waits until its nodes take jobs.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	c := &Cluster{config: config.withDefaults(), dir: config.Dir, client: newClient(), gossipKey: firstGossipKey}
	steps := []func(context.Context) error{c.makeNetwork, c.startRedis, c.startS3, c.startNodes}
	var err error
	if c.oracle, err = newOracle(ctx); err != nil {
		return nil, err
	}
	if c.authority, err = certtest.NewAuthority(); err != nil {
		return nil, err
	}
	if err := c.putKeys(c.gossipKey); err != nil {
		return nil, err
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, c.Close(ctx))
		}
	}
	return c, nil
}

func (c *Cluster) makeNetwork(ctx context.Context) (err error) {
	if c.config.Hosts {
		c.network, err = faultnet.New(ctx)
	}
	return err
}

func (c *Cluster) startNodes(ctx context.Context) error {
	for _, role := range c.config.Roles {
		if _, err := c.AddNode(ctx, role); err != nil {
			return err
		}
	}
	return c.Repair(ctx)
}

// Repair repairs the cluster: the network, Redis, the S3 server and every node except
// spares, with the right time, name and disk.
func (c *Cluster) Repair(ctx context.Context) error {
	if err := c.heal(ctx); err != nil {
		return err
	}
	if !c.Redis.alive() {
		if err := c.Redis.begin(ctx); err != nil {
			return err
		}
	}
	if err := c.Redis.limit(ctx, 0); err != nil {
		return err
	}
	if c.s3Down {
		if err := c.S3.Restart(ctx); err != nil {
			return err
		}
		c.s3Down = false
	}
	for _, n := range c.nodes() {
		if n.alive() && !n.up() {
			if err := n.resume(); err != nil {
				return err
			}
		}
		if n.odd() {
			n.kill()
		}
		n.Clock, n.scratch, n.Name = 0, "", n.name
		if !n.alive() && !n.Spare {
			if err := n.start(ctx); err != nil {
				return err
			}
		}
	}
	for _, n := range c.nodes() {
		if n.Spare {
			continue
		}
		if err := c.ready(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) heal(ctx context.Context) error {
	if c.network == nil {
		return nil
	}
	return c.network.Heal(ctx)
}

// nodes returns a copy of Nodes.
func (c *Cluster) nodes() []*Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.Nodes)
}

// Close kills all processes. It may be called twice.
func (c *Cluster) Close(ctx context.Context) error {
	for _, n := range c.nodes() {
		n.kill()
		if n.sim != nil {
			n.sim.kill()
		}
	}
	if c.S3 != nil {
		c.S3.Stop()
	}
	for _, r := range append(slices.Clone(c.sentinels), c.Redis, c.replica) {
		if r != nil {
			r.kill()
		}
	}
	c.client.http.CloseIdleConnections()
	err := errors.Join(c.oracle.Stop(ctx), c.unmountBucket())
	if c.network != nil {
		err = errors.Join(err, c.network.Close(ctx))
	}
	return err
}

// Tell writes the ends of the logs of all nodes.
func (c *Cluster) Tell(out io.Writer) {
	fmt.Fprintf(out, "logs, data and witnesses are in %s\n", c.dir)
	for _, n := range c.nodes() {
		log, err := os.ReadFile(n.log)
		if err != nil {
			log = []byte(err.Error())
		}
		fmt.Fprintf(out, "--- %s:\n%s\n", n.name, log[max(0, len(log)-2048):])
	}
}
