package bolt

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/rowmill/rowmill/store/storetest"
)

// PagesWritten is how many pages were allocated for writing since Open.
func (s *Store) PagesWritten() int64 {
	stats := s.db.Stats()
	return stats.TxStats.GetPageAlloc() / int64(s.db.Info().PageSize)
}

// Counts are the keys of each bucket.
func (s *Store) Counts(t testing.TB) map[string]int {
	counts := map[string]int{}
	err := s.view(t.Context(), func(tx *tx) error {
		for _, name := range buckets {
			counts[string(name)] = tx.Bucket(name).Stats().KeyN
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

// EditDocuments goes over all documents, as storetest.Harness says.
func (s *Store) EditDocuments(ctx context.Context, edit func(kind, id string, doc []byte) []byte) error {
	return s.write(ctx, func(t *tx) error {
		for _, walk := range []struct {
			bucket []byte
			edit   func(key, doc []byte) ([]byte, error)
		}{
			{bucketJobs, func(key, doc []byte) ([]byte, error) {
				return editStatus(edit(storetest.DocJob, string(key), doc), string(key), edit)
			}},
			{bucketSpecs, func(key, doc []byte) ([]byte, error) {
				small, err := firstSection(doc)
				if err != nil {
					return nil, err
				}
				rest := doc[len(appendSection(nil, small)):]
				return append(appendSection(nil, edit(storetest.DocSpec, string(key), small)), rest...), nil
			}},
			{bucketParts, func(key, doc []byte) ([]byte, error) {
				var part struct{ Key string }
				if err := json.Unmarshal(doc, &part); err != nil {
					return nil, err
				}
				job, _, _ := bytes.Cut(key, []byte{0})
				return edit(storetest.DocPart, string(job)+" "+part.Key, doc), nil
			}},
			{bucketKeys, func(key, doc []byte) ([]byte, error) { return edit(storetest.DocKey, string(key), doc), nil }},
			{bucketUsage, func(key, doc []byte) ([]byte, error) { return edit(storetest.DocUsage, string(key), doc), nil }},
			{bucketKeyUsage, func(key, doc []byte) ([]byte, error) {
				return edit(storetest.DocUsage, "by key "+string(key), doc), nil
			}},
			{bucketDeliveries, func(key, doc []byte) ([]byte, error) {
				return append(bytes.Clone(doc[:8]), edit(storetest.DocDelivery, string(key), doc[8:])...), nil
			}},
			{bucketAudit, func(key, doc []byte) ([]byte, error) { return edit(storetest.DocAudit, string(key), doc), nil }},
		} {
			edited := map[string][]byte{}
			err := t.Bucket(walk.bucket).ForEach(func(key, doc []byte) error {
				after, err := walk.edit(bytes.Clone(key), bytes.Clone(doc))
				edited[string(key)] = after
				return err
			})
			if err != nil {
				return err
			}
			for key, doc := range edited {
				if err := t.put(walk.bucket, []byte(key), doc); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// editStatus edits the state in a header.
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
