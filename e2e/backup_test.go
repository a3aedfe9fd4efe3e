package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowmill/rowmill/blob/blobtest"
	"github.com/rowmill/rowmill/blob/s3"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/internal/s3test"
	"github.com/rowmill/rowmill/internal/seed"
	"github.com/rowmill/rowmill/internal/wait"
)

// rowmill runs a command of the program against a node and returns its exit code and
// output.
func (n *node) rowmill(t *testing.T, args ...string) (code int, said string) {
	t.Helper()
	command := n.client(t, args...)
	out, err := command.CombinedOutput()
	if command.ProcessState == nil {
		t.Fatal(err)
	}
	return command.ProcessState.ExitCode(), string(out)
}

func (n *node) client(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(t.Context(), binary, args...)
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "ROWMILL_API_KEY=" + apiKey, "ROWMILL_SERVER=" + n.base}
	return command
}

// want runs a command and fails the test if the command fails.
func (n *node) want(t *testing.T, args ...string) {
	t.Helper()
	if code, said := n.rowmill(t, args...); code != 0 {
		t.Fatalf("rowmill %s ends with code %d: %s", strings.Join(args, " "), code, said)
	}
}

// loaded is a job as the clients of a load know it.
type loaded struct {
	rows     int
	sum      [sha256.Size]byte // of the Parquet file; zero before the job ends
	over     bool
	deleting bool // a client asked to delete its data
}

// A load runs clients that submit jobs, fetch results, and delete data.
type load struct {
	node *node
	mu   sync.Mutex
	jobs map[string]loaded
}

func (l *load) set(id string, change func(*loaded)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	job := l.jobs[id]
	change(&job)
	l.jobs[id] = job
}

func (l *load) known() map[string]loaded {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.jobs)
}

// goesOn waits for 20 more jobs.
func (l *load) goesOn(t *testing.T) {
	t.Helper()
	from := len(l.known())
	wait.For(t, "20 more jobs", func() bool { return len(l.known()) >= from+20 })
}

// parquet fetches a job's file.
func (n *node) parquet(id string) (status int, text []byte, err error) {
	return n.send(http.MethodGet, "/v1/jobs/"+id+"/results?format=parquet&include_inputs=true", nil)
}

// client runs one job after another until stop closes.
func (l *load) client(t *testing.T, random *rand.Rand, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		rows := 1 + random.IntN(4000)
		texts := rowTexts(rows)
		var id string
		status, answer, err := l.node.send(http.MethodPost, "/v1/batch-inference", submission{Inputs: texts, Model: model, Priority: 1})
		if err != nil || status != http.StatusOK {
			t.Errorf("submit: %d %.300s: %v", status, answer, err)
			return
		}
		_, rest, _ := strings.Cut(string(answer), `"results":"`)
		id, _, _ = strings.Cut(rest, `"`)
		l.set(id, func(j *loaded) { j.rows = rows })
		var text []byte
		for status = 0; status != http.StatusOK; time.Sleep(20 * time.Millisecond) {
			if status, text, err = l.node.parquet(id); err != nil || status >= 500 {
				t.Errorf("results of %s: %d %.300s: %v", id, status, text, err)
				return
			}
		}
		l.set(id, func(j *loaded) { j.sum, j.over = sha256.Sum256(text), true })
		if random.IntN(3) == 0 {
			l.set(id, func(j *loaded) { j.deleting = true })
			if status, text, err = l.node.send(http.MethodDelete, "/v1/jobs/"+id+"/data", nil); err != nil || status != http.StatusOK {
				t.Errorf("remove the data of %s: %d %.300s: %v", id, status, text, err)
				return
			}
		}
	}
}

