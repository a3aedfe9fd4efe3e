package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
)

// Two servers share one GPU. A server runs while rows of its model wait. The other server has
// ended or sleeps then.
func TestServersTakeTurnsOnAGPU(t *testing.T) {
	t.Parallel()
	for _, sleep := range []bool{false, true} {
		t.Run(fmt.Sprint("sleep ", sleep), func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			models := []string{"qwen-3-14b", "llama-3.1-8b"}
			m := prepare(t, data, func(s *settings.Settings) {
				s.Simulator.Enabled, s.Placement.Hold = settings.Never, 0
				s.Jobs.ProbeInterval /= 50
				for i, model := range models {
					server := simulatedServer(t, fmt.Sprint("s", i), filepath.Join(data, fmt.Sprint("environ-", i)), 1)
					server.Run = fmt.Sprintf("echo >> '%s'; %s --model %s", filepath.Join(data, "starts-"+model), server.Run, model)
					server.Models, server.Sleep = map[string]string{model: ""}, sleep
					s.Servers = append(s.Servers, server)
				}
			})
			m.Engines.GPUs = machine{{Index: 3}}
			api := m.run(t)
			for range 2 {
				for i, model := range models {
					made := must.Get(api.Submit(t.Context(), client.Submission{Rows: client.RowsOf("a", "b"), Model: model, Sampling: map[string]any{"max_tokens": 5}}))(t)
					if job := await(t, api, made.JobID, func(j client.Job) bool { return j.Status.IsTerminal() }); job.Status != "succeeded" {
						t.Fatalf("the job of %s ended as %s", model, job.Status)
					}
					if environ := must.Get(os.ReadFile(filepath.Join(data, fmt.Sprint("environ-", i))))(t); !strings.Contains(string(environ), "CUDA_VISIBLE_DEVICES=3\n") {
						t.Error("the server does not know its GPU")
					}
				}
			}
			for _, model := range models {
				want := 2 // turns
				if sleep {
					want = 1
				}
				if starts := len(must.Get(os.ReadFile(filepath.Join(data, "starts-"+model)))(t)); starts != want {
					t.Errorf("the server of %s was started %d times, want %d", model, starts, want)
				}
			}
		})
	}
}

// A server loads an adapter when rows need it, and again after the server was stopped.
func TestAdaptersAreLoadedForTheirRows(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	m := prepare(t, data, func(s *settings.Settings) {
		s.Simulator.Enabled, s.Placement.Hold = settings.Never, 0
		s.Jobs.ProbeInterval /= 50
		for i, model := range []string{"qwen-3-14b", "llama-3.1-8b"} {
			server := simulatedServer(t, fmt.Sprint("s", i), filepath.Join(data, fmt.Sprint("environ-", i)), 1)
			server.Run, server.Models = server.Run+" --model "+model, map[string]string{model: ""}
			s.Servers = append(s.Servers, server)
		}
		s.Servers[0].Adapters = map[string]string{"sql": "/adapters/sql"}
	})
	m.Engines.GPUs = machine{{Index: 3}}
	api := m.run(t)
	for _, model := range []string{"sql", "qwen-3-14b", "llama-3.1-8b", "sql"} {
		var made client.Submitted
		wait.Until(t, func() (err error) { // the first time the node does not know yet which models it can start
			made, err = api.Submit(t.Context(), client.Submission{Rows: client.RowsOf("a", "b"), Model: model, Sampling: map[string]any{"max_tokens": 5}})
			return err
		})
		if job := await(t, api, made.JobID, func(j client.Job) bool { return j.Status.IsTerminal() }); job.Status != "succeeded" {
			t.Fatalf("the job of %s ended as %s", model, job.Status)
		}
	}
}
