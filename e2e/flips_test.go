package e2e

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/port"
	"github.com/rowmill/rowmill/internal/seed"
	"github.com/rowmill/rowmill/internal/wait"
)

// TestFlippedBits flips one bit of the data directory of a stopped node, again and again:
// of the records, the results and the identity. The node then starts, or refuses the file
// with an error. Each job ends, and no result has a wrong row.
func TestFlippedBits(t *testing.T) {
	t.Parallel()
	const rows = 8
	n := newNode(t, newWitness(t, rows, 0).url, "").start(t)
	var jobs []string
	for range 2 {
		id := n.submit(t, submission{Inputs: rowTexts(rows), Model: model})
		n.succeeds(t, id)
		jobs = append(jobs, id)
	}
	n.terminate(t)
	served := n.engines
	n.engines = []string{"http://" + port.ReserveForTest(t).Address} // the rows of these jobs wait in the records
	n.start(t)
	for range 3 {
		jobs = append(jobs, n.submit(t, submission{Inputs: rowTexts(rows), Model: model}))
	}
	n.kill()
	n.engines = served
	whole := filepath.Join(t.TempDir(), "whole")
	must.Succeed(t, os.Rename(n.data, whole))

	var files []string
	must.Succeed(t, filepath.WalkDir(whole, func(path string, d fs.DirEntry, err error) error {
		if info, statErr := d.Info(); err == nil && statErr == nil && info.Mode().IsRegular() && info.Size() > 0 {
			files = append(files, strings.TrimPrefix(path, whole))
		}
		return err
	}))
	random := rand.New(rand.NewPCG(seed.ForTest(t), 0))
	for range size(4, 12, 200) {
		must.Succeed(t, os.RemoveAll(n.data))
		must.Succeed(t, os.CopyFS(n.data, os.DirFS(whole)))
		flip(t, random, filepath.Join(n.data, files[random.IntN(len(files))]))
		must.Succeed(t, os.Remove(filepath.Join(filepath.Dir(n.data), "log")))
		n.launch(t)
		wait.Until(t, func() error {
			if n.gone() {
				return nil
			}
			return get(t, n.base+"/readyz")
		})
		if n.gone() {
			said := n.lastWords()
			n.kill()
			if !strings.Contains(said, "storage salvage") {
				if !strings.Contains(said, "damaged") && !strings.Contains(said, "deployment") {
					t.Errorf("the node did not start, without a reason:\n%s", said)
				}
				continue
			}
			n.want(t, "storage", "salvage", "--data", n.data)
			n.start(t)
		}
		for _, id := range jobs {
			n.readsNothingWrong(t, id)
		}
		n.kill()
	}
}

// flip flips one bit of a file.
func flip(t *testing.T, random *rand.Rand, path string) {
	t.Helper()
	content := must.Get(os.ReadFile(path))(t)
	const page = 4096
	at := random.IntN(len(content))
	for strings.Trim(string(content[at/page*page:min(len(content), at/page*page+page)]), "\x00") == "" {
		at = random.IntN(len(content)) // the page is not used
	}
	bit := random.IntN(8)
	content[at] ^= 1 << bit
	must.Succeed(t, os.WriteFile(path, content, 0o600))
	t.Logf("bit %d of byte %d of %s", bit, at, filepath.Base(path))
}

// readsNothingWrong waits until a job has ended, unless its record cannot be read, and
// checks its rows, unless its results cannot be read.
func (n *node) readsNothingWrong(t *testing.T, id string) {
	t.Helper()
	var answer struct {
		Job record `json:"job"`
	}
	wait.Until(t, func() error {
		status, data, err := n.send(http.MethodGet, "/v1/jobs/"+id, nil)
		if err != nil || status != http.StatusOK {
			return err
		}
		must.Succeed(t, json.Unmarshal(data, &answer))
		if !answer.Job.over() {
			return fmt.Errorf("job %s is %s", id, answer.Job.Status)
		}
		return nil
	})
	status, data, err := n.send(http.MethodGet, "/v1/jobs/"+id+"/results?include_inputs=true", nil)
	must.Succeed(t, err)
	if status != http.StatusOK {
		return
	}
	var result struct {
		Outputs []*string `json:"outputs"`
		Inputs  []string  `json:"inputs"`
	}
	must.Succeed(t, json.Unmarshal(data, &result))
	for i, input := range result.Inputs {
		if input != rowText(i) || result.Outputs[i] == nil || *result.Outputs[i] != answerText(i) {
			t.Errorf("job %s: row %d of input %q is %q", id, i, input, show(result.Outputs[i]))
		}
	}
}