// TestBackupsUnderLoad makes one backup after another while clients submit jobs, jobs
// run and end, and clients delete data. It restores each backup to another node. There,
// ended jobs have the same bytes, running jobs end with every row in its place, and
// records and objects agree before and after the node starts.
func TestBackupsUnderLoad(t *testing.T) {
	soaks(t)
	t.Parallel()
	seed := seed.ForTest(t)
	w := newWitness(t, 4000, 3*time.Millisecond)
	n := newNode(t, w.url, killSettings).start(t)
	l, stop := loading(t, n, seed)
	defer stop()
	random := rand.New(rand.NewPCG(seed, 100))
	var all compared
	for round := range size(4, 8, 40) {
		time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond) // the pause is random; it does not wait for an event
		archive := filepath.Join(t.TempDir(), fmt.Sprintf("%d.tar", round))
		before := l.known()
		n.want(t, "backup", archive)
		after := l.known()

		other := newNode(t, w.url, killSettings)
		other.want(t, "restore", archive, "--data", other.data)
		other.want(t, "storage", "check", "--data", other.data)
		other.start(t)
		all.add(t, other, before, after)
		other.drains(t)
		other.want(t, "storage", "check", "--data", other.data)
	}
	all.judge(t)
	if lines := n.linesFrom(t, "ERROR"); lines != 0 {
		t.Errorf("the node has logged %d errors:\n%s", lines, n.lastWords())
	}
}

// compared counts the jobs of restored nodes by state.
type compared struct {
	same int // ended, with the same bytes
	ran  int // continued to their end
	gone int // ended, and a client had deleted the data

	// twice says that objects were copied after records. If a client deletes data
	// between the two copies, the data is lost, also for a job that still runs in the
	// copied records.
	twice bool
}

// add compares the jobs of a restored node with the jobs that clients knew before and
// after the backup.
func (c *compared) add(t *testing.T, other *node, before, after map[string]loaded) {
	t.Helper()
	for id, job := range before {
		if !job.over {
			end := other.finish(t, id)
			if c.twice && after[id].deleting {
				continue
			}
			if end.Status != "succeeded" {
				t.Fatalf("job %s, which ran, is %s: %+v", id, end.Status, end.FailureReason)
			}
			if !after[id].deleting {
				other.checkRows(t, id, job.rows)
			}
			c.ran++
			continue
		}
		status, text, err := other.parquet(id)
		switch {
		case err != nil:
			t.Fatal(err)
		case status == http.StatusOK && sha256.Sum256(text) == job.sum:
			c.same++ // some deletions were requested but had not begun
		case status == http.StatusGone && after[id].deleting:
			c.gone++
		default:
			t.Errorf("job %s of the backup answers %d with %d bytes (%.200q); before %+v, after %+v", id, status, len(text), text, job, after[id])
		}
	}
}

func (c *compared) judge(t *testing.T) {
	t.Helper()
	t.Logf("%d results were the same, %d jobs went on, of %d the data was gone", c.same, c.ran, c.gone)
	if c.same == 0 || c.ran == 0 {
		t.Error("too little was tried")
	}
}

// TestCopiesOfRedisAndS3 copies Redis and then the bucket, as docs/backup.md says,
// while jobs run and clients delete data, and starts a node on the copies.
func TestCopiesOfRedisAndS3(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("redis-cli"); err != nil {
		unable(t, "there is no redis-cli: %v", err)
	}
	seed := seed.ForTest(t)
	w := newWitness(t, 4000, 3*time.Millisecond)
	records, objects := redistest.Start(t), s3test.Start(t)
	n := newNode(t, w.url, strings.Replace(shared(records, objects), "jobs: {", "jobs: {settle_time: 10m, ", 1)) // longer than copying the bucket takes
	n.start(t)
	l, stop := loading(t, n, seed)
	defer stop()
	all := compared{twice: true}
	for range size(1, 2, 10) {
		l.goesOn(t)
		folder := t.TempDir()
		before := l.known()
		run := func(name string, args ...string) {
			if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", name, err, out)
			}
		}
		must.Succeed(t, os.Mkdir(filepath.Join(folder, "redis"), 0o700))
		run("redis-cli", "-p", fmt.Sprint(records.Port()), "--rdb", filepath.Join(folder, "redis", "dump.rdb"))
		target := must.Get(s3test.Run(t.Context(), filepath.Join(folder, "s3"), 0))(t)
		t.Cleanup(target.Stop)
		must.Succeed(t, blobtest.Copy(t.Context(), open(t, objects), open(t, target)))
		after := l.known()

		other := restored(t, w.url, filepath.Join(folder, "redis"), target, after, "appendonly no")
		all.add(t, other, before, after)
		other.drains(t)
	}
	all.judge(t)
}

