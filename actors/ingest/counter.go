package ingest

import (
	"fmt"
	"sync"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/contain"
	"github.com/rowmill/rowmill/shard"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// An inputCounter counts the tokens of an input while it is read, on a goroutine of
// its own, so that counting and reading share the time. Whoever reads gives it
// rows in their order and asks now and then whether to go on.
type inputCounter struct {
	counter *prompt.Counter
	spec    *rowmill.Spec
	limit   int   // tokens a prompt may have; 0 for no limit
	stop    int64 // tokens of the sample of an estimate

	next    int64 // row
	batch   []countedRow
	bytes   int
	batches chan countedBatch
	done    chan struct{}

	mu      sync.Mutex
	size    shard.Size
	failure *rowmill.Failure
	fault   error // ours
}

// A batch is handed over when it has so many rows or bytes: enough that the
// hand-over costs nothing per row.
const (
	batchRows  = 512
	batchBytes = 256 << 10
	// largeBatch is one whose rows are counted before the next is read: of long
	// rows there is one at a time in memory.
	largeBatch = 1 << 20
)

type countedBatch struct {
	rows    []countedRow
	counted chan struct{} // closed then, where somebody waits for it
}

func newInputCounter(c *prompt.Counter, spec *rowmill.Spec, sample int64) *inputCounter {
	t := &inputCounter{counter: c, spec: spec, stop: sample, batches: make(chan countedBatch, 4), done: make(chan struct{})}
	t.limit = spec.PromptLimit(spec.Model.ContextLength)
	go func() {
		defer close(t.done)
		for batch := range t.batches {
			if err := contain.Run(func() error { t.count(batch.rows); return nil }); err != nil {
				t.broke(err)
			}
			if batch.counted != nil {
				close(batch.counted)
			}
		}
	}()
	return t
}

// A countedRow is a row of the input.
type countedRow struct {
	row  int64
	text string
}

// add takes the next row.
func (t *inputCounter) add(text string) { t.addRow(t.next, text) }

// addRow takes a row that need not be the next.
func (t *inputCounter) addRow(row int64, text string) {
	t.next = row + 1
	t.batch = append(t.batch, countedRow{row, text})
	if t.bytes += len(text); len(t.batch) == batchRows || t.bytes >= batchBytes {
		t.hand()
	}
}

func (t *inputCounter) hand() {
	if len(t.batch) == 0 {
		return
	}
	batch := countedBatch{rows: t.batch}
	if t.bytes >= largeBatch {
		batch.counted = make(chan struct{})
	}
	t.batches <- batch
	t.batch, t.bytes = nil, 0
	if batch.counted != nil {
		<-batch.counted
	}
}

// err is why the job must not go on, as far as rows have been counted.
func (t *inputCounter) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.fault != nil:
		return t.fault
	case t.failure != nil:
		return t.failure
	}
	return nil
}

// broke ends the counting where a row has made it panic.
func (t *inputCounter) broke(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fault = fmt.Errorf("count tokens: %w", err)
}

// close counts what is left and returns the sum. It must be called once.
func (t *inputCounter) close() (shard.Size, error) {
	t.hand()
	close(t.batches)
	<-t.done
	return t.size, t.err()
}

// counted is what of a row has tokens that can be counted.
func (t *inputCounter) counted(text string) string {
	if t.spec.Raw == nil {
		return text
	}
	return withoutData(text)
}

func (t *inputCounter) count(batch []countedRow) {
	size, failure := t.size, t.failure // only this goroutine writes them
	for _, in := range batch {
		if failure != nil {
			break
		}
		n := t.counter.Count(t.counted(in.text))
		if t.limit > 0 && n > t.limit {
			if !t.spec.TruncateRows && t.counter.Exact(in.text) {
				failure = rowmill.Failf(rowmill.CodeRowTooLong,
					"Row %d does not fit: its prompt has %d tokens, and %d are left beside the answer in the context of %d. Shorten the row, lower max_tokens, or submit with truncate_rows.",
					in.row, n, t.limit, t.spec.Model.ContextLength)
				break
			}
			n = t.limit
		}
		if size.SampleTokens < t.stop {
			size.SampleRows++
			size.SampleTokens += int64(n)
		}
		size.Tokens += int64(n)
		if quota := t.spec.TokenQuota; quota > 0 && size.Tokens > quota {
			failure = tooManyTokens(size.Tokens, in.row, t.spec)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.size, t.failure = size, failure
}
