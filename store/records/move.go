package records

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv"
)

var _ store.MovableStore = (*Store)(nil)

// exportedTables lists the tables that Export scans, and the functions that turn their
// entries into store.ExportEntry. Export reads some of the other tables by the keys that it
// finds. All other tables are indexes, which Import builds again.
var exportedTables = []struct {
	table kv.Table
	entry func(t *tx, key, raw []byte) (store.ExportEntry, error)
}{
	{tableJobs, (*tx).exportJob},
	{tableIdem, (*tx).exportIdempotency},
	{tableUsage, func(_ *tx, key, raw []byte) (store.ExportEntry, error) { return exportUsage(key, raw, false) }},
	{tableKeyUsage, func(_ *tx, key, raw []byte) (store.ExportEntry, error) { return exportUsage(key, raw, true) }},
	{tableKeys, func(_ *tx, _, raw []byte) (e store.ExportEntry, err error) { return e, json.Unmarshal(raw, &e.Key) }},
	{tableValues, (*tx).exportValue},
	{tableFiles, func(_ *tx, _, raw []byte) (e store.ExportEntry, err error) { return e, json.Unmarshal(raw, &e.File) }},
	{tableDeliveries, (*tx).exportDelivery},
	{tableAudit, exportAudit},
}

// Export calls visit with each stored entry.
func (s *Store) Export(ctx context.Context, visit func(store.ExportEntry) error) error {
	live := 0
	err := s.backend.View(ctx, checkLayout)
	if err == nil {
		live, err = s.CountLiveSessions(ctx)
	}
	if err == nil && live > 0 {
		err = fmt.Errorf("nodes are running (%d); stop them first: %w", live, rowmill.ErrConflict)
	}
	if err == nil {
		err = s.view(ctx, func(t *tx) error { return t.export(ctx, visit) })
	}
	if err != nil {
		return fmt.Errorf("export records: %w", err)
	}
	return nil
}

