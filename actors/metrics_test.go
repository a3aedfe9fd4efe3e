package actors

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowmill/rowmill/actors/registry"
)

// counted is a mailbox middleware that only counts.
type counted struct{ depth atomic.Int64 }

func (*counted) MailboxStarted()       {}
func (k *counted) MessagePosted(any)   { k.depth.Add(1) }
func (k *counted) MessageReceived(any) { k.depth.Add(-1) }
func (*counted) MailboxEmpty()         {}

// BenchmarkMessage measures a message to an actor with the usual properties, one by
// one and a thousand at once. For comparison it measures an actor with a mailbox
// that only counts.
func BenchmarkMessage(b *testing.B) {
	m := newMetrics(prometheus.NewRegistry(), registry.New(time.Now))
	for name, burst := range map[string]int{"alone": 1, "in bursts": 1000} {
		for _, registered := range []bool{false, true} {
			title := name + "/counted"
			if registered {
				title = name + "/registered"
			}
			b.Run(title, func(b *testing.B) {
				system := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
				defer system.Shutdown()
				done := make(chan struct{}, burst)
				make := func(*registry.ActorEntry) actor.Actor {
					return actor.ReceiveFunc(func(c actor.Context) {
						if _, ok := c.Message().(int); ok {
							done <- struct{}{}
						}
					})
				}
				props := m.props(registry.ActorIdentity{Kind: "job"}, make)
				if !registered {
					props = props.Configure(actor.WithMailbox(actor.Unbounded(&counted{})))
				}
				pid := system.Root.Spawn(props)
				for b.Loop() {
					for range burst {
						system.Root.Send(pid, 1)
					}
					for range burst {
						<-done
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(burst), "ns/message")
			})
		}
	}
}
