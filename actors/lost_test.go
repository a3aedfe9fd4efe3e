package actors_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
	"github.com/rowmill/rowmill/store"
)

// rewrite replaces an object by what change makes of its bytes.
func (b *rig) rewrite(key string, change func([]byte) []byte) {
	b.t.Helper()
	o := must.Get(b.cfg.Blob.Open(b.t.Context(), key))(b.t)
	content := must.Get(io.ReadAll(blob.NewReader(o)))(b.t)
	o.Close()
	w := must.Get(b.cfg.Blob.Create(b.t.Context(), key, layout.Parquet))(b.t)
	must.Get(w.Write(change(content)))(b.t)
	must.Get(w.Commit())(b.t)
}

// damages are what storage may do to an object that a record names.
var damages = map[string]func(b *rig, key string){
	"deleted": func(b *rig, key string) {
		b.t.Helper()
		must.Succeed(b.t, b.cfg.Blob.Delete(b.t.Context(), key))
	},
	"cut in half": func(b *rig, key string) {
		b.rewrite(key, func(content []byte) []byte { return content[:len(content)/2] })
	},
	"empty": func(b *rig, key string) { b.rewrite(key, func([]byte) []byte { return nil }) },
	"one bit flipped": func(b *rig, key string) {
		b.rewrite(key, func(content []byte) []byte {
			content[len(content)/8] ^= 4 // in a page
			return content
		})
	},
	"footer damaged": func(b *rig, key string) {
		b.rewrite(key, func(content []byte) []byte {
			content[len(content)-20] ^= 4
			return content
		})
	},
}

// A part that cannot be read costs its rows another run, and nothing else.
func TestALostPartRunsAgain(t *testing.T) {
	t.Parallel()
	for name, damage := range damages {
		for _, dedup := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " with copies"}[dedup], func(t *testing.T) {
				t.Parallel()
				inVirtualTime(t, func(t *testing.T) {
					damaged := make(chan struct{})
					e := &scripted{answer: func(ctx context.Context, row string, try int) (engine.Reply, error) {
						if strings.HasSuffix(row, " 19") {
							select {
							case <-damaged:
							case <-ctx.Done():
								return engine.Reply{}, ctx.Err()
							}
						}
						return echo(ctx, row, try)
					}}
					b := setup(t, e)
					texts := numbered(20)
					if dedup {
						texts = append(texts, texts...)
					}
					id := b.submit(rowmill.Spec{Inline: texts, RowRules: rowmill.RowRules{Dedup: dedup}})
					b.await(id, func(r store.Record) bool { return r.Job.RowsDone >= 10 })
					parts := must.Get(b.store.ListParts(t.Context(), id))(t)
					lost := parts[0]
					damage(b, lost.Key)
					close(damaged)
					rec := b.end(id)
					b.checkEcho(rec, texts)
					if rec.Lost.Rows < lost.Rows || rec.Job.RowsDone != int64(len(texts)) {
						t.Errorf("%d rows are lost, want %d or more; %d rows are done", rec.Lost.Rows, lost.Rows, rec.Job.RowsDone)
					}
					if !slices.ContainsFunc(rec.Job.Warnings, func(w string) bool { return strings.Contains(w, "lost rows") }) {
						t.Errorf("warnings %q", rec.Job.Warnings)
					}
					ran := rec.Lost.Rows - rec.Lost.Deduplicated + 20
					if n := e.calls.Load(); n != ran {
						t.Errorf("%d rows were sent, want %d", n, ran)
					}
					if used := b.spent(); used.Rows != int64(len(texts))+rec.Lost.Rows || used.InputTokens != *rec.Job.InputTokens {
						t.Errorf("the account paid %+v; the job has %d input tokens", used, *rec.Job.InputTokens)
					}
				})
			})
		}
	}
}

