package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/engine/sim"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
)

// proxyOf starts the simulated server with models, and returns a proxy to it.
func proxyOf(t *testing.T, models ...rowmill.Model) *httputil.ReverseProxy {
	t.Helper()
	server := must.Get(sim.New(sim.Config{Models: models, Profile: sim.InstantProfile()}))(t)
	must.Succeed(t, server.Start(t.Context(), "127.0.0.1:0"))
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	behind := must.Get(url.Parse(server.URL()))(t)
	return httputil.NewSingleHostReverseProxy(behind)
}

// startInvented runs a server that pretends to be vLLM and serves models that our
// catalog does not have.
func startInvented(t *testing.T) (address string) {
	t.Helper()
	proxy := proxyOf(t,
		rowmill.Model{ID: "own", Kind: rowmill.KindGeneration, ContextLength: 256},
		rowmill.Model{ID: "own-thoughts", Kind: rowmill.KindReasoning, ContextLength: 4096},
		rowmill.Model{ID: "own-vectors", Kind: rowmill.KindEmbedding, ContextLength: 64, Dimension: 48},
	)
	proxy.ModifyResponse = func(r *nethttp.Response) error {
		r.Header.Del("Server")
		if r.Request.URL.Path == "/v1/models" {
			text := `{"object":"list","data":[` +
				`{"id":"own","object":"model","created":1,"owned_by":"vllm","root":"acme/Own-7B","parent":null,"max_model_len":256},` +
				`{"id":"own-thoughts","object":"model","created":1,"owned_by":"vllm","root":"/models/thoughts","parent":null,"max_model_len":4096},` +
				`{"id":"own-vectors","object":"model","created":1,"owned_by":"vllm","root":"acme/Vectors","parent":null,"max_model_len":64}]}`
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
			r.Header.Set("Content-Length", fmt.Sprint(len(text)))
		}
		return nil
	}
	front := httptest.NewServer(proxy)
	t.Cleanup(front.Close)
	return front.URL
}

// offered waits until a service knows the kinds of its servers' models.
func offered(t *testing.T, api *client.Client, ids ...string) map[string]client.Model {
	t.Helper()
	found := map[string]client.Model{}
	wait.Until(t, func() error {
		all, answer, err := api.ListModels(t.Context())
		if err != nil {
			return err
		}
		for _, m := range all.Data {
			found[m.ID] = m
		}
		for _, id := range ids {
			if found[id].Kind == "" {
				return fmt.Errorf("it is not known what %s does: %s", id, answer.Raw)
			}
		}
		return nil
	})
	return found
}

// results returns the outputs of a job.
func results(t *testing.T, api *client.Client, id string) []json.RawMessage {
	t.Helper()
	var text strings.Builder
	must.Get(api.Stream(t.Context(), id, client.Results{Format: "json"}, &text))(t)
	var all struct {
		Outputs []json.RawMessage `json:"outputs"`
	}
	must.Succeed(t, json.Unmarshal([]byte(text.String()), &all))
	return all.Outputs
}

