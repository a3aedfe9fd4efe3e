package actors

import (
	"slices"
	"time"

	"github.com/rowmill/rowmill/actors/dispatch"
)

// A batch is finished rows of one shard on their way into the record.
type batch struct {
	tasks []*dispatch.Task
	bytes int64
	since time.Time // when the first of them was finished
}

// unsettled are the batches of a worker that are cut, until their parts are
// settled.
type unsettled struct {
	batches []*batch
	bytes   int64             // of them
	parts   map[string]*batch // those that are durable, by the key of their part
}

func newUnsettled() unsettled { return unsettled{parts: make(map[string]*batch)} }

// cut takes in a batch that is to be written.
func (u *unsettled) cut(b *batch) {
	u.batches = append(u.batches, b)
	u.bytes += b.bytes
}

// wrote notes under which key a batch is durable.
func (u *unsettled) wrote(key string, b *batch) { u.parts[key] = b }

// settle lets go of the batch in a part.
func (u *unsettled) settle(key string) {
	b := u.parts[key]
	if b == nil {
		return
	}
	delete(u.parts, key)
	u.bytes -= b.bytes
	u.batches = slices.DeleteFunc(u.batches, func(have *batch) bool { return have == b })
}

// waits reports whether a row that was finished before then is among them.
func (u *unsettled) waits(then time.Time) bool {
	return slices.ContainsFunc(u.batches, func(b *batch) bool { return b.since.Before(then) })
}