// A node that drains does not wait for a missing part that a merge needs. The next start of the
// node continues the job.
func TestADrainDoesNotWaitForALostPart(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		damaged := make(chan struct{})
		e := &scripted{answer: func(ctx context.Context, row string, try int) (engine.Reply, error) {
			if strings.HasSuffix(row, " 19") {
				<-damaged
			}
			return echo(ctx, row, try)
		}}
		b := setup(t, e)
		texts := numbered(20)
		id := b.submit(rowmill.Spec{Inline: texts})
		b.await(id, func(r store.Record) bool { return r.Job.RowsDone >= 10 })
		parts := must.Get(b.store.ListParts(t.Context(), id))(t)
		must.Succeed(t, b.cfg.Blob.Delete(t.Context(), parts[0].Key))
		close(damaged)
		b.await(id, func(r store.Record) bool { return r.Job.RowsDone == 20 })
		time.Sleep(5 * time.Second) // the merge waits for the part
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := b.system.Drain(ctx); err != nil {
			t.Errorf("drain: %v after %v", err, time.Since(began))
		}
		must.Succeed(t, b.system.Stop(t.Context()))
		b.start()
		b.checkEcho(b.end(id), texts)
	})
}

// An unreliable bucket acknowledges the first object of a kind, and does not store it, or
// shows each object only after a time.
type unreliableBucket struct {
	blob.Bucket
	kind   string        // a part of the key
	late   time.Duration // after which an object is shown; 0 if the first is not stored
	mu     sync.Mutex
	lost   bool
	stored map[string]time.Time
}

type unreliableWriter struct {
	blob.Writer
	bucket *unreliableBucket
	key    string
}

func (b *unreliableBucket) Create(ctx context.Context, key, contentType string) (blob.Writer, error) {
	w, err := b.Bucket.Create(ctx, key, contentType)
	if err != nil || !strings.Contains(key, b.kind) {
		return w, err
	}
	return &unreliableWriter{w, b, key}, nil
}

func (w *unreliableWriter) Commit() (blob.ObjectInfo, error) {
	info, err := w.Writer.Commit()
	w.bucket.mu.Lock()
	defer w.bucket.mu.Unlock()
	w.bucket.stored[w.key] = time.Now()
	if err == nil && w.bucket.late == 0 && !w.bucket.lost {
		w.bucket.lost = true
		err = w.bucket.Bucket.Delete(context.Background(), w.key)
	}
	return info, err
}

func (b *unreliableBucket) Open(ctx context.Context, key string) (blob.Object, error) {
	b.mu.Lock()
	at, known := b.stored[key]
	b.mu.Unlock()
	if known && time.Since(at) < b.late {
		return nil, rowmill.ErrNotFound
	}
	return b.Bucket.Open(ctx, key)
}

// Storage that does not store what it acknowledged, or shows it late, costs time and no rows.
func TestUnreliableStorage(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"/parts/", "/results/full-", "/results/rows-"} {
		for _, late := range []time.Duration{0, 3 * time.Second} {
			t.Run(kind+map[bool]string{true: "late", false: "lost"}[late > 0], func(t *testing.T) {
				t.Parallel()
				inVirtualTime(t, func(t *testing.T) {
					e := &scripted{answer: echo}
					b := setup(t, e, func(c *actors.Config) {
						c.Blob = &unreliableBucket{Bucket: c.Blob, kind: kind, late: late, stored: map[string]time.Time{}}
					})
					texts := numbered(20)
					rec := b.end(b.submit(rowmill.Spec{Inline: texts}))
					b.checkEcho(rec, texts)
					if n := e.calls.Load(); n != 20 || rec.Lost.Rows != 0 {
						t.Errorf("%d rows were sent, %d are lost", n, rec.Lost.Rows)
					}
				})
			})
		}
	}
}