// TestVersionsAndAnAOF uses a bucket with versions. It copies the append-only files of
// Redis, as docs/backup.md says, while jobs run and clients delete data. Later it loses
// Redis and the node, and starts both on the copy and on the bucket's versions of that
// time.
func TestVersionsAndAnAOF(t *testing.T) {
	t.Parallel()
	seed := seed.ForTest(t)
	w := newWitness(t, 4000, 3*time.Millisecond)
	records := redistest.Start(t)
	objects, err := s3test.RunWith(t.Context(), s3test.Options{Dir: t.TempDir(), Versions: true})
	if errors.Is(err, s3test.ErrNotInstalled) {
		unable(t, "%v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(objects.Stop)
	n := newNode(t, w.url, shared(records, objects)).start(t)
	l, stop := loading(t, n, seed)
	defer stop()
	tell := func(command ...string) string {
		t.Helper()
		said, err := records.Command(command...)
		if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		return said
	}
	l.goesOn(t)
	before, at := l.known(), time.Now()
	tell("CONFIG", "SET", "auto-aof-rewrite-percentage", "0")
	wait.For(t, "Redis has rewritten its append-only file", func() bool {
		return strings.Contains(tell("INFO", "persistence"), "aof_rewrite_in_progress:0")
	})
	folder := t.TempDir()
	must.Succeed(t, os.CopyFS(filepath.Join(folder, "appendonlydir"), os.DirFS(filepath.Join(records.Dir(), "appendonlydir"))))
	after := l.known()
	tell("CONFIG", "SET", "auto-aof-rewrite-percentage", "100")
	l.goesOn(t) // the node merges and removes many objects that the copy names
	stop()
	n.kill()
	must.Succeed(t, records.Stop())

	found, err := objects.Undelete(t.Context(), at)
	if err != nil || found == 0 {
		t.Fatalf("%d objects were there again: %v", found, err)
	}
	other := restored(t, w.url, folder, objects, nil)
	var all compared
	all.add(t, other, before, after)
	all.judge(t)
	t.Logf("%d objects were there again", found)
	other.drains(t)
}

// open opens the bucket of a server.
func open(t *testing.T, server *s3test.Server) *s3.Bucket {
	t.Helper()
	bucket := must.Get(s3.Open(t.Context(), s3.Config{
		Endpoint: server.Endpoint, Region: s3test.Region, Bucket: server.Bucket, AccessKey: server.AccessKey, SecretKey: server.SecretKey,
	}))(t)
	t.Cleanup(func() { _ = bucket.Close() })
	return bucket
}

// restored starts Redis on a copied folder, with more settings, and checks that records
// and objects agree. Then it starts a node on Redis and a bucket. Jobs that came after
// the copy have no record. All objects that the records name exist, except results that
// clients have deleted in a bucket without versions.
func restored(t *testing.T, engine, folder string, objects *s3test.Server, removed map[string]loaded, settings ...string) *node {
	t.Helper()
	redis := must.Get(redistest.Run(t.Context(), folder, 0, "always", settings...))(t)
	t.Cleanup(func() {
		if err := redis.Stop(); err != nil {
			t.Error(err)
		}
	})
	n := newNode(t, engine, shared(redis, objects))
	_, report := n.rowmill(t, "storage", "check", "-o", "json", "--set", "store.url="+redis.URL(), "--set", "objects.url=s3://"+objects.Bucket,
		"--set", "objects.endpoint="+objects.Endpoint, "--set", "objects.access_key="+objects.AccessKey, "--set", "objects.secret_key="+objects.SecretKey)
	var found struct {
		Missing []struct {
			JobID string `json:"job_id"`
		} `json:"missing"`
	}
	if err := json.NewDecoder(strings.NewReader(report)).Decode(&found); err != nil { // a remark follows the JSON
		t.Fatalf("the check of storage says no JSON: %v: %s", err, report)
	}
	for _, missing := range found.Missing {
		if !removed[missing.JobID].deleting {
			t.Errorf("records and objects do not agree: %s", report)
			break
		}
	}
	n.start(t)
	return n
}

// shared returns the settings of a node on Redis and S3.
func shared(records *redistest.Server, objects *s3test.Server) string {
	return fmt.Sprintf("%s\nstore: {url: %s}\nobjects: {url: 's3://%s', endpoint: %s, region: %s, access_key: %s, secret_key: %s}",
		killSettings, records.URL(), objects.Bucket, objects.Endpoint, s3test.Region, objects.AccessKey, objects.SecretKey)
}

// held returns the unfinished files in the node's folder.
func (n *node) held(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(n.data, "tmp", "*", "*"))
	if err == nil {
		var inside []string
		inside, err = filepath.Glob(filepath.Join(n.data, "tmp", "*", "*", "*"))
		found = append(found, inside...)
	}
	must.Succeed(t, err)
	return found
}

// A node that is killed during a backup leaves no file that looks like a backup, and no
// held objects after its restart.
func TestKilledWhileBackedUp(t *testing.T) {
	t.Parallel()
	const rows = 3000
	w := newWitness(t, rows, 0)
	n := newNode(t, w.url, killSettings).start(t)
	texts := rowTexts(rows)
	n.finish(t, n.submit(t, submission{Inputs: texts, Model: model, Priority: 1}))
	// More than the buffers between node and client hold.
	err := os.MkdirAll(filepath.Join(n.data, "objects", "files"), 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(n.data, "objects", "files", "ballast"), make([]byte, 32<<20), 0o600)
	}
	must.Succeed(t, err)
	archive := filepath.Join(t.TempDir(), "rowmill.tar")
	command := n.client(t, "backup", "--rate", "1MiB", archive)
	var said bytes.Buffer
	command.Stderr = &said
	must.Succeed(t, command.Start())
	holds := func(name string) bool { return filepath.Base(name) == "objects" } // ignores the short-lived files of jobs
	wait.For(t, "the backup begins", func() bool { return slices.ContainsFunc(n.held(t), holds) })
	if status, answer, err := n.send(http.MethodPost, "/v1/backup", nil); err != nil || status != http.StatusConflict || !strings.Contains(string(answer), "backup_under_way") {
		t.Errorf("a second backup answers %d %.300s: %v", status, answer, err)
	}
	n.kill()
	if err := command.Wait(); err == nil || command.ProcessState.ExitCode() == 0 {
		t.Errorf("the backup of a killed node ends well: %s", said.String())
	}
	if left, err := filepath.Glob(archive + "*"); err != nil || len(left) > 0 {
		t.Errorf("it has left %v: %v", left, err)
	}
	n.start(t)
	if held := n.held(t); len(held) != 1 { // only the lock
		t.Errorf("the node holds %v", held)
	}
	n.want(t, "backup", archive)
	if info, err := os.Stat(archive); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup: %v, %v", info, err)
	}
	if code, said := n.rowmill(t, "backup", archive); code != 2 || !strings.Contains(said, "--force") {
		t.Errorf("over another: code %d, %s", code, said)
	}
	n.want(t, "restore", "--check", archive)
	if held := n.held(t); len(held) != 1 {
		t.Errorf("after a backup the node holds %v", held)
	}
}
