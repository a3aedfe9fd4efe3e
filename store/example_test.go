package store_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/bolt"
)

// A job has one owner at a time: the store refuses writes of a former owner.
func Example() {
	folder, err := os.MkdirTemp("", "rowmill-*")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	ctx := context.Background()
	var records store.Store
	records, err = bolt.Open(ctx, bolt.Config{Path: filepath.Join(folder, "rowmill.db")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer records.Close()

	_, _, err = records.Create(ctx, store.Record{
		Job: rowmill.Job{
			ID: "job-1", Status: rowmill.StatusPending, RunType: rowmill.RunFull, Model: "m", JobTimes: rowmill.JobTimes{Created: time.Now()},
		},
		Spec: rowmill.Spec{
			Account: "default", Inline: []string{"a row"},
			Model: rowmill.Model{ID: "m", Kind: rowmill.KindGeneration, ContextLength: 4096},
		},
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}

	first, second := claim(records, "node-1"), claim(records, "node-2")
	for _, fence := range []store.Fence{first, second} {
		rec, err := records.Update(ctx, fence, func(rec *store.Record) error {
			return rec.Job.Become(rowmill.StatusStarting, time.Now())
		})
		fmt.Println(fence.Epoch > first.Epoch, rec.Job.Status, errors.Is(err, rowmill.ErrLeaseLost))
	}
	// Output:
	// false  true
	// true starting false
}

// claim opens a session for node and claims job-1 with it. The former owner must be
// gone.
func claim(records store.Store, node string) store.Fence {
	ctx := context.Background()
	session, err := records.OpenSession(ctx, node, time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	rec, err := records.Claim(ctx, "job-1", session, store.Claim{})
	if err != nil {
		log.Fatal(err)
	}
	if node == "node-1" {
		if err := records.CloseSession(ctx, session); err != nil {
			log.Fatal(err)
		}
	}
	return store.Fence{JobID: "job-1", Session: session, Epoch: rec.Epoch}
}
