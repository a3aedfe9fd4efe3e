package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

// TestWebhooks kills a node while jobs end, with records in Redis. The other nodes must send the
// events of all jobs, each with one id.
func TestWebhooks(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	var mu sync.Mutex
	ids := map[string]map[string]bool{} // ids of events, by job
	events := 0
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var event struct {
			Data struct {
				Job string `json:"job_id"`
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if ids[event.Data.Job] == nil {
			ids[event.Data.Job] = map[string]bool{}
		}
		ids[event.Data.Job][r.Header.Get("Webhook-Id")] = true
		events++
	}))
	t.Cleanup(receiver.Close)
	c := startHere(t, Config{Roles: []string{"both", "both", "both"}})
	must.Succeed(t, c.insist(t.Context(), http.MethodPost, "/v1/webhooks", map[string]any{"url": receiver.URL}, nil))
	const jobs = 60
	begun := time.Now()
	for i := range jobs {
		if i == jobs/2 {
			c.Nodes[0].kill()
		}
		must.Succeed(t, await(t.Context(), "a job", patience, func(ctx context.Context) error {
			_, err := c.submit(ctx, fmt.Sprint(i), []string{"a"})
			return err
		}))
	}
	must.Succeed(t, await(t.Context(), "all events", patience, func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if len(ids) < jobs {
			return fmt.Errorf("there are events of %d jobs", len(ids))
		}
		return nil
	}))
	mu.Lock()
	defer mu.Unlock()
	for job, of := range ids {
		if len(of) != 1 {
			t.Errorf("job %s has the events %v", job, of)
		}
	}
	t.Logf("%d events of %d jobs within %v", events, jobs, time.Since(begun).Round(time.Millisecond))
}
