package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/store"
)

const (
	// maxScanned limits the jobs that a request with a filter reads. Filters have no
	// index; reading this many jobs takes a fraction of a second.
	maxScanned = 10_000
	// maxFilterText limits the length of the searched text, in code points.
	maxFilterText = 256
	// maxSearched limits the bytes of a prompt that a search reads.
	maxSearched = 2_000
)

// A jobFilter selects jobs. A job must match all fields that are not empty.
type jobFilter struct {
	statuses []rowmill.Status // as Job.ShownStatus returns them
	model    string           // model or Function, exactly as in the job
	text     string           // part of the name, id or description, in lower case
	since    time.Time
	failed   bool // only jobs with failed rows
	kind     jobKind
}

// jobKind is a kind of jobs: all jobs are of one of the two kinds.
type jobKind string

const (
	kindWhole jobKind = "whole" // every other job
	kindTests jobKind = "tests" // an estimate, or a job that runs at most maxTestRows rows of a larger input
)

// maxTestRows is the largest limit of a test. A larger limit is work of its own, such as a pilot.
const maxTestRows = 10

// kindOf returns the kind of a job. A job with a small limit counts as a test until the
// rows of its input are counted.
func kindOf(job *rowmill.Job) jobKind {
	small := 0 < job.Limit && job.Limit <= maxTestRows
	if job.RunType == rowmill.RunEstimate || small && (job.HasOtherRows() || job.NumRows == nil) {
		return kindTests
	}
	return kindWhole
}

// parseKind parses the kind of jobs in a filter. Empty means all jobs.
func parseKind(text, field string, p *request.Problems) jobKind {
	if kind := jobKind(text); kind == "" || kind == kindWhole || kind == kindTests {
		return kind
	}
	p.Add(field, "is %q; it must be %s or %s", textfmt.Shorten(text, 32), kindWhole, kindTests)
	return ""
}

// rawJobFilter is a job filter as the client sends it, before it is parsed.
type rawJobFilter struct{ status, model, q, since, failedRows, kind string }

// readQueryFilter returns the job filter in the query of a request.
func readQueryFilter(c *gin.Context) rawJobFilter {
	return rawJobFilter{c.Query("status"), c.Query("model"), c.Query("q"), c.Query("since"), c.Query("failed_rows"), c.Query("kind")}
}

// parse parses a filter and adds its problems to p. prefix is put before field names in
// problems.
func (t rawJobFilter) parse(prefix string, p *request.Problems) (f jobFilter) {
	if t.status != "" {
		for status := range strings.SplitSeq(t.status, ",") {
			f.statuses = append(f.statuses, rowmill.Status(status))
			if !slices.Contains(shownStatuses(), rowmill.Status(status)) {
				p.Add(prefix+"status", "has %q; it must be one or more of %s, with commas between", textfmt.Shorten(status, 32), statusNames())
				break
			}
		}
	}
	for name, text := range map[string]string{"model": t.model, "q": t.q} {
		if utf8.RuneCountInString(text) > maxFilterText {
			p.Add(prefix+name, "is longer than %d characters", maxFilterText)
		}
	}
	f.model, f.text = t.model, strings.ToLower(t.q)
	if t.since != "" {
		var err error
		if f.since, err = time.Parse(time.RFC3339, t.since); err != nil {
			p.Add(prefix+"since", "is %q; it must be a time such as 2030-01-31T00:00:00Z", textfmt.Shorten(t.since, 64))
		}
	}
	if f.failed = t.failedRows == "true"; !f.failed && t.failedRows != "" && t.failedRows != "false" {
		p.Add(prefix+"failed_rows", "is %q; it must be true or false", textfmt.Shorten(t.failedRows, 32))
	}
	f.kind = parseKind(t.kind, prefix+"kind", p)
	return f
}

// shownStatuses returns all results of Job.ShownStatus.
func shownStatuses() []rowmill.Status { return append(rowmill.Statuses(), rowmill.StatusPaused) }

