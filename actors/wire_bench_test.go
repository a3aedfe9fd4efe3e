package actors

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/internal/certtest"
	"github.com/rowmill/rowmill/store"
)

// What a heartbeat with a part, or the assignment that answers it, takes of both
// nodes together, by mutual TLS.
func BenchmarkBetweenNodes(b *testing.B) {
	rows := roaring.New()
	for i := uint32(0); i < 2_000; i += 2 { // others run those between
		rows.Add(i)
	}
	span := assign.Span{Shard: 17, To: 1024}
	for kind, body := range map[string]any{
		kindHeartbeat: &assign.Heartbeat{
			Job: "job-019a0000-0000-7000-8000-000000000000", Epoch: 3, Worker: "0123456789abcdef-17", Number: 1234, Address: "10.0.17.1:7947", Received: 99, Want: true, Ready: 2_000, Ports: 8,
			Parts: []assign.Part{{Key: strings.Repeat("k", 80), Shard: 17, Rows: assign.NewRowSet(rows), Totals: store.Totals{Rows: 1_000, InputTokens: 300_000, OutputTokens: 150_000}, Size: 600_000}},
		},
		kindAssignment: &assign.Assignment{
			Job: "job-019a0000-0000-7000-8000-000000000000", Epoch: 3, Worker: "0123456789abcdef-17",
			Batches: []assign.Batch{{Number: 100, Spans: []assign.Span{span, span, span, span}}}, Acked: []string{strings.Repeat("k", 80)},
		},
	} {
		b.Run(kind, func(b *testing.B) { exchange(b, kind, body) })
	}
}

func exchange(b *testing.B, kind string, body any) {
	authority, err := certtest.NewAuthority()
	if err != nil {
		b.Fatal(err)
	}
	files, err := authority.Issue(b.TempDir(), "rowmill")
	if err != nil {
		b.Fatal(err)
	}
	cfg := peer.Config{Listen: "127.0.0.1:0", TLS: peer.TLS{CertFile: files.Cert, KeyFile: files.Key, CAFile: files.CA}}
	server, err := peer.Listen(cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close(context.Background())
	server.Serve(func(_ context.Context, e peer.Envelope) (any, error) {
		_, err := decode(e)
		return struct{}{}, err
	})
	client, err := peer.NewClient(cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	for b.Loop() {
		doc, err := json.Marshal(body)
		if err != nil {
			b.Fatal(err)
		}
		if err := client.Ask(ctx, server.Addr().String(), peer.Envelope{Kind: kind, Job: "job", Body: doc}, nil); err != nil {
			b.Fatal(err)
		}
	}
}