func (t *tx) export(ctx context.Context, visit func(store.ExportEntry) error) error {
	for _, m := range exportedTables {
		for found, err := range t.Scan(kv.Range{Table: m.table}) {
			if err := cmp.Or(err, ctx.Err()); err != nil {
				return err
			}
			e, err := m.entry(t, found.Key, found.Value)
			if err != nil {
				return fmt.Errorf("table %s, key %q: %w", m.table, found.Key, err)
			}
			if e == (store.ExportEntry{}) || e.Idempotency != nil && !t.Now().Before(e.Idempotency.Expires) {
				continue
			}
			if err := visit(e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *tx) exportJob(key, _ []byte) (e store.ExportEntry, err error) {
	id := string(key)
	h, err := t.readHeader(id)
	if err == nil {
		err = h.CheckVersion()
	}
	if err != nil {
		return e, err
	}
	rec, err := t.completeRecord(h)
	if err != nil {
		return e, err
	}
	j := &store.JobExport{Record: rec}
	j.Record.Session = ""
	for p, err := range t.scanAllParts(partsPrefix(id)) {
		switch {
		case err != nil:
			return e, err
		case p.Lost:
			j.Lost = append(j.Lost, p.Part)
		default:
			j.Parts = append(j.Parts, p.Part)
		}
	}
	prefix := partsPrefix(id)
	for found, err := range t.Scan(kv.PrefixRange(tablePartKeys, prefix)) {
		if err != nil {
			return e, err
		}
		if bytes.Equal(found.Value, mergedAway) {
			j.Merged = append(j.Merged, string(found.Key[len(prefix):]))
		}
	}
	return store.ExportEntry{Job: j}, nil
}

func (t *tx) exportIdempotency(key, raw []byte) (store.ExportEntry, error) {
	var known idemRecord
	account, name, ok := strings.Cut(string(key), "\x00")
	if !ok {
		return store.ExportEntry{}, fmt.Errorf("the key of an idempotency record has no account: %q", key)
	}
	if err := json.Unmarshal(raw, &known); err != nil {
		return store.ExportEntry{}, fmt.Errorf("decode an idempotency key: %w", err)
	}
	return store.ExportEntry{Idempotency: &store.IdempotencyExport{
		Account: account, Key: name, Job: known.JobID, BodyHash: known.BodyHash, Expires: known.Expires.Truncate(time.Millisecond),
	}}, nil
}

func exportUsage(key, raw []byte, keyed bool) (store.ExportEntry, error) {
	u, err := decodeModelUsage(raw)
	if err != nil {
		return store.ExportEntry{}, err
	}
	account, rest, ok := bytes.Cut(key, []byte{0})
	if !ok || len(rest) < 4 {
		return store.ExportEntry{}, fmt.Errorf("the key of a usage counter is malformed")
	}
	model, id := string(rest[4:]), ""
	if keyed {
		end := strings.LastIndexByte(model, 0)
		if end < 0 {
			return store.ExportEntry{}, fmt.Errorf("the key of a usage counter by API key is malformed")
		}
		model, id = model[:end], model[end+1:]
	}
	return store.ExportEntry{Usage: &store.UsageExport{
		Account: string(account), KeyUsage: store.KeyUsage{Usage: u.toUsage(binary.BigEndian.Uint32(rest), model), Key: id},
	}}, nil
}

func (t *tx) exportValue(key, _ []byte) (store.ExportEntry, error) {
	doc, version, err := t.readValue(string(key))
	return store.ExportEntry{Value: &store.ValueExport{Name: string(key), Version: version, Doc: doc}}, err
}

func (t *tx) exportDelivery(key, raw []byte) (store.ExportEntry, error) {
	d, _, err := decodeDelivery(string(key), raw)
	return store.ExportEntry{Delivery: &store.DeliveryExport{Version: d.Version, Delivery: d}}, err
}

// exportAudit decodes an audit entry. It skips the second copy of each entry, see allAccounts.
func exportAudit(_ *tx, key, raw []byte) (e store.ExportEntry, err error) {
	if bytes.HasPrefix(key, []byte(allAccounts+"\x00")) {
		return e, nil
	}
	return e, json.Unmarshal(raw, &e.Audit)
}

// Import stores exported entries. It replaces records with the same names.
func (s *Store) Import(ctx context.Context, entries []store.ExportEntry) error {
	err := s.write(ctx, func(t *tx) error {
		for _, e := range entries {
			if err := t.importEntry(e); err != nil {
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

func (t *tx) importEntry(e store.ExportEntry) error {
	switch {
	case e.Job != nil:
		return t.importJob(e.Job)
	case e.Idempotency != nil:
		i := e.Idempotency
		return t.putIdem(idemKey(i.Account, i.Key), idemRecord{JobID: i.Job, BodyHash: i.BodyHash, Expires: i.Expires})
	case e.Usage != nil:
		return t.importUsage(e.Usage)
	case e.Key != nil:
		return t.putJSON(tableKeys, []byte(e.Key.ID), e.Key)
	case e.Value != nil:
		raw := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(e.Value.Doc)), uint64(e.Value.Version))
		t.Put(tableValues, []byte(e.Value.Name), append(raw, e.Value.Doc...))
		return nil
	case e.File != nil:
		raw, err := json.Marshal(e.File)
		if err != nil {
			return err
		}
		t.putFile(*e.File, raw)
		return nil
	case e.Delivery != nil:
		d := e.Delivery.Delivery
		d.Version = e.Delivery.Version
		old, _, err := t.readDelivery(d.ID)
		switch {
		case errors.Is(err, rowmill.ErrNotFound):
			return t.saveDelivery(nil, nil, d)
		case err != nil:
			return err
		}
		return t.saveDelivery(&old, nil, d)
	case e.Audit != nil:
		return t.appendAudit(*e.Audit)
	}
	return fmt.Errorf("the entry has a kind that this version of the program does not know; use the version that wrote the entry")
}

// importUsage sets the counters of a usage to the amounts in u. It adds the differences,
// because Put must never write a key that has counters.
func (t *tx) importUsage(u *store.UsageExport) error {
	table, key := tableUsage, append(usagePrefix(u.Account, dayNumber(u.Day)), u.Model...)
	if u.Key != "" {
		table, key = tableKeyUsage, append(append(key, 0), u.Key...)
	}
	raw, err := t.Get(table, key)
	if err != nil {
		return err
	}
	known, err := kv.DecodeCounters(raw)
	if err != nil {
		return err
	}
	more := modelUsage{u.Totals, u.Cost}.counters()
	for i, n := range known[:min(len(known), len(more))] {
		more[i] -= n
	}
	t.AddToCounters(table, key, more...)
	return nil
}

// putJSON writes doc as JSON under a key.
func (t *tx) putJSON(table kv.Table, key []byte, doc any) error {
	raw, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	t.Put(table, key, raw)
	return nil
}

func (t *tx) importJob(j *store.JobExport) error {
	rec := j.Record
	id, account := []byte(rec.Job.ID), rec.Spec.Account
	spec, err := encodeSpec(nil, rec.Spec)
	if err != nil {
		return err
	}
	var before *jobHeader
	switch h, err := t.readHeader(rec.Job.ID); {
	case err == nil:
		before = &h
	case !errors.Is(err, rowmill.ErrNotFound):
		return err
	}
	t.Put(tableSpecs, id, spec)
	t.addToAccountLists(rec)
	if err := t.saveRecord(before, rec, account); err != nil {
		return err
	}
	for i, p := range slices.Concat(j.Parts, j.Lost) {
		known, err := t.Get(tablePartKeys, append(partsPrefix(rec.Job.ID), p.Key...))
		if err == nil && known == nil {
			err = t.addPart(rec.Job.ID, rec.Version, i, p)
		}
		if err == nil && i >= len(j.Parts) {
			err = t.markPartLost(rec.Job.ID, p)
		}
		if err != nil {
			return err
		}
	}
	for _, key := range j.Merged {
		t.Put(tablePartKeys, append(partsPrefix(rec.Job.ID), key...), mergedAway)
	}
	return nil
}

// Clear removes all entries of all tables except meta.
func (s *Store) Clear(ctx context.Context) error {
	for _, table := range tables {
		for n := dropChunk; n == dropChunk; {
			err := s.write(ctx, func(t *tx) (err error) {
				n, err = t.dropPrefixChunk(table, nil)
				return err
			})
			if err != nil {
				return fmt.Errorf("remove all records: %w", err)
			}
		}
	}
	return nil
}
