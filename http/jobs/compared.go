package jobs

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/store"
)

// MinCompared and MaxCompared limit the jobs of a comparison.
const (
	MinCompared = 2
	MaxCompared = 4
)

// FindCompared returns the jobs in the query parameter jobs, which are to be compared. It refuses a
// job for which check returns an error.
func (j *Jobs) FindCompared(c *gin.Context, p *request.Problems, check func(store.Record) error) (found []store.Record, err error) {
	var ids []string
	if list := c.Query("jobs"); list != "" {
		ids = strings.Split(list, ",")
	}
	if len(ids) < MinCompared || len(ids) > MaxCompared {
		p.Add("jobs", "has %d ids; it must have the ids of %d to %d jobs, separated by commas", len(ids), MinCompared, MaxCompared)
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	for i, id := range ids {
		record, err := j.Find(c, id)
		if err == nil && slices.Contains(ids[:i], id) {
			err = rowmill.Invalid("jobs", "has the id %s twice; name different jobs", id)
		}
		if err != nil {
			return nil, err
		}
		if err := check(record); err != nil {
			return nil, request.FromError(err).WithField("job_id", id)
		}
		found = append(found, record)
	}
	return found, nil
}

// CommonRows are the rows that all jobs of a comparison have. The zero value has no rows.
type CommonRows struct {
	N int64 // number of rows

	// With a random sample, a row has another number in each job.
	numbers *roaring.Bitmap   // numbers of the rows in the whole input; nil if the numbers are equal in all jobs
	chosen  []*roaring.Bitmap // for each job, the numbers of its rows in the whole input; nil if the job has the first rows or all rows
}

// FindCommonRows returns the rows that all jobs have. It refuses jobs on inputs with different
// numbers of rows, unless the jobs have the same number of rows.
func FindCommonRows(records []store.Record) (rows CommonRows, err error) {
	first := &records[0].Job
	rows.N = *first.NumRows
	sameRows, sameInput := true, true
	for _, r := range records {
		rows.N = min(rows.N, *r.Job.NumRows)
		sameRows = sameRows && *r.Job.NumRows == *first.NumRows
		sameInput = sameInput && countInput(&r.Job) == countInput(first)
		if !sameRows && !sameInput {
			return rows, request.Errorf(http.StatusConflict, "different_num_rows",
				"the input of %s has %d rows, and the input of %s has %d; only jobs with the same input can be compared", nameOf(records[0]), countInput(first), nameOf(r), countInput(&r.Job))
		}
	}
	if sameInput {
		rows.addSamples(records)
	}
	return rows, nil
}

// countInput returns the number of rows of the whole input of a job.
func countInput(job *rowmill.Job) int64 { return *cmp.Or(job.InputRows, job.NumRows) }

// addSamples reduces the rows to the rows that are in all random samples of the jobs.
func (r *CommonRows) addSamples(records []store.Record) {
	chosen, numbers := make([]*roaring.Bitmap, len(records)), roaring.New()
	numbers.AddRange(0, uint64(min(countInput(&records[0].Job), shard.MaxSampledInput))) //nolint:gosec // not negative
	for i, record := range records {
		if record.Spec.Sample != rowmill.SampleRandom || record.Job.InputRows == nil {
			numbers.RemoveRange(uint64(*record.Job.NumRows), math.MaxUint32+1) //nolint:gosec // not negative
			continue
		}
		chosen[i] = shard.ChooseRows(&record.Spec, *record.Job.InputRows)
		numbers.And(chosen[i])
		r.numbers, r.chosen = numbers, chosen
	}
	if r.numbers != nil {
		r.N = int64(numbers.GetCardinality()) //nolint:gosec // below MaxSampledInput
	}
}

// Number returns the number that row i of the common rows has in the job at position job.
func (r *CommonRows) Number(job int, i int64) int64 {
	if r.numbers == nil {
		return i
	}
	number, err := r.numbers.Select(uint32(i)) //nolint:gosec // a number in a bitmap
	if err != nil {
		panic(fmt.Sprintf("jobs: row %d of %d common rows: %v", i, r.N, err))
	}
	if r.chosen[job] == nil {
		return int64(number)
	}
	return int64(r.chosen[job].Rank(number)) - 1 //nolint:gosec // below MaxSampledInput
}

// nameOf returns the name of a job, or its id if it has no name.
func nameOf(record store.Record) string {
	if name := record.Job.Name; name != nil {
		return strconv.Quote(*name)
	}
	return record.Job.ID
}
