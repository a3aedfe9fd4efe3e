package store_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/previous"
	"github.com/rowmill/rowmill/store"
)

// TestDocumentsOfThePreviousVersion holds that records, the public record of a
// job among them, are read by both versions.
func TestDocumentsOfThePreviousVersion(t *testing.T) {
	t.Parallel()
	at := time.Unix(1e9, 0).UTC()
	text, rows, money := "text", int64(12), 0.25
	sampling := map[string]any{"temperature": 0.5, "seed": 7}
	inputs := []rowmill.FunctionInput{{Name: "a", Required: true, Description: "d"}}
	for name, document := range map[string]any{
		"record": store.Record{
			SchemaVersion: 1, Version: 3, Session: "session-1", Epoch: 4, DownloadStarted: &at, DownloadFinished: &at, Shards: 5,
			Reserved: 6, DataRemoved: &at, ShownRunning: true, Artifacts: map[string]store.Artifact{"full": {Key: "k", Size: 9}},
			Job: rowmill.Job{
				ID: "job-1", Status: rowmill.StatusRunning, RunType: rowmill.RunFull, Model: "m", Priority: 1, Name: &text, Description: &text,
				System: &text, Schema: json.RawMessage(`{"type":"object"}`), Sampling: sampling, Created: at, Started: &at, Completed: &at,
				NumRows: &rows, InputTokens: &rows, OutputTokens: &rows, JobCost: &money, CostEstimate: &money,
				FailureReason: &rowmill.Failure{Code: "engine_error", Message: "m"},
				RowCounts:     rowmill.RowCounts{RowsDone: 1, FailedRows: 2, TruncatedRows: 3, TruncatedOutputs: 4},
				Warnings:      []string{"w"}, Message: "m",
				Estimate: &rowmill.Estimate{Method: rowmill.EstimateSampled, SampleRows: 1, SampleInputTokens: 2, Low: 3, High: 4, InputTokens: 5, OutputTokens: 6},
				Function: &rowmill.FunctionRef{Name: "f", Revision: 2, Model: "m"},
			},
			Spec: rowmill.Spec{
				Account: "a", URL: "https://h/p", Inline: []string{"row"}, Spooled: "k", Column: "c", IDColumn: "i", System: text,
				Function: &rowmill.FunctionRun{Inputs: inputs, Prompt: "{{a}}"}, Schema: json.RawMessage(`{}`), Sampling: sampling, Priority: 1,
				Estimate: true, SeedPerRow: true, Seed: 7, TruncateRows: true, RowQuota: 8, TokenQuota: 9, CostQuota: &money,
				Model: rowmill.Model{
					ID: "m", Kind: rowmill.KindGeneration, ContextLength: 4096, Dimension: 2, Tokenizer: "t", Template: "t",
					EngineNames: []string{"e"}, Sampling: sampling, RequestExtras: sampling, NoLogprobs: true, InputPrice: 1, OutputPrice: 2,
				},
			},
		},
		"part": store.Part{
			Key: "k", Shard: 1, Rows: 2, Accepted: []byte("set"), Complete: true, Size: 3,
			Totals: store.Totals{Rows: 1, Failed: 2, TruncatedRows: 3, TruncatedOutputs: 4, InputTokens: 5, OutputTokens: 6},
		},
		"key": store.Key{
			ID: "k", Hash: []byte("h"), Account: "a", Role: "admin", Name: "n", Created: at, Expires: &at, LastUsed: &at, Rotated: &at,
			Dialect: "sdk", RequestsPerMinute: pointer(5),
		},
		"audit": store.AuditEntry{
			ID: "e", At: at, Account: "a", Action: "key.create", Target: "k", ByAccount: "b", ByKey: "c", ByName: "d", Request: "r",
			Details: json.RawMessage(`{"role":"user"}`), Failed: "conflict",
		},
		"settings": store.Settings{RetentionDays: pointer(7)},
		"function": rowmill.Function{
			Name: "f", Description: "d", Inputs: inputs, Prompt: "{{a}}", System: &text, Model: "m", Schema: json.RawMessage(`{}`),
			Sampling: sampling, Revision: 3, Created: at, Published: &at,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			previous.Document(t, "testdata/previous/"+name+".json", document)
		})
	}
}

func pointer[T any](v T) *T { return &v }
