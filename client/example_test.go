package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill/client"
)

// Submit a job with two rows, wait for its end, and print its results.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(service)) // a fake node
	defer server.Close()

	mill, err := client.New(client.Config{Server: server.URL, Key: "secret"})
	if err != nil {
		panic(err)
	}
	defer mill.Close()
	ctx := context.Background()

	submitted, err := mill.Submit(ctx, client.Submission{
		Model: "llama-3.1-8b",
		Rows:  client.RowsOf("What is a mill?", "What is a row?"),
	})
	if err != nil {
		panic(err)
	}
	for {
		job, err := mill.Job(ctx, submitted.JobID)
		if err != nil {
			panic(err)
		}
		if job.Status.IsTerminal() {
			fmt.Println(submitted.JobID, job.Status)
			break
		}
		time.Sleep(time.Millisecond)
	}
	if _, err := mill.Stream(ctx, submitted.JobID, client.Results{Format: "json"}, os.Stdout); err != nil {
		panic(err)
	}
	// Output:
	// job-1 succeeded
	// {"outputs": ["a machine that grinds", "things in a line"]}
}

// service is a fake node whose job succeeds at the second poll.
func service(w http.ResponseWriter, r *http.Request) {
	var answer string
	switch {
	case r.Header.Get("Authorization") != "Key secret":
		w.WriteHeader(http.StatusUnauthorized)
	case r.URL.Path == "/v1/batch-inference":
		var submission struct{ Inputs []string }
		if err := json.NewDecoder(r.Body).Decode(&submission); err != nil || len(submission.Inputs) != 2 {
			w.WriteHeader(http.StatusBadRequest)
		}
		answer = `{"results": "job-1"}`
	case r.URL.Path == "/v1/jobs/job-1":
		status := "running"
		if polls.Add(1) > 1 {
			status = "succeeded"
		}
		answer = `{"job": {"job_id": "job-1", "status": "` + status + `"}}`
	case strings.HasSuffix(r.URL.Path, "/results"):
		answer = `{"outputs": ["a machine that grinds", "things in a line"]}`
	}
	_, _ = io.WriteString(w, answer)
}

var polls atomic.Int32
