package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rowmill/rowmill/internal/faultnet"
)

// Partitions last longer than a lease and than the time after which members remove a silent
// node.
const partedFor = 8 * time.Second

// everybody returns all hosts of the cluster.
func (t *Trial) everybody() []*faultnet.Host {
	return append(networked(t.nodes()), t.Redis.host.net, t.s3Host.net)
}

func others(all []*faultnet.Host, self *faultnet.Host) (rest []*faultnet.Host) {
	for _, h := range all {
		if h != self {
			rest = append(rest, h)
		}
	}
	return rest
}

// parted breaks the network for some time.
func (t *Trial) parted(ctx context.Context, strike Strike, cut func() error) error {
	if err := cut(); err != nil {
		return err
	}
	strike.Lives = true
	t.struck(strike)
	time.Sleep(partedFor)
	return t.heal(ctx)
}

// cutOff separates a node from all others, from Redis and from the S3 server.
func cutOff(which target) func(context.Context, *Trial) error {
	return func(ctx context.Context, t *Trial) error {
		n, err := which(ctx, t)
		if err != nil {
			return err
		}
		self := n.host.net
		strike := t.hit(ctx, "cut off", n)
		return t.parted(ctx, strike, func() error {
			return t.network.Partition(ctx, []*faultnet.Host{self}, others(t.everybody(), self))
		})
	}
}

// halves splits the nodes into two halves that both reach Redis and the S3 server. The owner
// loses the other half.
func halves(ctx context.Context, t *Trial) error {
	own, err := t.owner(ctx)
	if err != nil {
		return err
	}
	nodes := t.nodes()
	t.random.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	half := len(nodes) / 2
	away := nodes[half:]
	if slices.Contains(away, own) {
		away = nodes[:half]
	}
	strike := Strike{Fault: "half and half"}
	for _, n := range away {
		if n.Runs && n.up() {
			strike.Lost++
		}
	}
	return t.parted(ctx, strike, func() error { return t.network.Partition(ctx, networked(nodes[:half]), networked(nodes[half:])) })
}

// networked returns the hosts of nodes.
func networked(nodes []*Node) (all []*faultnet.Host) {
	for _, n := range nodes {
		all = append(all, n.host.net)
	}
	return all
}

// oneWay drops the packets from the owner to a worker, or from the worker to the owner.
func oneWay(fromOwner bool) func(context.Context, *Trial) error {
	return func(ctx context.Context, t *Trial) error {
		own, err := t.owner(ctx)
		if err != nil {
			return err
		}
		n, err := t.worker(ctx)
		if err != nil {
			return err
		}
		from, to := own, n
		if !fromOwner {
			from, to = n, own
		}
		strike := Strike{Fault: fmt.Sprintf("%s unheard by %s", from.name, to.name), Lost: 1}
		return t.parted(ctx, strike, func() error {
			return t.network.DropPackets(ctx, 100, []*faultnet.Host{from.host.net}, []*faultnet.Host{to.host.net})
		})
	}
}

// withoutRedis separates a node from Redis only. The node continues to run rows. The job of an
// owner moves to another node, which learns of these rows: none runs again.
func withoutRedis(which target) func(context.Context, *Trial) error {
	return func(ctx context.Context, t *Trial) error {
		n, err := which(ctx, t)
		if err != nil {
			return err
		}
		strike := t.hit(ctx, "no Redis for", n)
		strike.Lost = 0
		return t.parted(ctx, strike, func() error {
			return t.network.Partition(ctx, []*faultnet.Host{n.host.net}, []*faultnet.Host{t.Redis.host.net})
		})
	}
}

// lossy drops 30 % of all packets. Leases may expire.
func lossy(ctx context.Context, t *Trial) error {
	strike := Strike{Fault: "30 % packet loss"}
	for _, n := range t.nodes() {
		if n.Runs && n.up() {
			strike.Lost++
		}
	}
	return t.parted(ctx, strike, func() error {
		all := t.everybody()
		return t.network.DropPackets(ctx, 30, all, all)
	})
}
