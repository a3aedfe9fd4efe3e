package ingest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/contain"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// An inputCounter counts the tokens of an input while it is read, on goroutines of
// its own, so that all processors share the time. Whoever reads gives it rows in
// their order and asks now and then whether to go on.
type inputCounter struct {
	counter *prompt.Counter
	spec    *rowmill.Spec
	limit   int   // tokens a prompt may have; 0 for no limit
	stop    int64 // tokens of the sample of an estimate

	// While rough is set rows are not counted but bounded; of the first roughRows
	// these are the bounds.
	rough       atomic.Bool
	roughRows   int64
	roughTokens int64

	// compute is Config.Compute, nil where none is to be waited for. rest is what the
	// reader waits in, with whatever it holds given up. added is called after each
	// change of what so returns.
	compute func(ctx context.Context) (leave func(), ok bool)
	rest    func(wait func()) error
	added   func()

	next    int64 // row
	handed  int64 // the same when rows were handed over last
	batch   []countedRow
	bytes   int
	batches chan *countedBatch // for any of the counters
	order   chan *countedBatch // the same, for who adds up
	done    chan struct{}
	over    atomic.Bool // what is counted from now on matters to nobody

	mu      sync.Mutex
	rows    int64 // up to this one they are in size, and within the quota whatever comes of bounds
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
	// waitingBatches is how many may wait for each counter.
	waitingBatches = 2
)

type countedBatch struct {
	rows    []countedRow
	end     int64  // the row that follows
	tokens  []int  // of each, once counted
	bounds  []bool // by row: tokens is the most it can have
	err     error
	counted chan struct{} // closed then
	added   chan struct{} // closed when it is added up
}

func newInputCounter(c *prompt.Counter, spec *rowmill.Spec, sample int64) *inputCounter {
	counters := runtime.GOMAXPROCS(0)
	return &inputCounter{
		counter: c, spec: spec, stop: sample, limit: spec.PromptLimit(spec.Model.ContextLength),
		batches: make(chan *countedBatch, waitingBatches*counters), order: make(chan *countedBatch, (waitingBatches+1)*counters),
		done: make(chan struct{}), rest: func(wait func()) error { wait(); return nil }, added: func() {},
	}
}

// begin starts the counting, which ends with close, or with ctx.
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
			if err := contain.Run(func() error { t.addUp(batch); return nil }); err != nil {
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

// add takes the next row.
func (t *inputCounter) add(text string) error { return t.addRow(t.next, text) }

// addRow takes a row that need not be the next.
func (t *inputCounter) addRow(row int64, text string) error {
	t.next = row + 1
	t.batch = append(t.batch, countedRow{row, text})
	if t.bytes += len(text); len(t.batch) == batchRows || t.bytes >= batchBytes {
		return t.hand()
	}
	return nil
}

// pass leaves the next row out.
func (t *inputCounter) pass() { t.next++ }

// hand gives the rows there are to the counters.
func (t *inputCounter) hand() error {
	if t.next == t.handed {
		return nil
	}
	t.handed = t.next
	batch := &countedBatch{rows: t.batch, end: t.next, counted: make(chan struct{}), added: make(chan struct{})}
	large := t.bytes >= largeBatch
	t.batch, t.bytes = nil, 0
	if !large && len(t.batches) < cap(t.batches) && len(t.order) < cap(t.order) { // nobody else sends
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

// so returns what is counted so far: the size of the first rows.
func (t *inputCounter) so() (rows int64, size shard.Size) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rows, t.size
}

// close counts what is left and returns the sum. It must be called once.
func (t *inputCounter) close() (shard.Size, error) {
	err := t.hand()
	close(t.batches)
	close(t.order)
	<-t.done
	if failed := t.err(); failed != nil {
		err = failed
	}
	return t.size, err
}

// counted is what of a row has tokens that can be counted.
func (t *inputCounter) counted(text string) string {
	if t.spec.Raw == nil {
		return text
	}
	return withoutData(text)
}

// turn counts the rows of a batch once it is their turn.
func (t *inputCounter) turn(ctx context.Context, batch *countedBatch) error {
	if t.over.Load() {
		return nil
	}
	if t.compute != nil {
		leave, ok := t.compute(ctx)
		if !ok {
			return ctx.Err()
		}
		defer leave()
	}
	return contain.Run(func() error { t.count(batch); return nil })
}

func (t *inputCounter) count(batch *countedBatch) {
	batch.tokens, batch.bounds = make([]int, len(batch.rows)), make([]bool, len(batch.rows))
	for i, in := range batch.rows {
		if batch.tokens[i], batch.bounds[i] = t.bound(in.text); !batch.bounds[i] {
			batch.tokens[i] = t.counter.Count(t.counted(in.text))
		}
	}
}

// addUp takes in a batch that is counted, one after another.
func (t *inputCounter) addUp(batch *countedBatch) {
	size, failure := t.size, t.failure // nobody else writes them
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
		if t.rough.Load() {
			t.roughRows, t.roughTokens = in.row+1, size.Tokens
		}
		if quota := t.spec.TokenQuota; quota > 0 && size.Tokens-t.head() > quota {
			failure = tooManyTokens(size.Tokens-t.head(), in.row, t.spec)
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

// end notes why the job must not go on.
func (t *inputCounter) end(failure *rowmill.Failure, fault error) {
	t.over.Store(true)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failure, t.fault = failure, fault
}
