package records

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store/kv"
	"github.com/rowmill/rowmill/store/storetest"
)

const Layout = layout

// Tables lists all tables except meta.
var Tables = tables

// SetLayout stores another layout number, as a newer program does.
func SetLayout(ctx context.Context, backend kv.Backend, layout int64) error {
	return backend.Update(ctx, func(t kv.Tx) error {
		t.Put(tableMeta, keyLayout, binary.BigEndian.AppendUint64(nil, uint64(layout)))
		return nil
	})
}

// FirstKey returns the first key of a table.
func FirstKey(t testing.TB, s *Store, table kv.Table) (key []byte) {
	t.Helper()
	must.Succeed(t, s.view(t.Context(), func(t *tx) error {
		for e, err := range t.Scan(kv.Range{Table: table}) {
			key = bytes.Clone(e.Key)
			return err
		}
		return nil
	}))
	return key
}

// Counts returns the number of keys in each table.
func (s *Store) Counts(t testing.TB) map[string]int {
	counts := map[string]int{}
	must.Succeed(t, s.view(t.Context(), func(t *tx) error {
		for _, table := range tables {
			counts[string(table)] = 0
			for _, err := range t.Scan(kv.Range{Table: table}) {
				if err != nil {
					return err
				}
				counts[string(table)]++
			}
		}
		return nil
	}))
	return counts
}

// EditDocuments calls edit for all documents, as storetest.Harness requires.
func (s *Store) EditDocuments(ctx context.Context, edit func(kind, id string, doc []byte) []byte) error {
	whole := func(kind string) func(key, doc []byte) ([]byte, error) {
		return func(key, doc []byte) ([]byte, error) { return edit(kind, string(key), doc), nil }
	}
	return s.write(ctx, func(t *tx) error {
		for table, edit := range map[kv.Table]func(key, doc []byte) ([]byte, error){
			tableJobs: func(key, doc []byte) ([]byte, error) {
				return editStatus(edit(storetest.DocJob, string(key), doc), string(key), edit)
			},
			tableSpecs: func(key, doc []byte) ([]byte, error) {
				small, err := firstSection(doc)
				if err != nil {
					return nil, err
				}
				rest := doc[len(appendSection(nil, small)):]
				return append(appendSection(nil, edit(storetest.DocSpec, string(key), small)), rest...), nil
			},
			tableParts: func(key, doc []byte) ([]byte, error) {
				var part struct{ Key string }
				if err := json.Unmarshal(doc, &part); err != nil {
					return nil, err
				}
				job, _, _ := bytes.Cut(key, []byte{0})
				return edit(storetest.DocPart, string(job)+" "+part.Key, doc), nil
			},
			tableKeys: whole(storetest.DocKey),
			tableDeliveries: func(key, doc []byte) ([]byte, error) {
				return append(bytes.Clone(doc[:8]), edit(storetest.DocDelivery, string(key), doc[8:])...), nil
			},
			tableAudit: whole(storetest.DocAudit),
		} {
			for e, err := range t.Scan(kv.Range{Table: table}) {
				if err != nil {
					return err
				}
				doc, err := edit(bytes.Clone(e.Key), bytes.Clone(e.Value))
				if err != nil {
					return err
				}
				t.Put(table, e.Key, doc)
			}
		}
		return nil
	})
}

// editStatus edits the status in a header.
func editStatus(doc []byte, id string, edit func(kind, id string, doc []byte) []byte) ([]byte, error) {
	var header struct {
		Job struct {
			Status json.RawMessage `json:"status"`
		} `json:"job"`
	}
	if err := json.Unmarshal(doc, &header); err != nil {
		return nil, err
	}
	before := append([]byte(`"status":`), header.Job.Status...)
	after := append([]byte(`"status":`), edit(storetest.DocStatus, id, header.Job.Status)...)
	return bytes.Replace(doc, before, after, 1), nil
}
