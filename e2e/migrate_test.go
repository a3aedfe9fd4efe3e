package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/internal/s3test"
	"github.com/rowmill/rowmill/internal/seed"
	"github.com/rowmill/rowmill/internal/wait"
)

// loading runs clients on a node until stop is called.
func loading(t *testing.T, n *node, seed uint64) (l *load, stop func()) {
	t.Helper()
	l = &load{node: n, jobs: map[string]loaded{}}
	ended := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() { l.client(t, rand.New(rand.NewPCG(seed, uint64(i))), ended) })
	}
	stop = sync.OnceFunc(func() {
		close(ended)
		clients.Wait()
	})
	t.Cleanup(stop)
	return l, stop
}

// busy waits until more further jobs have ended, and some run.
func (l *load) busy(t *testing.T, more int) {
	t.Helper()
	count := func() (over, open int) {
		for _, job := range l.known() {
			if job.over {
				over++
			} else if job.rows > 0 {
				open++
			}
		}
		return over, open
	}
	from, _ := count()
	wait.For(t, "more jobs have ended, and some run", func() bool {
		over, open := count()
		return over >= from+more && open > 0
	})
}

// place writes the settings of Redis and S3 to a file.
func place(t *testing.T, records *redistest.Server, objects *s3test.Server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cluster.yaml")
	must.Succeed(t, os.WriteFile(file, []byte(shared(records, objects)), 0o600))
	return file
}

// asked returns a node's answer as text.
func (n *node) asked(t *testing.T, path string) string {
	t.Helper()
	status, text, err := n.send(http.MethodGet, path, nil)
	if err != nil || status != http.StatusOK {
		t.Fatalf("GET %s: %d %.300s: %v", path, status, text, err)
	}
	return string(text)
}

// belongings returns an account's data beside its jobs.
func belongings(t *testing.T, n *node) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, path := range []string{"/v1/functions/grade", "/v1/functions/grade/revisions", "/v1/settings", "/v1/webhooks"} {
		all[path] = n.asked(t, path)
	}
	return all
}

// TestMigratesThereAndBack moves a single node to Redis and S3 by a backup, while
// clients submit jobs, fetch results and delete data. Clients do the same on the new
// node. The test kills that node, and moves everything back to a directory. Ended jobs
// have the same bytes, running jobs end with every row in its place, and keys,
// Functions and the rest exist.
func TestMigratesThereAndBack(t *testing.T) {
	t.Parallel()
	seed := seed.ForTest(t)
	w := newWitness(t, 4000, 3*time.Millisecond)
	first := newNode(t, w.url, killSettings).start(t)
	var made struct {
		Secret string `json:"key"`
	}
	first.call(t, http.MethodPost, "/v1/keys", map[string]any{"name": "laptop"}, &made)
	newAuthor(t, first, apiKey).must(t, gradeYAML, "functions", "publish", "definition.yaml")
	before := belongings(t, first)

	l, stop := loading(t, first, seed)
	l.busy(t, 8)
	archive := filepath.Join(t.TempDir(), "rowmill.tar")
	earlier := l.known()
	first.want(t, "backup", archive)
	later := l.known()
	records, objects := redistest.Start(t), s3test.Start(t)
	cluster := place(t, records, objects)
	if code, said := first.rowmill(t, "migrate", "--from", first.data, "--to", cluster); code == 0 || !strings.Contains(said, "in use by another process") {
		t.Errorf("the directory of a node that runs: code %d, %s", code, said)
	}
	first.want(t, "migrate", "--from", archive, "--to", cluster)
	stop()
	first.kill()

	second := newNode(t, w.url, shared(records, objects))
	second.want(t, "storage", "check", "--config", cluster)
	second.start(t)
	same := func(n *node) {
		t.Helper()
		for path, text := range belongings(t, n) {
			if text != before[path] {
				t.Errorf("%s is\n%s\nand was\n%s", path, text, before[path])
			}
		}
		if status, _, err := n.sendAs(made.Secret, http.MethodGet, "/v1/me", nil); err != nil || status != http.StatusOK {
			t.Errorf("a key that was moved: %d, %v", status, err)
		}
	}
	same(second)
	var all compared
	all.add(t, second, earlier, later)

	m, stop := loading(t, second, seed+1)
	m.busy(t, 8)
	stop()
	texts := rowTexts(4000)
	running := second.submit(t, submission{Inputs: texts, Model: model, Priority: 1})
	second.until(t, running, "some rows are done", func(r record) bool { return r.RowsDone > 0 })
	earlier = m.known()
	usage := second.asked(t, "/v1/usage?group_by=model")
	second.kill()
	third := newNode(t, w.url, killSettings)
	// The session of the killed node lives for some seconds.
	code, said := third.rowmill(t, "migrate", "--from", cluster, "--to", third.data)
	if code == 0 || !strings.Contains(said, "nodes are running") {
		t.Errorf("from under a node: code %d, %s", code, said)
	}
	wait.For(t, "no node is running", func() bool {
		if code != 0 && !strings.Contains(said, "nodes are running") {
			t.Fatalf("back: code %d, %s", code, said)
		}
		code, said = third.rowmill(t, "migrate", "--from", cluster, "--to", third.data)
		return code == 0
	})
	third.want(t, "storage", "check", "--data", third.data)
	third.start(t)
	same(third)
	if got := costs(t, third.asked(t, "/v1/usage?group_by=model")); got < costs(t, usage) {
		t.Errorf("an account that had used %v USD has used %v", costs(t, usage), got)
	}
	third.succeeds(t, running)
	third.checkRows(t, running, len(texts))
	all.add(t, third, earlier, m.known())
	all.judge(t)
}

