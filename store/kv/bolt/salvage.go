package bolt

import (
	"context"
	"errors"
	"fmt"
	"os"

	"go.etcd.io/bbolt"

	"github.com/rowmill/rowmill/store/kv"
	"github.com/rowmill/rowmill/store/kv/bolt/pages"
)

// A LostPage is a page of a table that cannot be read. Its entries are lost.
type LostPage = pages.LostPage

// salvageBatch is how many entries Salvage writes in one transaction. The limit keeps the
// memory of a transaction small.
const salvageBatch = 10_000

// Salvage copies the entries that can be read from a damaged record file into the new file
// to. Then it calls finish while the damaged file is still locked. It does not copy entries
// with a wrong checksum; damaged is their number. The record file must not be open.
func Salvage(ctx context.Context, config Config, to string, finish func() error) (losses []LostPage, damaged int, err error) {
	config = config.WithDefaults()
	file, err := os.Open(config.Path)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	if err := config.lock(file); err != nil {
		return nil, 0, openError(config, err)
	}
	if err := os.RemoveAll(to); err != nil { // an earlier Salvage that was killed may have left this file
		return nil, 0, err
	}
	db, err := bbolt.Open(to, 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType, NoFreelistSync: true})
	if err == nil {
		err = ensureFileFormat(db, to)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("write %s: %w", to, err)
	}
	w := salvageWriter{db: db}
	losses, err = pages.Salvage(file, func(table string, key, value []byte) error {
		if table == string(bucketForm) {
			return nil
		}
		if _, _, err := kv.Unseal(kv.Table(table), key, value); err != nil {
			damaged++
			return ctx.Err()
		}
		return w.put(table, key, value)
	})
	if err = errors.Join(err, w.commit(), db.Close(), ctx.Err()); err == nil {
		err = finish()
	}
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("salvage %s: %w", config.Path, err), os.Remove(to))
	}
	return losses, damaged, nil
}

// A salvageWriter writes entries in transactions.
type salvageWriter struct {
	db  *bbolt.DB
	btx *bbolt.Tx
	n   int
}

func (w *salvageWriter) put(table string, key, value []byte) (err error) {
	if w.btx == nil {
		if w.btx, err = w.db.Begin(true); err != nil {
			return err
		}
	}
	bucket, err := w.btx.CreateBucketIfNotExists([]byte(table))
	if err == nil {
		err = bucket.Put(key, value)
	}
	if w.n++; err == nil && w.n%salvageBatch == 0 {
		err = w.commit()
	}
	return err
}

func (w *salvageWriter) commit() error {
	if w.btx == nil {
		return nil
	}
	btx := w.btx
	w.btx = nil
	return btx.Commit()
}
