package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

var _ store.Movable = (*Store)(nil)

// moved says of each bucket whose keys Export goes over. Of the others it finds what
// they hold by these, or they are indexes, which Import makes anew.
var moved = []struct {
	bucket []byte
	entry  func(t *tx, key, raw []byte) (store.Entry, error)
}{
	{bucketJobs, (*tx).movedJob},
	{bucketIdem, (*tx).movedIdempotency},
	{bucketUsage, func(_ *tx, key, raw []byte) (store.Entry, error) { return movedUsage(key, raw, false) }},
	{bucketKeyUsage, func(_ *tx, key, raw []byte) (store.Entry, error) { return movedUsage(key, raw, true) }},
	{bucketKeys, func(_ *tx, _, raw []byte) (e store.Entry, err error) { return e, json.Unmarshal(raw, &e.Key) }},
	{bucketValues, (*tx).movedValue},
	{bucketFiles, func(_ *tx, _, raw []byte) (e store.Entry, err error) { return e, json.Unmarshal(raw, &e.File) }},
	{bucketDeliveries, (*tx).movedDelivery},
	{bucketAudit, movedAudit},
}

// Export calls visit with all that is kept.
func (s *Store) Export(ctx context.Context, visit func(store.Entry) error) error {
	now := s.config.Clock()
	s.sessions.mu.Lock()
	for id := range s.sessions.live {
		if s.sessions.find(id) != nil {
			s.sessions.mu.Unlock()
			return fmt.Errorf("export records: a node runs, its session is %s: %w", id, rowmill.ErrConflict)
		}
	}
	s.sessions.mu.Unlock()
	err := s.view(ctx, func(t *tx) error {
		for _, m := range moved {
			err := t.Bucket(m.bucket).ForEach(func(key, raw []byte) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				e, err := m.entry(t, key, raw)
				if err != nil {
					return fmt.Errorf("bucket %s, key %q: %w", m.bucket, key, err)
				}
				if e == (store.Entry{}) || e.Idempotency != nil && !now.Before(e.Idempotency.Expires) {
					return nil
				}
				return visit(e)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("export records: %w", err)
	}
	return nil
}

func (t *tx) movedJob(key, _ []byte) (e store.Entry, err error) {
	id := string(key)
	h, err := t.header(id)
	if err == nil {
		err = h.CheckVersion()
	}
	if err != nil {
		return e, err
	}
	rec, err := t.record(h)
	if err != nil {
		return e, err
	}
	j := &store.MovedJob{Record: rec, Held: t.get(bucketHeld, heldKey(h.Account, rec)) != nil}
	j.Record.Session = ""
	err = t.eachPart(partsOf(id), func(_ []byte, p store.Part) error {
		j.Parts = append(j.Parts, p)
		return nil
	})
	c, prefix := t.Bucket(bucketPartKeys).Cursor(), partsOf(id)
	for key, place := c.Seek(prefix); bytes.HasPrefix(key, prefix); key, place = c.Next() {
		if bytes.Equal(place, gone) {
			j.Merged = append(j.Merged, string(key[len(prefix):]))
		}
	}
	return store.Entry{Job: j}, err
}

func (t *tx) movedIdempotency(key, raw []byte) (store.Entry, error) {
	var known idemRecord
	account, name, ok := strings.Cut(string(key), "\x00")
	if err := json.Unmarshal(raw, &known); err != nil || !ok {
		return store.Entry{}, fmt.Errorf("decode an idempotency key: %w", err)
	}
	return store.Entry{Idempotency: &store.MovedIdempotency{
		Account: account, Key: name, Job: known.JobID, BodyHash: known.BodyHash, Expires: known.Expires.Truncate(time.Millisecond),
	}}, nil
}

func movedUsage(key, raw []byte, keyed bool) (store.Entry, error) {
	var u used
	if err := json.Unmarshal(raw, &u); err != nil {
		return store.Entry{}, err
	}
	account, rest, ok := bytes.Cut(key, []byte{0})
	if !ok || len(rest) < 4 {
		return store.Entry{}, fmt.Errorf("no usage has such a key")
	}
	model, id := string(rest[4:]), ""
	if keyed {
		end := strings.LastIndexByte(model, 0)
		if end < 0 {
			return store.Entry{}, fmt.Errorf("no usage by key has such a key")
		}
		model, id = model[:end], model[end+1:]
	}
	return store.Entry{Usage: &store.MovedUsage{
		Account: string(account), KeyUsage: store.KeyUsage{Usage: u.on(binary.BigEndian.Uint32(rest), model), Key: id},
	}}, nil
}

func (t *tx) movedValue(key, _ []byte) (store.Entry, error) {
	doc, version, err := t.value(string(key))
	return store.Entry{Value: &store.MovedValue{Name: string(key), Version: version, Doc: doc}}, err
}

func (t *tx) movedDelivery(key, _ []byte) (store.Entry, error) {
	d, _, err := t.delivery(string(key))
	return store.Entry{Delivery: &store.MovedDelivery{Version: d.Version, Delivery: d}}, err
}

// movedAudit leaves out what stands once more under the account of all.
func movedAudit(_ *tx, key, raw []byte) (e store.Entry, err error) {
	if bytes.HasPrefix(key, []byte(everyone+"\x00")) {
		return e, nil
	}
	return e, json.Unmarshal(raw, &e.Audit)
}

// Import stores entries.
func (s *Store) Import(ctx context.Context, entries []store.Entry) error {
	err := s.write(ctx, func(t *tx) error {
		for _, e := range entries {
			if err := t.take(e); err != nil {
				return fmt.Errorf("%s: %w", e.Kind(), err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("import records: %w", err)
	}
	return nil
}

// take stores an entry.
func (t *tx) take(e store.Entry) error {
	switch {
	case e.Job != nil:
		return t.takeJob(e.Job)
	case e.Idempotency != nil:
		i := e.Idempotency
		key := idemKey(i.Account, i.Key)
		if err := t.putJSON(bucketIdem, key, idemRecord{JobID: i.Job, BodyHash: i.BodyHash, Expires: i.Expires}); err != nil {
			return err
		}
		return t.put(bucketIdemAge, append(position(i.Expires), key...), present)
	case e.Usage != nil:
		u := e.Usage
		bucket, key := bucketUsage, append(usageOf(u.Account, day(u.Day)), u.Model...)
		if u.Key != "" {
			bucket, key = bucketKeyUsage, append(append(key, 0), u.Key...)
		}
		return t.putJSON(bucket, key, used{u.Totals, u.Cost})
	case e.Key != nil:
		return t.putJSON(bucketKeys, []byte(e.Key.ID), e.Key)
	case e.Value != nil:
		raw := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(e.Value.Doc)), uint64(e.Value.Version))
		return t.put(bucketValues, []byte(e.Value.Name), append(raw, e.Value.Doc...))
	case e.File != nil:
		return t.putFile(*e.File)
	case e.Delivery != nil:
		d := e.Delivery.Delivery
		d.Version = e.Delivery.Version
		var before *store.Delivery
		if t.get(bucketDeliveries, []byte(d.ID)) != nil {
			old, _, err := t.delivery(d.ID)
			if err != nil {
				return err
			}
			before = &old
		}
		return t.saveDelivery(before, nil, d)
	case e.Audit != nil:
		return t.appendAudit(*e.Audit)
	}
	return fmt.Errorf("an entry holds nothing that this version of the program knows")
}

// putJSON writes a document.
func (t *tx) putJSON(bucket, key []byte, doc any) error {
	raw, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	return t.put(bucket, key, raw)
}

func (t *tx) takeJob(j *store.MovedJob) error {
	rec := j.Record
	id, account := []byte(rec.Job.ID), rec.Spec.Account
	spec, err := writeSpec(nil, rec.Spec)
	if err != nil {
		return err
	}
	var before *header
	if t.get(bucketJobs, id) != nil {
		h, err := t.header(rec.Job.ID)
		if err != nil {
			return err
		}
		before = &h
	}
	if err := t.put(bucketSpecs, id, spec); err != nil {
		return err
	}
	if err := t.list(rec); err != nil {
		return err
	}
	if err := t.save(before, rec, account); err != nil {
		return err
	}
	if key := heldKey(account, rec); !j.Held && t.get(bucketHeld, key) != nil {
		if err := t.del(bucketHeld, key); err != nil {
			return err
		}
	}
	for _, p := range j.Parts {
		if t.get(bucketPartKeys, append(partsOf(rec.Job.ID), p.Key...)) != nil {
			continue
		}
		if err := t.addPart(rec.Job.ID, p); err != nil {
			return err
		}
	}
	for _, key := range j.Merged {
		if err := t.put(bucketPartKeys, append(partsOf(rec.Job.ID), key...), gone); err != nil {
			return err
		}
	}
	return nil
}

// Clear removes everything.
func (s *Store) Clear(ctx context.Context) error {
	err := s.write(ctx, func(t *tx) error {
		t.wrote = true
		for _, name := range slices.DeleteFunc(slices.Clone(buckets), func(name []byte) bool { return bytes.Equal(name, bucketMeta) }) {
			if err := t.DeleteBucket(name); err != nil {
				return err
			}
			if _, err := t.CreateBucket(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("remove all records: %w", err)
	}
	return nil
}
