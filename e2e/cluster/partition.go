package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rowmill/rowmill/internal/faultnet"
)

// Partitions last for longer than a lease, and than a membership takes to give
// a node up.
const partedFor = 8 * time.Second

// everybody are all hosts of the cluster.
func (t *Trial) everybody() []*faultnet.Host {
	return append(networked(t.nodes()), t.redisHost.net, t.s3Host.net)
}

func others(all []*faultnet.Host, self *faultnet.Host) (rest []*faultnet.Host) {
	for _, h := range all {
		if h != self {
			rest = append(rest, h)
		}
	}
	return rest
}

// parted breaks the network for a while.
func (t *Trial) parted(ctx context.Context, strike Strike, cut func() error) error {
	if err := cut(); err != nil {
		return err
	}
	strike.Lives = true
	t.struck(strike)
	time.Sleep(partedFor)
	return t.heal(ctx)
}

// cutOff parts a node from all others, from Redis and from the S3 server.
func cutOff(which target) func(context.Context, *Trial) error {
	return func(ctx context.Context, t *Trial) error {
		n, err := which(ctx, t)
		if err != nil {
			return err
		}
		self := n.host.net
		strike := t.hit(ctx, "cut off", n)
		return t.parted(ctx, strike, func() error {
			return t.network.Part(ctx, []*faultnet.Host{self}, others(t.everybody(), self))
		})
	}
}

// halves parts the nodes in two; both halves reach Redis and the S3 server. The
// half without the owner is lost to it.
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
	return t.parted(ctx, strike, func() error { return t.network.Part(ctx, networked(nodes[:half]), networked(nodes[half:])) })
}

// networked are the hosts of nodes.
func networked(nodes []*Node) (all []*faultnet.Host) {
	for _, n := range nodes {
		all = append(all, n.host.net)
	}
	return all
}

// oneWay loses what the owner sends to a worker, or what the worker sends to
// the owner.
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
			return t.network.Lose(ctx, 100, []*faultnet.Host{from.host.net}, []*faultnet.Host{to.host.net})
		})
	}
}

// withoutRedis parts a node from Redis alone. It runs rows all the same, and an
// owner's job goes to another node, which hears of them: none is run again.
func withoutRedis(which target) func(context.Context, *Trial) error {
	return func(ctx context.Context, t *Trial) error {
		n, err := which(ctx, t)
		if err != nil {
			return err
		}
		strike := t.hit(ctx, "no Redis for", n)
		strike.Lost = 0
		return t.parted(ctx, strike, func() error {
			return t.network.Part(ctx, []*faultnet.Host{n.host.net}, []*faultnet.Host{t.redisHost.net})
		})
	}
}

// lossy loses 30 % of all packets, wherever they go. Leases may run out.
func lossy(ctx context.Context, t *Trial) error {
	strike := Strike{Fault: "30 % packet loss"}
	for _, n := range t.nodes() {
		if n.Runs && n.up() {
			strike.Lost++
		}
	}
	return t.parted(ctx, strike, func() error {
		all := t.everybody()
		return t.network.Lose(ctx, 30, all, all)
	})
}
