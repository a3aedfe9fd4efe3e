package ingest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/panics"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// An inputTokenCounter counts the tokens of an input while the input is read. It counts on
// its own goroutines, so that all processors share the work. The reader adds rows in
// their order and regularly calls err.
type inputTokenCounter struct {
	counter *prompt.Counter
	spec    *rowmill.Spec
	limit   int            // maximum tokens of a prompt; 0 for no limit
	sampler *lengthSampler // chooses the sample of an estimate; nil for another job

	// While useBounds is set, the counter adds an upper bound for the tokens of each row
	// instead of counting them. boundedTokens is the sum of the bounds for the first
	// boundedRows rows.
	useBounds     atomic.Bool
	boundedRows   int64
	boundedTokens int64

	// compute is Config.Compute; nil if counting does not wait for a processor.
	compute func(ctx context.Context) (leave func(), ok bool)
	// rest calls wait while the reader has no processor, and then takes a processor again.
	rest func(wait func()) error
	// added is called each time the result of progress has changed.
	added func()

	next    int64              // number of the next row
	flushed int64              // value of next at the last call of flush
	batch   []countedRow       // rows that flush will pass on
	bytes   int                // total size of the texts in batch
	batches chan *countedBatch // batches that any goroutine may count
	order   chan *countedBatch // the same batches in order, to be added up
	done    chan struct{}      // closed when all batches are added up
	stopped atomic.Bool        // no more counts are needed

	mu      sync.Mutex
	rows    int64 // all rows before this row are counted in tokens, and are within the quota
	tokens  int64
	failure *rowmill.Failure // why the job fails because of its input
	fault   error            // an error of the system, not of the input
}

// batchRows and batchBytes limit a batch: at the first limit that it reaches, the reader
// passes the batch to the counting goroutines. Batches make the cost per row negligible.
const (
	batchRows  = 512
	batchBytes = 256 << 10
	// largeBatch is the size in bytes from which a batch is counted before the next row is read,
	// so that only one long row is in memory at a time.
	largeBatch = 1 << 20
	// waitingBatches is the maximum number of waiting batches for each goroutine.
	waitingBatches = 2
)

// A countedBatch is a list of rows that are counted together, and their counts.
type countedBatch struct {
	rows    []countedRow
	end     int64  // number of the first row after the batch
	tokens  []int  // by index in rows: the tokens of the row; set by count
	bounds  []bool // by index in rows: whether tokens is only an upper bound
	err     error
	counted chan struct{} // closed after the rows are counted
	added   chan struct{} // closed after the counts are added up
}

// newInputCounter returns a counter for the input of a job.
func newInputCounter(c *prompt.Counter, spec *rowmill.Spec) *inputTokenCounter {
	counters := runtime.GOMAXPROCS(0)
	return &inputTokenCounter{
		counter: c, spec: spec, limit: spec.PromptLimit(spec.Model.ContextLength),
		batches: make(chan *countedBatch, waitingBatches*counters), order: make(chan *countedBatch, (waitingBatches+1)*counters),
		done: make(chan struct{}), rest: func(wait func()) error { wait(); return nil }, added: func() {},
	}
}

// begin starts the counting goroutines. They end after close.
func (t *inputTokenCounter) begin(ctx context.Context) *inputTokenCounter {
	for range cap(t.batches) / waitingBatches {
		go func() {
			for batch := range t.batches {
				batch.err = t.countWhenFree(ctx, batch)
				close(batch.counted)
			}
		}()
	}
	go func() {
		defer close(t.done)
		for batch := range t.order {
			<-batch.counted
			if err := panics.Catch(func() error { t.addUp(batch); return nil }); err != nil {
				t.end(nil, fmt.Errorf("count tokens: %w", err))
			}
			close(batch.added)
		}
	}()
	return t
}

// A countedRow is a row to be counted, with its number in the input.
type countedRow struct {
	row  int64
	text string
}

// add adds the next row of the input.
func (t *inputTokenCounter) add(text string) error { return t.addRow(t.next, text) }

// addRow adds a row with this number. Rows before it that were not added are skipped.
func (t *inputTokenCounter) addRow(row int64, text string) error {
	t.next = row + 1
	t.batch = append(t.batch, countedRow{row, text})
	if t.bytes += len(text); len(t.batch) == batchRows || t.bytes >= batchBytes {
		return t.flush()
	}
	return nil
}

// skip skips the next row of the input.
func (t *inputTokenCounter) skip() { t.next++ }

