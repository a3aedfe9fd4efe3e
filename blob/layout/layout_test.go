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
		{layout.JobPrefix("job-1"), `jobs/job-1/`},
		{layout.RawInputKey("job-1"), `jobs/job-1/input/raw`},
		{layout.SpooledRowsKey("job-1"), `jobs/job-1/input/rows\.jsonl`},
		{layout.ManifestKey("job-1"), `jobs/job-1/input/manifest\.json`},
		{layout.ShardKey("job-1", 17), `jobs/job-1/input/shard-000017`},
		{layout.CarriedPartKey("job-1", 17), `jobs/job-1/parts/000017-carried\.parquet`},
		{layout.NewPartKey("job-1", 17, 3), `jobs/job-1/parts/000017-3-[0-9a-f]{12}\.parquet`},
		{layout.NewArtifactKey("job-1", layout.Full, 3), `jobs/job-1/results/full-3-[0-9a-f]{12}\.parquet`},
		{layout.NewArtifactKey("job-1", layout.Rows, 3), `jobs/job-1/results/rows-3-[0-9a-f]{12}\.parquet`},
		{layout.FileKey("file-1"), `files/file-1`},
		{layout.UploadRecordKey("upload_1"), `uploads/upload_1/upload\.json`},
		{layout.UploadPartsPrefix("upload_1"), `uploads/upload_1/parts/`},
		{layout.UploadCancelledKey("upload_1"), `uploads/upload_1/cancelled`},
		{layout.NewSubsetKey("job-1", "outputs"), `jobs/job-1/results/outputs-[0-9a-f]{12}\.parquet`},
	} {
		if !regexp.MustCompile("^" + test.want + "$").MatchString(test.got) {
			t.Errorf("key %q does not match %s", test.got, test.want)
		}
	}
}

func TestEpoch(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]int64{
		layout.NewPartKey("job-1-2-3", 17, 3):                   3,
		layout.NewArtifactKey("job-1-2-3", layout.Full, 12):     12,
		layout.CarriedPartKey("job-1-2-3", 17):                  0,
		layout.NewSubsetKey("job-1-2-3", "inputs=0~logprobs=0"): 0,
		layout.ShardKey("job-1-2-3", 17):                        0,
		layout.NewJSONLKey("job-1-2-3", "output.jsonl"):         0,
	} {
		if got := layout.EpochFromKey(key); got != want {
			t.Errorf("the epoch of %s is %d, want %d", key, got, want)
		}
	}
}

// A prefix must cover all objects of a job and no objects of another job.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	for prefix, keys := range map[string][]string{
		layout.Jobs:             {layout.JobPrefix("1")},
		layout.JobPrefix("1"):   {layout.InputPrefix("1"), layout.PartsPrefix("1"), layout.NewArtifactKey("1", layout.Full, 1), layout.NewSubsetKey("1", "x")},
		layout.InputPrefix("1"): {layout.RawInputKey("1"), layout.SpooledRowsKey("1"), layout.ManifestKey("1"), layout.GroupsKey("1"), layout.ShardKey("1", 0)},
		layout.PartsPrefix("1"): {layout.NewPartKey("1", 0, 1)},
	} {
		for _, key := range keys {
			if !strings.HasPrefix(key, prefix) {
				t.Errorf("%s is not under %s", key, prefix)
			}
		}
	}
	if strings.HasPrefix(layout.JobPrefix("12"), layout.JobPrefix("1")) {
		t.Error("the folder of one job holds another's")
	}
	if first, second := layout.NewPartKey("1", 0, 1), layout.NewPartKey("1", 0, 1); first == second {
		t.Error("two writers got the same key")
	}
}
