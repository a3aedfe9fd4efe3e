package actors

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/previous"
	"github.com/rowmill/rowmill/store"
)

// TestMessagesOfThePreviousVersion holds that nodes of both versions read what
// they tell each other.
func TestMessagesOfThePreviousVersion(t *testing.T) {
	t.Parallel()
	rows := assign.NewRowSet(roaring.BitmapOf(1, 2, 3, 700))
	holds := []assign.ShardRows{{Shard: 3, Rows: rows}}
	for kind, body := range map[string]any{
		kindInvite: invite{Job: "job-1", Epoch: 2, Address: "h:1", Session: "session-1", Context: 4096, MaxTokens: 100, Sample: 7},
		kindHeartbeat: assign.Heartbeat{
			Job: "job-1", Epoch: 2, Worker: "w", Number: 3, Address: "h:2", Fresh: true, Holds: holds, Received: 4, Recalled: 5,
			Back: holds, Batch: 6, Want: true, Hungry: true, Ready: 7, Ports: 8, Leaves: true, Left: true, Warnings: []string{"w"},
			Parts: []assign.Part{{Key: "k", Shard: 1, Rows: rows, Size: 9, Totals: store.Totals{
				Rows: 1, Failed: 2, TruncatedRows: 3, TruncatedOutputs: 4, InputTokens: 5, OutputTokens: 6,
			}}},
			Refused: map[string]string{"http://h": "why"}, Fault: &assign.Fault{Row: 5, Code: "c", Message: "m"},
		},
		kindAssignment: assign.Assignment{
			Job: "job-1", Epoch: 2, Worker: "w", Exhausted: true, Acked: []string{"k"}, Taken: 3, Stop: true,
			Batches: []assign.Batch{{Number: 1, Spans: []assign.Span{{Shard: 2, From: 3, To: 4, Except: rows}}}},
			Revoke:  assign.Revocation{Number: 5, Rows: 6},
		},
		kindDismiss: dismiss{Job: "job-1", Epoch: 2},
		kindHint:    hint{Job: "job-1", Cancelled: true},
		"invited":   invited{Working: true},
		"refusal":   peer.Refusal{Code: codeStale, Message: "m"},
		"state": nodes.State{
			Version: "v", Since: time.Unix(1e9, 0).UTC(), Draining: true, Jobs: 3,
			Engines: []nodes.Engine{{
				Name: "http://h", Kind: "vllm", Simulated: true, Window: 5, InFlight: 6,
				Models: []engine.ServedModel{{Name: "m", ContextLength: 7}},
			}},
		},
		"envelope": peer.Envelope{Protocol: Protocol, From: "node-1", Kind: kindHint, Job: "job-1", Epoch: 2, Body: json.RawMessage(`{"job":"job-1"}`)},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			previous.Document(t, "testdata/previous/"+kind+".json", body)
		})
	}
}