// flush passes the collected rows to the counting goroutines.
func (t *inputTokenCounter) flush() error {
	if t.next == t.flushed {
		return nil
	}
	t.flushed = t.next
	batch := &countedBatch{rows: t.batch, end: t.next, counted: make(chan struct{}), added: make(chan struct{})}
	large := t.bytes >= largeBatch
	t.batch, t.bytes = nil, 0
	if !large && len(t.batches) < cap(t.batches) && len(t.order) < cap(t.order) { // there is no other sender
		t.order <- batch
		t.batches <- batch
		return nil
	}
	return t.rest(func() {
		t.order <- batch
		t.batches <- batch
		if large {
			<-batch.added
		}
	})
}

// err returns the reason why the job must not continue, if the rows counted so far show
// one.
func (t *inputTokenCounter) err() error {
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

// progress returns the number of rows that are counted and within the quota, and their
// tokens.
func (t *inputTokenCounter) progress() (rows, tokens int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rows, t.tokens
}

// close counts the remaining rows and returns the tokens of all rows. Call it once.
func (t *inputTokenCounter) close() (tokens int64, err error) {
	err = t.flush()
	close(t.batches)
	close(t.order)
	<-t.done
	if failed := t.err(); failed != nil {
		err = failed
	}
	return t.tokens, err
}

// countableText returns the text of a row without the data whose tokens cannot be counted.
func (t *inputTokenCounter) countableText(text string) string {
	if t.spec.Raw == nil {
		return text
	}
	return stripEncodedData(text)
}

// countWhenFree waits for a processor and then counts the rows of a batch.
func (t *inputTokenCounter) countWhenFree(ctx context.Context, batch *countedBatch) error {
	if t.stopped.Load() {
		return nil
	}
	if t.compute != nil {
		leave, ok := t.compute(ctx)
		if !ok {
			return ctx.Err()
		}
		defer leave()
	}
	return panics.Catch(func() error { t.count(batch); return nil })
}

// count sets the tokens of each row of a batch.
func (t *inputTokenCounter) count(batch *countedBatch) {
	batch.tokens, batch.bounds = make([]int, len(batch.rows)), make([]bool, len(batch.rows))
	for i, in := range batch.rows {
		if batch.tokens[i], batch.bounds[i] = t.bound(in.text); !batch.bounds[i] {
			batch.tokens[i] = t.counter.Count(t.countableText(in.text))
		}
	}
}

// addUp adds the counts of a batch to the result and checks the limits. It is called
// for one batch after another, in order.
func (t *inputTokenCounter) addUp(batch *countedBatch) {
	tokens, failure := t.tokens, t.failure // no other goroutine writes these fields
	switch {
	case failure != nil || t.fault != nil:
		return
	case batch.err != nil:
		t.end(nil, fmt.Errorf("count tokens: %w", batch.err))
		return
	}
	for i, n := range batch.tokens {
		if failure != nil {
			break
		}
		in := batch.rows[i]
		if batch.bounds[i] && !t.boundsSuffice(tokens+int64(n)) {
			n = t.counter.Count(t.countableText(in.text))
		}
		if t.limit > 0 && n > t.limit {
			if !t.spec.TruncateRows && t.counter.IsExact(in.text) {
				failure = rowmill.Failf(rowmill.CodeRowTooLong,
					"Row %d does not fit: its prompt has %d tokens, and %d are left beside the answer in the context of %d. Shorten the row, lower max_tokens, or submit with truncate_rows.",
					in.row, n, t.limit, t.spec.Model.ContextLength)
				break
			}
			n = t.limit
		}
		if t.sampler != nil {
			t.sampler.add(in.row, n)
		}
		tokens += int64(n)
		if t.useBounds.Load() {
			t.boundedRows, t.boundedTokens = in.row+1, tokens
		}
		if quota := t.spec.TokenQuota; quota > 0 && tokens-t.uncounted() > quota {
			failure = tokenQuotaFailure(tokens-t.uncounted(), in.row, t.spec)
		}
	}
	t.mu.Lock()
	t.tokens = tokens
	if quota := t.spec.TokenQuota; quota == 0 || tokens <= quota {
		t.rows = batch.end
	}
	t.mu.Unlock()
	if failure != nil {
		t.end(failure, nil)
	}
	t.added()
}

// end stops the counting and stores the reason: a failure of the input or a fault of
// the system.
func (t *inputTokenCounter) end(failure *rowmill.Failure, fault error) {
	t.stopped.Store(true)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failure, t.fault = failure, fault
}
