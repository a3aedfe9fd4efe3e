package cluster

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics holds the metrics of the cluster's members, as this node sees them.
type metrics struct {
	joins *prometheus.CounterVec // full exchanges with members, by outcome
	lost  prometheus.Counter     // members that vanished without leaving
}

func newMetrics(reg prometheus.Registerer, c *Cluster) *metrics {
	f := promauto.With(reg)
	members := func(state string, number func() int) {
		f.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "rowmill_cluster_members",
			Help:        "Members by state: alive (this one included), left, or dead (vanished without leaving; this node still looks for the member).",
			ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 {
			c.mu.Lock()
			defer c.mu.Unlock()
			return float64(number())
		})
	}
	members("alive", func() int { alive, _, _ := c.roster.count(); return alive })
	members("left", func() int { _, left, _ := c.roster.count(); return left })
	members("dead", func() int { _, _, dead := c.roster.count(); return dead })
	return &metrics{
		joins: f.NewCounterVec(prometheus.CounterOpts{Name: "rowmill_cluster_joins_total", Help: "Full exchanges with missing members, and of a new member with the members it learned of, by outcome: ok or failed."}, []string{"outcome"}),
		lost:  f.NewCounter(prometheus.CounterOpts{Name: "rowmill_cluster_members_lost_total", Help: "Members that were gone without leaving."}),
	}
}

// publishHealth registers memberlist's health score as a metric; memberlist must be
// running.
func (c *Cluster) publishHealth() {
	promauto.With(c.cfg.Metrics).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rowmill_cluster_health_score",
		Help: "How late this node is with probes and their answers: 0 is healthy; more means too little CPU or a bad network on this node.",
	}, func() float64 { return float64(c.list.GetHealthScore()) })
}
