package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/store"
)

const (
	// samplesEvery is the shortest time between two samples of a job's progress, and
	// samplesKept is how long a sample is kept. Rows are committed every few seconds: with
	// a shorter samplesKept the rate would jump, with a longer one it would lag.
	samplesEvery = time.Second
	samplesKept  = 5 * time.Minute
	// minSpan is the shortest time between the two samples of a recent rate.
	minSpan = 5 * time.Second
	// maxSampled limits the jobs with samples on a node. The samples of a job take 10 KB.
	maxSampled = 1000
	// etaMargin widens the estimated range of the remaining time by a tenth at both ends,
	// because the last rows of a job run at another rate: fewer rows run at the same time.
	etaMargin = 0.1
)

// A progressSample is the progress of a job at one time: the committed rows and their tokens.
type progressSample struct {
	at           time.Time
	rows, tokens int64
}

// sampleTracker keeps samples of the jobs whose progress clients request on this node.
type sampleTracker struct {
	mu      sync.Mutex
	samples map[string][]progressSample // samples by job id, the oldest sample first
}

// addSample adds a sample of a job and returns the oldest sample of the job.
func (t *sampleTracker) addSample(job string, sample progressSample) progressSample {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.samples == nil {
		t.samples = map[string][]progressSample{}
	}
	kept := t.samples[job]
	kept = slices.DeleteFunc(kept, func(s progressSample) bool { return sample.at.Sub(s.at) > samplesKept })
	if len(kept) == 0 || sample.at.Sub(kept[len(kept)-1].at) >= samplesEvery {
		kept = append(kept, sample)
	}
	if t.samples[job] == nil && len(t.samples) >= maxSampled {
		t.evictSamples(sample.at)
	}
	t.samples[job] = kept
	return kept[0]
}

// evictSamples drops the samples of jobs that have only old samples. If maxSampled jobs
// remain, it also drops the job whose latest sample is the oldest.
func (t *sampleTracker) evictSamples(now time.Time) {
	var oldest string
	var last time.Time
	for job, kept := range t.samples {
		at := kept[len(kept)-1].at
		if now.Sub(at) > samplesKept {
			delete(t.samples, job)
		} else if oldest == "" || at.Before(last) {
			oldest, last = job, at
		}
	}
	if len(t.samples) >= maxSampled {
		delete(t.samples, oldest)
	}
}

// progressView is the answer of GET /v1/jobs/{job_id}/progress. CostSoFar is a Decimal,
// as in all answers, and replaces the field CostSoFar of client.Progress.
type progressView struct {
	client.Progress
	CostSoFar *exchange.Decimal `json:"cost_so_far"`
}

// RowDistribution has the shards and nodes of a job, as the job's owner reports them.
type RowDistribution struct {
	Shards client.ShardCounts
	Nodes  []client.NodeRows // nodes that run rows of the job
}

// showProgress answers GET /v1/jobs/{job_id}/progress with the done rows, the rate and the
// remaining time of a job.
func (j *Jobs) showProgress(c *gin.Context) (any, error) {
	record, err := j.FindReadable(c)
	if err != nil {
		return nil, err
	}
	job, now := record.Job, j.Now()
	end := now
	if job.Completed != nil {
		end = *job.Completed
	}
	view := progressView{CostSoFar: (*exchange.Decimal)(cmp.Or(job.JobCost, record.Spec.Model.Cost(&job))), Progress: client.Progress{
		JobID: job.ID, Status: string(NewView(caller.PrincipalOf(c), &job).Status), NumRows: job.NumRows, RowsDone: job.RowsDone, FailedRows: job.FailedRows,
		ElapsedSeconds: toThousandths(max(0, end.Sub(job.Created).Seconds())), Message: statusMessage(j.WithWaitReason(&job, record.Spec.Account)),
	}}
	whole := averageRate(job.Started, end, progressSample{rows: job.RowsTakenOver}, newProgressSample(&job, end))
	if job.Status.IsTerminal() {
		view.RowsPerSecond, view.TokensPerSecond = whole.rounded()
		return view, nil
	}
	view.WaitsFor = exchange.NilIfZero(j.waitReason(&job, record.Spec.Account))
	if where := j.Service.RowDistribution(c.Request.Context(), &record); where != nil {
		view.Shards, view.Nodes = &where.Shards, exchange.OrEmptyList(where.Nodes)
	}
	if job.Status != rowmill.StatusRunning {
		return view, nil
	}
	oldest := j.track.addSample(job.ID, newProgressSample(&job, now))
	rate := whole
	if now.Sub(oldest.at) >= minSpan {
		rate = averageRate(&oldest.at, now, oldest, newProgressSample(&job, now))
	}
	view.RowsPerSecond, view.TokensPerSecond = rate.rounded()
	view.ETASeconds, view.ETALow, view.ETAHigh = estimateETA(&job, rate, whole)
	return view, nil
}

// newProgressSample returns a sample with the job's current progress and the time at.
func newProgressSample(job *rowmill.Job, at time.Time) progressSample {
	return progressSample{at, job.RowsDone, exchange.OrZero(job.InputTokens) + exchange.OrZero(job.OutputTokens)}
}

// A progressRate is the speed of a job over some time.
type progressRate struct {
	known        bool
	rows, tokens float64 // per second
}

