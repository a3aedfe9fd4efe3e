package actors

import (
	"context"
	"strings"
	"syscall"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/cluster/peer/peerv1/peerv1connect"
	"github.com/rowmill/rowmill/internal/certtest"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// BenchmarkBetweenNodes measures a heartbeat with a part, and an assignment, for
// both nodes together, with mutual TLS. cpu-ns/op is processor time: other
// processes on the machine disturb it less.
func BenchmarkBetweenNodes(b *testing.B) {
	rows := roaring.New()
	for i := uint32(0); i < 2_000; i += 2 { // other workers run the rows between
		rows.Add(i)
	}
	span := assign.RowSpan{Shard: 17, To: 1024}
	for name, message := range map[string]any{
		"report": &assign.Heartbeat{
			Job: "job-019a0000-0000-7000-8000-000000000000", Epoch: 3, Worker: "0123456789abcdef-17", Number: 1234, Address: "10.0.17.1:7947", Received: 99, Want: true, Ready: 2_000, Engines: 8,
			Parts: []assign.Part{{Key: strings.Repeat("k", 80), Shard: 17, Rows: assign.NewRowSet(rows), Totals: store.RowTotals{Rows: 1_000, InputTokens: 300_000, OutputTokens: 150_000}, Size: 600_000}},
		},
		"assignment": &assign.Assignment{
			Job: "job-019a0000-0000-7000-8000-000000000000", Epoch: 3, Worker: "0123456789abcdef-17",
			Batches: []assign.Batch{{Number: 100, Spans: []assign.RowSpan{span, span, span, span}}}, Acked: []string{strings.Repeat("k", 80)},
		},
	} {
		b.Run(name, func(b *testing.B) { exchange(b, message) })
	}
}

// A hearing node reads messages, and does nothing else.
type hearing struct {
	peerv1connect.UnimplementedNodeServiceHandler
}

func (hearing) Report(_ context.Context, r *peerv1.ReportRequest) (*peerv1.ReportResponse, error) {
	_, err := readReport(r)
	return &peerv1.ReportResponse{}, err
}

func (hearing) Assign(_ context.Context, r *peerv1.AssignRequest) (*peerv1.AssignResponse, error) {
	_, err := readAssignment(r)
	return &peerv1.AssignResponse{}, err
}

// asking is a network with only one other node.
type asking struct {
	heard
	client *peer.Client
}

func (a *asking) Node(address string) peerv1connect.NodeServiceClient { return a.client.Node(address) }

func exchange(b *testing.B, message any) {
	authority := must.Get(certtest.NewAuthority())(b)
	files := must.Get(authority.Issue(b.TempDir(), "rowmill"))(b)
	cfg := peer.Config{Listen: "127.0.0.1:0", Node: "gpu1-01234567", TLS: peer.TLS{CertFile: files.Cert, KeyFile: files.Key, CAFile: files.CA}}
	server := must.Get(peer.Listen(cfg))(b)
	defer server.Close(context.Background())
	server.SetHandler(hearing{})
	client := must.Get(peer.NewClient(cfg))(b)
	defer client.Close()
	t := &peerTransport{peers: &asking{client: client}}
	before := spent()
	for b.Loop() {
		must.Succeed(b, t.tellPeer(b.Context(), server.Addr().String(), message))
	}
	b.ReportMetric(float64(spent()-before)/float64(b.N), "cpu-ns/op")
}

// spent returns the processor time of this process in nanoseconds, without other
// processes.
func spent() int64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return used.Utime.Nano() + used.Stime.Nano()
}