// costs returns the total cost of a usage answer.
func costs(t *testing.T, text string) (usd float64) {
	t.Helper()
	var usage struct {
		Total struct {
			Cost float64 `json:"cost_usd"`
		} `json:"total"`
	}
	if err := json.Unmarshal([]byte(text), &usage); err != nil || usage.Total.Cost == 0 {
		t.Fatalf("usage %s: %v", text, err)
	}
	return usage.Total.Cost
}

// A killed migration leaves a directory that no node starts on. The next migration
// completes it.
func TestKilledMigration(t *testing.T) {
	t.Parallel()
	const rows = 500
	w := newWitness(t, rows, 0)
	from := newNode(t, w.url, killSettings).start(t)
	texts := rowTexts(rows)
	id := from.submit(t, submission{Inputs: texts, Model: model, Priority: 1})
	from.finish(t, id)
	from.drains(t)
	// At least a second of work.
	ballast := filepath.Join(from.data, "objects", "files")
	must.Succeed(t, os.MkdirAll(ballast, 0o700))
	for i := range 2000 {
		must.Succeed(t, os.WriteFile(filepath.Join(ballast, fmt.Sprintf("ballast-%d", i)), make([]byte, 64<<10), 0o600))
	}
	to := newNode(t, w.url, killSettings)
	command := exec.CommandContext(t.Context(), binary, "migrate", "--from", from.data, "--to", to.data)
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	must.Succeed(t, command.Start())
	wait.For(t, "the migration begins", func() bool {
		return len(must.Get(filepath.Glob(filepath.Join(to.data, "objects", "files", "ballast-*")))(t)) > 0
	})
	must.Succeed(t, command.Process.Kill())
	if err := command.Wait(); err == nil {
		t.Fatal("the migration was over before it was killed")
	}
	if code, said := to.rowmill(t, "serve", "--data", to.data, "--listen", "127.0.0.1:0", "--simulate"); code == 0 || !strings.Contains(said, "rowmill migrate") {
		t.Errorf("a node starts on half of it: code %d, %s", code, said)
	}
	if code, said := to.rowmill(t, "migrate", "--from", from.data, "--to", to.data); code == 0 || !strings.Contains(said, "--force") {
		t.Errorf("without --force: code %d, %s", code, said)
	}
	to.want(t, "migrate", "--from", from.data, "--to", to.data, "--force")
	if code, said := to.rowmill(t, "migrate", "--from", from.data, "--to", to.data, "--force"); code == 0 || !strings.Contains(said, "not empty") {
		t.Errorf("over complete data: code %d, %s", code, said)
	}
	to.start(t)
	to.checkRows(t, id, rows)
}
