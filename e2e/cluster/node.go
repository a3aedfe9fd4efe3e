package cluster

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rowmill/rowmill/internal/certtest"
	"github.com/rowmill/rowmill/internal/s3test"
)

// adminKey is the administrator's key on all nodes.
const adminKey = "harness-key-0123456789abcdef0123456789abcdef"

// firstGossipKey is the first key of the gossip: 32 bytes, base64.
const firstGossipKey = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="

// drainWithin limits the drain of a node.
const drainWithin = 20 * time.Second

// A Node is a `rowmill serve` process and its restarts.
type Node struct {
	process
	Name  string        // configured name; names may repeat
	API   string        // http://HOST:PORT
	Owns  bool          // takes and owns jobs
	Runs  bool          // runs rows on its own simulator
	Spare bool          // runs only during some faults
	Clock time.Duration // error of its clock

	binary  string // the program; empty: Config.Binary
	host    *host
	sim     *simulator // nil if it runs no rows
	http    string     // HOST:PORT of the API
	gossip  string
	peers   string // HOST:PORT for requests of other nodes
	data    string
	files   certtest.Files // its certificate for requests between nodes
	scratch string         // size of the file system of data, for mount(8); empty: a directory
}

// AddNode creates a node on a host of its own and starts its simulator, unless the node is for
// the API only. It does not start the node.
func (c *Cluster) AddNode(ctx context.Context, role string) (*Node, error) {
	number := len(c.Nodes) + 1
	n := &Node{Name: "node" + strconv.Itoa(number), Owns: role != "engines", Runs: role != "api"}
	var err error
	if n.host, err = newHost(ctx, c.network, n.Name); err != nil {
		return nil, err
	}
	for _, port := range []struct {
		usual   int
		address *string
	}{{8088, &n.http}, {7946, &n.gossip}, {7947, &n.peers}} {
		if *port.address, err = n.host.listen(ctx, port.usual); err != nil {
			return nil, err
		}
	}
	n.API, n.data = "http://"+n.http, filepath.Join(c.dir, n.Name)
	if err := os.MkdirAll(filepath.Join(n.data, "tmp"), 0o700); err != nil {
		return nil, err
	}
	secrets := n.data + "-tls" // not in data, which may be another disk
	if err := os.MkdirAll(secrets, 0o700); err != nil {
		return nil, err
	}
	if n.files, err = c.authority.Issue(secrets, "rowmill"); err != nil {
		return nil, err
	}
	if n.Runs {
		if n.sim, err = c.startSimulator(ctx, n.host, n.Name); err != nil {
			return nil, err
		}
	}
	file := n.Name // stays the same when the name changes
	n.name, n.log = file, filepath.Join(c.dir, file+".log")
	n.command = func(ctx context.Context) *exec.Cmd { return c.serve(ctx, n, role) }
	c.mu.Lock()
	c.Nodes = append(c.Nodes, n)
	c.mu.Unlock()
	return n, nil
}

// serve returns the command of a node. A node without Redis is a single node. A small file
// system is mounted for the process only and ends with it.
func (c *Cluster) serve(ctx context.Context, n *Node, role string) *exec.Cmd {
	settings := append([]string{
		"clock_offset=" + n.Clock.String(),
		"jobs.lease_ttl=" + c.config.Lease.String(),
		"jobs.part_interval=" + c.config.PartInterval.String(),
		"jobs.drain_timeout=" + drainWithin.String(),
		"jobs.probe_interval=1s",
		"jobs.settle_time=" + settleTime.String(),
		"secrets_interval=500ms",
		"retention.interval=5s",
		"inputs.allow_private_networks=true",
		"inputs.allow_loopback=true",
		"jobs.shard_rows=" + strconv.Itoa(shardRows),
		"quotas=[{priority: 1, row_quota: 1000000, token_quota: 1000000000}]",
		"log.format=json",
		"log.level=debug",
	}, c.config.Settings...)
	if c.config.Lake {
		settings = append(settings, c.lakeSetting())
	}
	if c.Redis != nil {
		settings = append(settings, c.sharedSettings(n, role)...)
	}
	if c.config.Secure {
		settings = append(settings, "cluster.key_file="+c.gossipKeyFile(),
			"cluster.tls_cert="+n.files.Cert, "cluster.tls_key="+n.files.Key, "cluster.tls_ca="+n.files.CA)
	} else {
		settings = append(settings, "cluster.insecure=true")
	}
	args := []string{cmp.Or(n.binary, c.config.Binary), "serve", "--data", n.data, "--listen", n.http}
	if n.Runs {
		args = append(args, "--engine", n.sim.url)
	}
	for _, s := range settings {
		args = append(args, "--set", s)
	}
	if n.scratch != "" {
		mount := `mount -t tmpfs -o size="$1" tmpfs "$2" && mkdir "$2/tmp" && shift 2 && exec "$@"`
		args = append([]string{"unshare", "--mount", "sh", "-c", mount, "sh", n.scratch, n.data}, args...)
	}
	command := n.host.command(ctx, args[0], args[1:]...)
	command.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + n.data, "TMPDIR=" + filepath.Join(n.data, "tmp"), "ROWMILL_API_KEY=" + adminKey,
	}
	return command
}