func statusNames() string {
	var names []string
	for _, s := range shownStatuses() {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

// statusList is the list of statuses in a body: an array, or one text with commas as in a
// query.
type statusList string

func (l *statusList) UnmarshalJSON(text []byte) error {
	var list []string
	if err := json.Unmarshal(text, &list); err == nil {
		*l = statusList(strings.Join(list, ","))
		return nil
	}
	return json.Unmarshal(text, (*string)(l))
}

// readBodyFilter reads a job filter from the object in a request body.
func readBodyFilter(fields request.JSONObject) jobFilter {
	var text rawJobFilter
	var statuses statusList
	fields.Read("status", "an array of statuses, or a text of them with commas between", &statuses)
	text.status = string(statuses)
	fields.Read("model", "a string", &text.model)
	fields.Read("q", "a string", &text.q)
	fields.Read("since", "a time such as 2030-01-31T00:00:00Z", &text.since)
	var failed bool
	if fields.Read("failed_rows", "true or false", &failed) {
		text.failedRows = strconv.FormatBool(failed)
	}
	fields.Read("kind", "whole or tests", &text.kind)
	fields.RejectUnknown("status, model, q, since, failed_rows and kind")
	return text.parse("filter.", fields.Problems)
}

// isTooOld reports whether a job is too old for the filter. Then all jobs that were created
// before it are too old as well.
func (f *jobFilter) isTooOld(job *rowmill.Job) bool { return job.Created.Before(f.since) }

// matches reports whether the filter selects a job.
func (f *jobFilter) matches(job *rowmill.Job) bool {
	switch {
	case len(f.statuses) > 0 && !slices.Contains(f.statuses, job.ShownStatus()), f.model != "" && job.Model != f.model, f.failed && job.FailedRows == 0, f.kind != "" && kindOf(job) != f.kind, f.isTooOld(job):
		return false
	case f.text == "" || strings.Contains(job.ID, f.text):
		return true
	}
	searched := []*string{job.Name, job.Description}
	if job.Name == nil { // then the console makes a title of these texts
		searched = append(searched, &job.Model, &job.Input, job.Prompt, job.System)
	}
	return slices.ContainsFunc(searched, func(s *string) bool {
		return s != nil && strings.Contains(strings.ToLower((*s)[:min(len(*s), maxSearched)]), f.text)
	})
}

// A listedJob is a job with its account.
type listedJob struct {
	*rowmill.Job
	account string
}

// listPage returns a page of the jobs of an account, or of all accounts if account is empty.
func (j *Jobs) listPage(ctx context.Context, account string, limit int, cursor string) (page []listedJob, next string, err error) {
	if account == "" {
		var heads []*store.JobHead
		heads, next, err = j.Store.ListAll(ctx, limit, cursor)
		for _, head := range heads {
			page = append(page, listedJob{&head.Job, head.Account})
		}
	} else {
		var found []*rowmill.Job
		found, next, err = j.Store.List(ctx, account, limit, cursor)
		for _, job := range found {
			page = append(page, listedJob{job, account})
		}
	}
	if err != nil {
		return nil, "", fmt.Errorf("list jobs: %w", err)
	}
	return page, next, nil
}

// scanJobs calls visit for each job of an account (empty: of all), newest first, from a cursor on. It stops
// when visit returns true, or after maxScanned jobs. next is the cursor of the job after
// the last one that visit got, empty if there is none. scannedAll is false if scanJobs
// stopped because of maxScanned. firstPageSize is how many jobs the first read of the store
// asks for if there is no cursor.
func (j *Jobs) scanJobs(ctx context.Context, account, cursor string, firstPageSize int, visit func(listedJob) (stop bool)) (next string, scannedAll bool, err error) {
	for scanned := 0; ; {
		size := listPage
		if cursor == "" {
			size = firstPageSize
		}
		page, after, err := j.listPage(ctx, account, min(size, maxScanned-scanned), cursor)
		if err != nil {
			return "", false, err
		}
		for i := range page {
			if !visit(page[i]) {
				continue
			}
			if i < len(page)-1 { // get a cursor for this job
				if _, after, err = j.listPage(ctx, account, i+1, cursor); err != nil {
					return "", false, err
				}
			}
			return after, true, nil
		}
		scanned += len(page)
		if cursor = after; cursor == "" || scanned >= maxScanned {
			return cursor, cursor == "", nil
		}
	}
}

// filteredPage returns one page of the jobs that a filter selects, and the cursor of
// the next page. all is false if maxScanned ended the search.
func (j *Jobs) filteredPage(ctx context.Context, account, cursor string, limit int, f jobFilter) (page []listedJob, next string, all bool, err error) {
	older := false
	page = make([]listedJob, 0, limit)
	next, all, err = j.scanJobs(ctx, account, cursor, limit, func(job listedJob) bool {
		if f.matches(job.Job) {
			page = append(page, job)
		}
		older = f.isTooOld(job.Job)
		return older || len(page) == limit
	})
	if older {
		next = ""
	}
	return page, next, all, err
}
