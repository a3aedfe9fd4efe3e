package jobs

import (
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/store"
)

// MinCompared and MaxCompared limit the jobs of a comparison.
const (
	MinCompared = 2
	MaxCompared = 4
)

// FindCompared returns the jobs in the query parameter jobs, which are to be compared. It refuses a
// job for which check returns an error, and jobs with different numbers of rows.
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
		if first, n := *found[0].Job.NumRows, *record.Job.NumRows; n != first {
			return nil, request.Errorf(http.StatusConflict, "different_num_rows",
				"job %s has %d rows and job %s has %d; only jobs on the same input can be compared", ids[0], first, id, n)
		}
	}
	return found, nil
}