// averageRate returns the average rate between two samples: from was taken at start, to
// at end. The rate is unknown if start is nil (the job has not started), or if no time
// has passed.
func averageRate(start *time.Time, end time.Time, from, to progressSample) progressRate {
	if start == nil || end.Sub(*start) <= 0 {
		return progressRate{}
	}
	seconds := end.Sub(*start).Seconds()
	return progressRate{true, max(0, float64(to.rows-from.rows)) / seconds, max(0, float64(to.tokens-from.tokens)) / seconds}
}

// rounded returns the rate for an answer: rounded, or nil if the rate is unknown.
func (r progressRate) rounded() (rows, tokens *float64) {
	if !r.known {
		return nil, nil
	}
	r.rows, r.tokens = toThousandths(r.rows), toThousandths(r.tokens)
	return &r.rows, &r.tokens
}

// estimateETA estimates the seconds until the job's last row is done. likely uses the recent rate.
// low and high use the faster and the slower of two rates: the recent rate and the rate of
// the whole job. All are nil until both rates are above 0.
func estimateETA(job *rowmill.Job, recent, whole progressRate) (likely, low, high *float64) {
	if job.NumRows == nil || recent.rows <= 0 || whole.rows <= 0 {
		return nil, nil, nil
	}
	remaining := float64(max(0, *job.NumRows-job.RowsDone))
	seconds := []float64{remaining / recent.rows, remaining / whole.rows}
	one, two, three := toThousandths(seconds[0]), toThousandths(slices.Min(seconds)*(1-etaMargin)), toThousandths(slices.Max(seconds)*(1+etaMargin))
	return &one, &two, &three
}

// toThousandths rounds x to three decimals.
func toThousandths(x float64) float64 { return math.Round(1000*x) / 1000 }

// A timelineEvent is an event in a job's history.
type timelineEvent struct {
	At     time.Time  `json:"at"`
	Until  *time.Time `json:"until"` // end of a wait; null while the wait lasts, and for other events
	What   string     `json:"what"`
	Detail string     `json:"detail"`
}

// showTimeline answers GET /v1/jobs/{job_id}/timeline with the history in the job's record.
func (j *Jobs) showTimeline(c *gin.Context) (any, error) {
	record, err := j.FindReadable(c)
	if err != nil {
		return nil, err
	}
	job := record.Job
	var events []timelineEvent
	add := func(at *time.Time, what, detail string) {
		if at != nil {
			events = append(events, timelineEvent{At: at.UTC(), What: what, Detail: detail})
		}
	}
	detail := ""
	if job.Continues != nil {
		detail = "continues " + *job.Continues
	}
	add(&job.Created, "created", detail)
	events = append(events, recordedEvents(&record)...)
	add(record.DownloadStarted, "download_started", "")
	add(record.DownloadFinished, "download_finished", "")
	add(job.Started, "started", "")
	add(job.Completed, "completed", statusMessage(&job))
	add(record.InputRemoved, "input_removed", "")
	add(record.DataRemoved, "data_removed", "")
	if job.ContinuedBy != nil {
		at, err := j.createdAt(c.Request.Context(), *job.ContinuedBy)
		if err != nil {
			return nil, err
		}
		add(at, "continued", *job.ContinuedBy)
	}
	ms := func(e timelineEvent) int64 { return e.At.UnixMilli() } // compare whole milliseconds, because the record's events have no finer times
	slices.SortStableFunc(events, func(a, b timelineEvent) int { return cmp.Compare(ms(a), ms(b)) })
	return gin.H{"events": events, "shortened": len(record.Events) >= store.MaxEvents}, nil
}

// recordedEvents returns the events that the job's record contains. A wait without an
// end in the record ends with the job.
func recordedEvents(record *store.Record) (events []timelineEvent) {
	owner := ""
	for _, e := range record.Events {
		event := timelineEvent{At: e.Time(), What: e.What}
		switch e.What {
		case store.EventClaimed:
			if e.Lost {
				events = append(events, timelineEvent{At: event.At, What: "owner_lost", Detail: describeOwner(owner)})
			}
			owner = e.Node
			event.Detail = fmt.Sprintf("%s, epoch %d", describeOwner(owner), e.At)
		case store.EventReleased:
			event.Detail = describeOwner(owner)
		case store.EventPaused, store.EventPauseEnded, store.EventPriorityChanged:
			event.Detail = e.Reason
		case store.EventWaits:
			event.Detail = e.Reason
			event.Until = record.Job.Completed
			if e.Until != 0 {
				until := time.UnixMilli(e.Until).UTC()
				event.Until = &until
			}
		default: // an event of a newer version, unknown here
			continue
		}
		events = append(events, event)
	}
	return events
}

// describeOwner returns a text for a job's owner: the node's name, if the record has it.
func describeOwner(name string) string {
	if name == "" {
		return "a node (its name was not recorded)"
	}
	return "node " + name
}

// createdAt returns the time when a job was created, or nil if the job does not exist.
func (j *Jobs) createdAt(ctx context.Context, id string) (*time.Time, error) {
	record, err := j.Store.Get(ctx, id)
	if errors.Is(err, rowmill.ErrNotFound) {
		return nil, nil //nolint:nilnil // nil: the job does not exist
	}
	return &record.Job.Created, err
}
