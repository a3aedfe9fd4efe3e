package ingest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/panics"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// An inputCounter counts the tokens of an input while it is read. It has its own
// goroutines, so that all processors share the work. The reader adds rows in their order
// and regularly checks err.
type inputCounter struct {
	counter *prompt.Counter
	spec    *rowmill.Spec
	limit   int   // maximum tokens of a prompt; 0 for no limit
	stop    int64 // tokens of the sample for an estimate

	// While useBounds is set, the counter adds an upper bound for the tokens of each row
	// instead of counting them. boundedTokens is the sum of the bounds for the first
	// boundedRows rows.
	useBounds     atomic.Bool
	boundedRows   int64
	boundedTokens int64

	// compute is Config.Compute, or nil if counting need not wait for a processor.
	compute func(ctx context.Context) (leave func(), ok bool)
	// rest gives up the reader's processor, calls wait, and takes a processor again.
	rest func(wait func()) error
	// added is called after each change of the result of progress.
	added func()

	next    int64 // number of the next row
	flushed int64 // next at the last call of flush
	batch   []countedRow
	bytes   int
	batches chan *countedBatch // to be counted by any goroutine
	order   chan *countedBatch // the same batches, to be added up in order
	done    chan struct{}
	stopped atomic.Bool // further counts are not needed

	mu      sync.Mutex
	rows    int64 // size counts all rows before this one, and they are within the quota
	size    shard.Size
	failure *rowmill.Failure
	fault   error // an error of the system
}

// The reader passes a batch to the counting goroutines when the batch has this number of
// rows or bytes. So the cost per row is negligible.
const (
	batchRows  = 512
	batchBytes = 256 << 10
	// largeBatch is the size at which the rows are counted before the next row is read,
	// so that only one long row is in memory at a time.
	largeBatch = 1 << 20
	// waitingBatches is the number of waiting batches for each goroutine.
	waitingBatches = 2
)

type countedBatch struct {
	rows    []countedRow
	end     int64  // number of the first row after the batch
	tokens  []int  // by row, set by the count
	bounds  []bool // by row: tokens is an upper bound
	err     error
	counted chan struct{} // closed after the count
	added   chan struct{} // closed after the batch is added up
}

func newInputCounter(c *prompt.Counter, spec *rowmill.Spec, sample int64) *inputCounter {
	counters := runtime.GOMAXPROCS(0)
	return &inputCounter{
		counter: c, spec: spec, stop: sample, limit: spec.PromptLimit(spec.Model.ContextLength),
		batches: make(chan *countedBatch, waitingBatches*counters), order: make(chan *countedBatch, (waitingBatches+1)*counters),
		done: make(chan struct{}), rest: func(wait func()) error { wait(); return nil }, added: func() {},
	}
}

// begin starts the counting. It ends with close or with ctx.
func (t *inputCounter) begin(ctx context.Context) *inputCounter {
	for range cap(t.batches) / waitingBatches {
		go func() {
			for batch := range t.batches {
				batch.err = t.turn(ctx, batch)
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

// A countedRow is a row of the input.
type countedRow struct {
	row  int64
	text string
}

// add adds the next row.
func (t *inputCounter) add(text string) error { return t.addRow(t.next, text) }

// addRow adds a row that need not be the next one.
func (t *inputCounter) addRow(row int64, text string) error {
	t.next = row + 1
	t.batch = append(t.batch, countedRow{row, text})
	if t.bytes += len(text); len(t.batch) == batchRows || t.bytes >= batchBytes {
		return t.flush()
	}
	return nil
}

// pass skips the next row.
func (t *inputCounter) pass() { t.next++ }

// flush passes the collected rows to the counting goroutines.
func (t *inputCounter) flush() error {
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

// err returns the reason why the job must not continue, from the rows counted so far.
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

// progress returns the size of the rows counted so far, and their number.
func (t *inputCounter) progress() (rows int64, size shard.Size) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rows, t.size
}

// close counts the remaining rows and returns the sum. It must be called once.
func (t *inputCounter) close() (shard.Size, error) {
	err := t.flush()
	close(t.batches)
	close(t.order)
	<-t.done
	if failed := t.err(); failed != nil {
		err = failed
	}
	return t.size, err
}

// counted returns the part of a row with tokens that can be counted.
func (t *inputCounter) counted(text string) string {
	if t.spec.Raw == nil {
		return text
	}
	return withoutData(text)
}

// turn counts the rows of a batch when a processor is available.
func (t *inputCounter) turn(ctx context.Context, batch *countedBatch) error {
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

func (t *inputCounter) count(batch *countedBatch) {
	batch.tokens, batch.bounds = make([]int, len(batch.rows)), make([]bool, len(batch.rows))
	for i, in := range batch.rows {
		if batch.tokens[i], batch.bounds[i] = t.bound(in.text); !batch.bounds[i] {
			batch.tokens[i] = t.counter.Count(t.counted(in.text))
		}
	}
}

// addUp adds the counts of a batch, one batch after another.
func (t *inputCounter) addUp(batch *countedBatch) {
	size, failure := t.size, t.failure // no other goroutine writes them
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
		if batch.bounds[i] && !t.within(size.Tokens+int64(n)) {
			n = t.counter.Count(t.counted(in.text))
		}
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
			size.SampleRows = in.row + 1
			size.SampleTokens += int64(n)
		}
		size.Tokens += int64(n)
		if t.useBounds.Load() {
			t.boundedRows, t.boundedTokens = in.row+1, size.Tokens
		}
		if quota := t.spec.TokenQuota; quota > 0 && size.Tokens-t.uncounted() > quota {
			failure = tooManyTokens(size.Tokens-t.uncounted(), in.row, t.spec)
		}
	}
	t.mu.Lock()
	t.size = size
	if quota := t.spec.TokenQuota; quota == 0 || size.Tokens <= quota {
		t.rows = batch.end
	}
	t.mu.Unlock()
	if failure != nil {
		t.end(failure, nil)
	}
	t.added()
}

// end notes the reason why the job must not continue.
func (t *inputCounter) end(failure *rowmill.Failure, fault error) {
	t.stopped.Store(true)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failure, t.fault = failure, fault
}
