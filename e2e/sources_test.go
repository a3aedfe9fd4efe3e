package e2e

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/s3test"
)

// TestFilesOfASource runs the rows of many files in S3 as one job, and kills the node while they run. The
// job has all rows of the listed files, in order, and no file of the node has a credential.
func TestFilesOfASource(t *testing.T) {
	t.Parallel()
	objects := s3test.Start(t)
	lake := open(t, objects)
	put := func(key string, rows ...string) {
		t.Helper()
		must.Get(blob.Write(t.Context(), lake, key, "text/csv", func(w io.Writer) error {
			table := csv.NewWriter(w)
			_ = table.Write([]string{"text"}) // Error returns the error
			for _, row := range rows {
				_ = table.Write([]string{row})
			}
			table.Flush()
			return table.Error()
		}))(t)
	}
	rows, inFile := size(2_000, 2_000, 20_000), 20
	texts := rowTexts(rows)
	for n := 0; n < rows; n += inFile {
		put(fmt.Sprintf("data/lake/reviews/day=%d/%05d.csv", n*3/rows, n), texts[n:n+inFile]...)
	}
	put("data/secret/a.csv", "secret")
	put("data/lake/secret/a.csv", "secret")

	sim := startSimulated(t, "--slots", "32", "--ttft", "20ms", "--per-token", "500us")
	n := on(t, resumeSettings+fmt.Sprintf("sources: {lake: {url: 's3://%s/data/lake', region: %s, endpoint: '%s', prefixes: [reviews]}}\n",
		objects.Bucket, s3test.Region, objects.Endpoint), sim)
	n.environ = []string{"AWS_ACCESS_KEY_ID=" + objects.AccessKey, "AWS_SECRET_ACCESS_KEY=" + objects.SecretKey}
	n.start(t)
	id := n.submit(t, submission{Inputs: "lake:reviews/day=*/*.csv", Model: model, Column: "text", Priority: 1})
	n.until(t, id, "running rows", func(r record) bool { return r.RowsDone > 0 })
	n.kill()
	put("data/lake/reviews/day=0/99999.csv", "a row of a later file")
	n.start(t)
	n.finish(t, id)
	outputs, inputs := n.results(t, id)
	if !slices.Equal(inputs, texts) || slices.Contains(outputs, nil) {
		t.Errorf("the results have %d rows, want %d in the order of the files, with answers", len(inputs), rows)
	}

	for inputs, want := range map[string]string{
		"lake:secret/a.csv":            "must begin with a folder that may be read: reviews/",
		"lake:reviews/../secret/a.csv": "the folder ..",
		"pond:a.csv":                   "your account can read lake",
	} {
		status, answer, err := n.send(http.MethodPost, "/v1/batch-inference", submission{Inputs: inputs, Model: model})
		if err != nil || status != http.StatusBadRequest || !bytes.Contains(answer, []byte(want)) {
			t.Errorf("%s: %d, %s, %v", inputs, status, answer, err)
		}
	}
	missing := n.finish(t, n.submit(t, submission{Inputs: "lake:reviews/none/*.csv", Model: model}))
	if missing.FailureReason == nil || missing.FailureReason.Code != "download_failed" || !strings.Contains(missing.FailureReason.Message, "No file with content matches lake:reviews/none/*.csv") {
		t.Errorf("a pattern without files: %+v", missing.FailureReason)
	}
	for _, name := range append(n.files(t, ""), "/../log") {
		content := must.Get(os.ReadFile(filepath.Join(n.data, name)))(t)
		if bytes.Contains(content, []byte(objects.SecretKey)) || bytes.Contains(content, []byte(objects.AccessKey)) {
			t.Errorf("%s has a credential of the source", name)
		}
	}
}