// A continuation runs the rows of a lost part of the ended job, and takes the other rows over.
func TestResume_LostPart(t *testing.T) {
	t.Parallel()
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(t *testing.T) {
				var blocked atomic.Bool
				blocked.Store(true)
				e := &scripted{answer: func(ctx context.Context, row string, try int) (engine.Reply, error) {
					if strings.HasSuffix(row, " 19") && blocked.Load() {
						<-ctx.Done()
						return engine.Reply{}, ctx.Err()
					}
					return echo(ctx, row, try)
				}}
				b := setup(t, e, func(c *actors.Config) { c.Inputs.Retention = week })
				texts := numbered(20)
				id := b.submit(rowmill.Spec{Inline: texts})
				b.await(id, func(r store.Record) bool { return r.Job.RowsDone == 19 })
				old := must.Get(b.store.Cancel(t.Context(), id, time.Now(), nil))(t)
				time.Sleep(time.Minute) // a missing object may appear until then
				blocked.Store(false)
				parts := must.Get(b.store.ListParts(t.Context(), id))(t)
				damage(b, parts[0].Key)
				before := e.calls.Load()
				rec := b.end(b.resume(old, false))
				b.checkEcho(rec, texts)
				if ran := e.calls.Load() - before; ran != parts[0].Rows+1 || rec.Job.RowsTakenOver != 19-parts[0].Rows {
					t.Errorf("%d rows were sent, %d were taken over; %d are lost", ran, rec.Job.RowsTakenOver, parts[0].Rows)
				}
				if old := b.end(id); old.Lost.Rows != parts[0].Rows {
					t.Errorf("the ended job has lost %d rows, want %d", old.Lost.Rows, parts[0].Rows)
				}
			})
		})
	}
}

// If the part with the rows that a job took over is lost, the job takes them over again.
func TestResume_LostCarriedPart(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		var blocked atomic.Bool
		blocked.Store(true)
		e := &scripted{answer: func(ctx context.Context, row string, try int) (engine.Reply, error) {
			for strings.HasSuffix(row, " 19") && blocked.Load() && ctx.Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
			return echo(ctx, row, try)
		}}
		b := setup(t, e, func(c *actors.Config) { c.Inputs.Retention = week })
		texts := numbered(20)
		id := b.submit(rowmill.Spec{Inline: texts})
		b.await(id, func(r store.Record) bool { return r.Job.RowsDone == 19 })
		old, err := b.store.Cancel(t.Context(), id, time.Now(), nil)
		must.Succeed(t, err)
		before := e.calls.Load()
		next := b.resume(old, false)
		b.await(next, func(r store.Record) bool { return r.Job.Status == rowmill.StatusRunning && r.Job.RowsTakenOver == 19 })
		parts, err := b.store.ListParts(t.Context(), next)
		if err != nil || len(parts) != 1 || !parts[0].Carried {
			t.Fatalf("parts %+v, %v", parts, err)
		}
		damages["cut in half"](b, parts[0].Key)
		blocked.Store(false)
		rec := b.end(next)
		b.checkEcho(rec, texts)
		if ran := e.calls.Load() - before; ran > 2 || rec.Job.RowsTakenOver != 19 || rec.Lost.Rows != 0 {
			t.Errorf("%d rows were sent, %d were taken over, %d are lost", ran, rec.Job.RowsTakenOver, rec.Lost.Rows)
		}
	})
}

// A result that storage has damaged is made again while the parts are there.
func TestADamagedResultIsMadeAgain(t *testing.T) {
	t.Parallel()
	for name, damage := range damages {
		if name == "one bit flipped" {
			continue // the clean-up reads only the footer
		}
		for _, result := range []string{layout.Full, layout.Rows} {
			t.Run(name+" "+result, func(t *testing.T) {
				t.Parallel()
				inVirtualTime(t, func(t *testing.T) {
					b := setup(t, &scripted{answer: echo}, func(c *actors.Config) { c.Ownership.Settle = 2 * time.Second })
					texts := numbered(20)
					rec := b.end(b.submit(rowmill.Spec{Inline: texts}))
					damage(b, rec.Artifacts[result].Key)
					wait.For(t, "the parts are gone", func() bool {
						records, objects := b.parts(rec.Job.ID)
						return records+objects == 0
					})
					b.checkEcho(b.end(rec.Job.ID), texts)
				})
			})
		}
	}
}