// sharedSettings are the settings of a node that shares its storage with other nodes.
func (c *Cluster) sharedSettings(n *Node, role string) []string {
	return []string{
		"store.url=" + c.redisURL(),
		fmt.Sprint("store.allow_lost_writes=", c.config.Sentinels),
		"objects.url=s3://" + c.S3.Bucket,
		"objects.endpoint=" + c.S3.Endpoint,
		"objects.region=" + s3test.Region,
		"objects.access_key=" + c.S3.AccessKey,
		"objects.secret_key=" + c.S3.SecretKey,
		"cluster.listen=" + n.gossip,
		"cluster.peer_listen=" + n.peers,
		"cluster.join=[" + strings.Join(c.gossips(n), ",") + "]",
		"cluster.node=" + n.Name,
		"cluster.role=" + role,
	}
}

// gossips returns the gossip addresses of the other nodes.
func (c *Cluster) gossips(self *Node) (addresses []string) {
	for _, n := range c.nodes() {
		if n != self {
			addresses = append(addresses, n.gossip)
		}
	}
	return addresses
}

// begin starts the node and waits until it is ready.
func (c *Cluster) begin(ctx context.Context, n *Node) error {
	if err := n.start(ctx); err != nil {
		return err
	}
	return c.ready(ctx, n)
}

// odd reports whether the node must stop: it is a spare, or has the wrong time, name or
// disk.
func (n *Node) odd() bool {
	return n.alive() && (n.Spare || n.Clock != 0 || n.scratch != "" || n.Name != n.name)
}

// ready waits until the node is ready.
func (c *Cluster) ready(ctx context.Context, n *Node) error {
	path := "/readyz"
	if !n.Owns {
		path = "/livez"
	}
	return n.await(ctx, "becomes ready", func(ctx context.Context) error { return c.client.probe(ctx, n.API+path) })
}

// metric returns the sum of a metric over its labels.
func (c *Cluster) metric(ctx context.Context, n *Node, name string) (float64, error) {
	text, err := c.client.get(ctx, n.API+"/metrics")
	if err != nil {
		return 0, err
	}
	sum, found := 0.0, false
	for lines := bufio.NewScanner(strings.NewReader(string(text))); lines.Scan(); {
		series, value, _ := strings.Cut(lines.Text(), " ")
		if bare, _, _ := strings.Cut(series, "{"); bare != name {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s of %s is %q", name, n.Name, value)
		}
		sum, found = sum+number, true
	}
	if !found {
		return 0, fmt.Errorf("%s has no metric %s", n.Name, name)
	}
	return sum, nil
}

// ownerWithin limits the time in which a running job has no owner, or two nodes that believe
// to own it. It is much shorter than a job.
const ownerWithin = 8 * time.Second

// owner waits until exactly one node owns the job, and returns it.
func (t *Trial) owner(ctx context.Context) (*Node, error) {
	var owner *Node
	err := await(ctx, "the job has one owner", ownerWithin, func(ctx context.Context) error {
		owner = nil
		if err := t.over(); err != nil {
			return final{err}
		}
		for _, n := range t.nodes() {
			if !n.Owns || !n.up() {
				continue
			}
			jobs, err := t.metric(ctx, n, "rowmill_jobs_active")
			if err != nil {
				return err
			}
			if jobs > 0 && owner != nil {
				return fmt.Errorf("%s and %s both own a job", owner.Name, n.Name)
			}
			if jobs > 0 {
				owner = n
			}
		}
		if owner == nil {
			return errors.New("no node owns a job")
		}
		return nil
	})
	return owner, err
}

// fill uses all space of the node's own file system; free releases it.
func (n *Node) fill() error { return fillWith(n.ballast()) }

// fillWith creates a file that uses all space of its file system.
func fillWith(ballast string) error {
	file, err := os.OpenFile(ballast, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("fill a disk: %w", err)
	}
	defer file.Close()
	for block := make([]byte, 64<<10); len(block) > 0; {
		if _, err := file.Write(block); err != nil {
			block = block[:len(block)/2] // the rest may be smaller than a block
		}
	}
	return nil
}

func (n *Node) free() error { return os.Remove(n.ballast()) }

// ballast returns the path of the file that fills the disk, as the node sees it.
func (n *Node) ballast() string {
	return fmt.Sprintf("/proc/%d/root%s/ballast", n.running.Process.Pid, n.data)
}
