package layout_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/blob/layout"
)

// These keys are the format of every existing bucket. They must not change.
func TestKeysDoNotChange(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ got, want string }{
		{layout.Job("job-1"), `jobs/job-1/`},
		{layout.Raw("job-1"), `jobs/job-1/input/raw`},
		{layout.Spooled("job-1"), `jobs/job-1/input/rows\.jsonl`},
		{layout.Manifest("job-1"), `jobs/job-1/input/manifest\.json`},
		{layout.Shard("job-1", 17), `jobs/job-1/input/shard-000017`},
		{layout.CarriedPart("job-1", 17), `jobs/job-1/parts/000017-carried\.parquet`},
		{layout.Part("job-1", 17, 3), `jobs/job-1/parts/000017-3-[0-9a-f]{12}\.parquet`},
		{layout.Artifact("job-1", layout.Full, 3), `jobs/job-1/results/full-3-[0-9a-f]{12}\.parquet`},
		{layout.Artifact("job-1", layout.Rows, 3), `jobs/job-1/results/rows-3-[0-9a-f]{12}\.parquet`},
		{layout.File("file-1"), `files/file-1`},
		{layout.UploadRecord("upload_1"), `uploads/upload_1/upload\.json`},
		{layout.UploadParts("upload_1"), `uploads/upload_1/parts/`},
		{layout.UploadCancelled("upload_1"), `uploads/upload_1/cancelled`},
		{layout.Subset("job-1", "outputs"), `jobs/job-1/results/outputs-[0-9a-f]{12}\.parquet`},
	} {
		if !regexp.MustCompile("^" + test.want + "$").MatchString(test.got) {
			t.Errorf("key %q does not match %s", test.got, test.want)
		}
	}
}

func TestEpoch(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]int64{
		layout.Part("job-1-2-3", 17, 3):                   3,
		layout.Artifact("job-1-2-3", layout.Full, 12):     12,
		layout.CarriedPart("job-1-2-3", 17):               0,
		layout.Subset("job-1-2-3", "inputs=0~logprobs=0"): 0,
		layout.Shard("job-1-2-3", 17):                     0,
		layout.Lines("job-1-2-3", "output.jsonl"):         0,
	} {
		if got := layout.Epoch(key); got != want {
			t.Errorf("the epoch of %s is %d, want %d", key, got, want)
		}
	}
}

// A prefix must cover all objects of a job and no objects of another job.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	for prefix, keys := range map[string][]string{
		layout.Jobs:       {layout.Job("1")},
		layout.Job("1"):   {layout.Input("1"), layout.Parts("1"), layout.Artifact("1", layout.Full, 1), layout.Subset("1", "x")},
		layout.Input("1"): {layout.Raw("1"), layout.Spooled("1"), layout.Manifest("1"), layout.Groups("1"), layout.Shard("1", 0)},
		layout.Parts("1"): {layout.Part("1", 0, 1)},
	} {
		for _, key := range keys {
			if !strings.HasPrefix(key, prefix) {
				t.Errorf("%s is not under %s", key, prefix)
			}
		}
	}
	if strings.HasPrefix(layout.Job("12"), layout.Job("1")) {
		t.Error("the folder of one job holds another's")
	}
	if first, second := layout.Part("1", 0, 1), layout.Part("1", 0, 1); first == second {
		t.Error("two writers got the same key")
	}
}
