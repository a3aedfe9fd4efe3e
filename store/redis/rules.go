package redis

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// maxName is the longest account, job id, part key, API key id or value name
// in bytes.
const maxName = 1024

// checkName refuses what cannot be part of a key.
func checkName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s is empty", what)
	case len(name) > maxName:
		return fmt.Errorf("%s is %d bytes long, at most %d are allowed", what, len(name), maxName)
	case strings.IndexByte(name, 0) >= 0:
		return fmt.Errorf("%s holds a NUL byte", what)
	}
	return nil
}

// checkNew refuses a record that is no new job.
func checkNew(rec store.Record, idem *store.Idempotency) error {
	if err := checkName("the job id", rec.Job.ID); err != nil {
		return err
	}
	if err := checkName("the account", rec.Spec.Account); err != nil {
		return err
	}
	if rec.Job.Status != rowmill.StatusPending {
		return fmt.Errorf("its status is %q, a new job is %q", rec.Job.Status, rowmill.StatusPending)
	}
	if rec.Job.Created.IsZero() {
		return errors.New("its time of creation is not set")
	}
	if idem == nil {
		return nil
	}
	if err := checkName("the idempotency key", idem.Key); err != nil {
		return err
	}
	if idem.TTL <= 0 {
		return fmt.Errorf("its idempotency key is kept for %v, which must be positive", idem.TTL)
	}
	return nil
}

// kept is what a change must leave alone, copied out of reach of the change.
type kept struct {
	id       string
	created  time.Time
	run      rowmill.RunType
	status   rowmill.Status
	counted  bool // NumRows is set
	rows     int64
	session  string
	epoch    int64
	version  int64
	schema   int
	reserved rowmill.Money
}

func keep(rec store.Record) kept {
	k := kept{
		id: rec.Job.ID, created: rec.Job.Created, run: rec.Job.RunType, status: rec.Job.Status,
		session: rec.Session, epoch: rec.Epoch, version: rec.Version, schema: rec.SchemaVersion, reserved: rec.Reserved,
	}
	if rec.Job.NumRows != nil {
		k.counted, k.rows = true, *rec.Job.NumRows
	}
	return k
}

// check refuses a change of what never changes, and a status step that the
// state machine lacks. The specification is compared once it is encoded.
func (k kept) check(rec *store.Record) error {
	switch {
	case rec.Job.ID != k.id:
		return errors.New("its id cannot change")
	case !rec.Job.Created.Equal(k.created):
		return errors.New("its time of creation cannot change")
	case rec.Job.RunType != k.run:
		return errors.New("its run type cannot change")
	case rec.Reserved != k.reserved:
		return errors.New("what it has reserved is changed by Reserve alone")
	case rec.Session != k.session || rec.Epoch != k.epoch:
		return errors.New("its owner and epoch are changed by Claim and Release alone")
	case rec.Version != k.version || rec.SchemaVersion != k.schema:
		return errors.New("its versions are changed by the store alone")
	case k.counted && (rec.Job.NumRows == nil || *rec.Job.NumRows != k.rows):
		return fmt.Errorf("its number of rows is %d and cannot change", k.rows)
	case rec.Job.Status != k.status && !reachable(k.status, rec.Job.Status):
		return &rowmill.TransitionError{From: k.status, To: rec.Job.Status}
	}
	return nil
}

// reachable reports whether to can follow from, over any number of steps. The
// states have an order, so the search ends.
func reachable(from, to rowmill.Status) bool {
	if from.CanBecome(to) {
		return true
	}
	for _, next := range rowmill.Statuses() {
		if from.CanBecome(next) && reachable(next, to) {
			return true
		}
	}
	return false
}