// A model that only its server knows runs with the server's kind and token counts. Rows
// that are too long are cut, and there is no cost.
func TestServedModelsRunWithoutACatalogEntry(t *testing.T) {
	t.Parallel()
	m := prepare(t, t.TempDir(), func(s *settings.Settings) {
		s.Engines = []settings.Engine{{URL: startInvented(t), Name: "vllm"}}
		s.Simulator.Enabled = settings.Never
	})
	api := m.run(t)
	models := offered(t, api, "own", "own-thoughts", "own-vectors")
	if m := models["own-vectors"]; m.Kind != rowmill.KindEmbedding || m.Dimension != 48 || m.ContextLength != 64 || m.InputPrice != nil {
		t.Errorf("%+v", m)
	}
	long := strings.Repeat("word ", 400)
	for _, test := range []struct {
		model  string
		cut    int64
		answer func(json.RawMessage) bool
	}{
		{"own", 1, func(out json.RawMessage) bool { return out[0] == '"' }},
		{"acme/Own-7B", 1, func(out json.RawMessage) bool { return out[0] == '"' }},
		{"own-thoughts", 0, func(out json.RawMessage) bool { return strings.Contains(string(out), "reasoning_content") }},
		{"own-vectors", 1, func(out json.RawMessage) bool {
			var vector []float32
			return json.Unmarshal(out, &vector) == nil && len(vector) == 48
		}},
	} {
		rows := slices.Repeat([]string{"a row"}, 20)
		rows[7] = long
		sampling := map[string]any{"max_tokens": 20}
		if test.model == "own-vectors" {
			sampling = nil
		}
		made, err := api.Submit(t.Context(), client.Submission{Rows: client.RowsOf(rows...), Model: test.model, Sampling: sampling})
		if err != nil {
			t.Fatalf("%s: %v", test.model, err)
		}
		job := await(t, api, made.JobID, func(j client.Job) bool { return j.Status.IsTerminal() })
		switch {
		case job.Status != rowmill.StatusSucceeded || job.Model != test.model || job.FailedRows != 0:
			t.Errorf("%s: %s", test.model, job.Raw)
			continue
		case job.JobCost != nil:
			t.Errorf("%s has no price, and the job cost %v", test.model, *job.JobCost)
		case job.InputTokens == nil || *job.InputTokens < 20*2 || job.TruncatedRows != test.cut:
			t.Errorf("%s: tokens or cut rows: %s", test.model, job.Raw)
		}
		outputs := results(t, api, made.JobID)
		for i, out := range outputs {
			if !test.answer(out) {
				t.Errorf("%s, row %d: %s", test.model, i, out)
				break
			}
		}
		if len(outputs) != 20 {
			t.Errorf("%s: %d outputs", test.model, len(outputs))
		}
	}
	_, err := api.Submit(t.Context(), client.Submission{Rows: client.RowsOf("x"), Model: "Own-7B"})
	if err == nil || !strings.Contains(err.Error(), `did you mean "acme/Own-7B"`) {
		t.Errorf("without the organisation: %v", err)
	}
}

// The catalog adds to served models: an alias, a price, a kind. A cost quota refuses a
// model without a price.
func TestCatalogRefinesServedModels(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "models.yaml")
	must.Succeed(t, os.WriteFile(file, []byte(`
extends: default
aliases: {gpt-4o-mini: own}
models:
  - {id: priced, engine_names: [own-thoughts], input_price: 1000, output_price: 0, sampling: {max_tokens: 9}}
`), 0o600))
	m := prepare(t, t.TempDir(), func(s *settings.Settings) {
		s.Engines = []settings.Engine{{URL: startInvented(t), Name: "vllm"}}
		s.Simulator.Enabled, s.Catalog = settings.Never, file
	})
	api := m.run(t)
	models := offered(t, api, "own", "priced")
	if m := models["priced"]; m.Kind != rowmill.KindReasoning || m.ContextLength != 4096 || m.InputPrice == nil {
		t.Errorf("%+v", m)
	}
	if got := models["own"].Aliases; len(got) != 1 || got[0] != "gpt-4o-mini" {
		t.Errorf("aliases %v", got)
	}
	run := func(model string) client.Job {
		t.Helper()
		made, err := api.Submit(t.Context(), client.Submission{Rows: client.RowsOf("x"), Model: model})
		if err != nil {
			t.Fatalf("%s: %v", model, err)
		}
		return await(t, api, made.JobID, func(j client.Job) bool { return j.Status.IsTerminal() })
	}
	if job := run("gpt-4o-mini"); job.Status != rowmill.StatusSucceeded || job.Model != "own" || !strings.Contains(strings.Join(job.Warnings, "\n"), "gpt-4o-mini is an alias of own") {
		t.Errorf("by an alias: %s", job.Raw)
	}
	if job := run("own-thoughts"); job.Status != rowmill.StatusSucceeded || job.JobCost == nil || *job.JobCost != float64(*job.InputTokens)/1000 || job.Sampling["max_tokens"] != 9.0 {
		t.Errorf("by its engine name: %s", job.Raw)
	}
	limit := 1e6
	_, answer, err := api.ShowQuotas(t.Context(), "")
	if err == nil {
		_, _, err = api.PutQuotas(t.Context(), client.PutQuotasParams{IfMatch: answer.ETag}, client.OwnQuotas{CostQuotaUSD: &limit})
	}
	must.Succeed(t, err)
	if job := run("priced"); job.Status != rowmill.StatusSucceeded {
		t.Errorf("with a price: %s", job.Raw)
	}
	job := run("own")
	if job.Status != rowmill.StatusFailed || job.FailureReason.Code != rowmill.CodeCostQuota || !strings.Contains(job.FailureReason.Message, "own has no price") {
		t.Errorf("without a price: %s", job.Raw)
	}
}
