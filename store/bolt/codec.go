package bolt

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/document"
	"github.com/rowmill/rowmill/store"
)

var (
	bucketMeta     = []byte("meta")
	bucketJobs     = []byte("jobs")
	bucketTexts    = []byte("texts")
	bucketSpecs    = []byte("specs")
	bucketAccounts = []byte("accounts")
	bucketWaiting  = []byte("waiting")
	bucketOwned    = []byte("owned")
	bucketTurns    = []byte("turns")
	bucketIdem     = []byte("idem")
	bucketIdemAge  = []byte("idemage")
	bucketParts    = []byte("parts")
	bucketPartKeys = []byte("partkeys")
	bucketUsage    = []byte("usage")
	bucketKeyUsage = []byte("keyusage")
	bucketReserved = []byte("reserved")
	bucketKeys     = []byte("keys")
	bucketValues   = []byte("values")
	bucketAudit    = []byte("audit")
	bucketHeld     = []byte("held")
	bucketDue      = []byte("due")

	bucketBatches   = []byte("batches")
	bucketFiles     = []byte("files")
	bucketFileLists = []byte("filelists")
	bucketFilesDue  = []byte("filesdue")

	bucketDeliveries      = []byte("deliveries")
	bucketDeliveryLists   = []byte("deliverylists")
	bucketDeliveriesDue   = []byte("deliveriesdue")
	bucketEndpointsDue    = []byte("endpointsdue")
	bucketDeliveryExpires = []byte("deliveryexpires")

	buckets = [][]byte{
		bucketMeta, bucketJobs, bucketTexts, bucketSpecs, bucketAccounts,
		bucketWaiting, bucketOwned, bucketTurns, bucketIdem, bucketIdemAge,
		bucketParts, bucketPartKeys, bucketUsage, bucketKeyUsage, bucketReserved, bucketKeys, bucketValues,
		bucketAudit, bucketHeld, bucketDue,
		bucketBatches, bucketFiles, bucketFileLists, bucketFilesDue,
		bucketDeliveries, bucketDeliveryLists, bucketDeliveriesDue, bucketEndpointsDue, bucketDeliveryExpires,
	}

	keySchema = []byte("schema")
	keyPing   = []byte("ping")
	present   = []byte{1} // the value of an index entry whose key says it all
)

// A tx is a transaction that remembers whether anything was written in it.
type tx struct {
	*bbolt.Tx
	wrote   bool
	writer  *store.Writer // nil where nobody minds
	holds   int64         // how many writes of writer's the record has
	lookups []lookup      // of one that only reads
}

// A lookup is where a transaction that only reads has found a key before: to go on
// from there takes no allocation.
type lookup struct {
	bucket string
	cursor *bbolt.Cursor
}

// get returns a value, or nil where there is none. Both belong to the file, and
// must not outlive the transaction.
func (t *tx) get(bucket, key []byte) []byte {
	if t.Writable() {
		return t.Bucket(bucket).Get(key)
	}
	i := slices.IndexFunc(t.lookups, func(l lookup) bool { return l.bucket == string(bucket) })
	if i < 0 {
		i = len(t.lookups)
		t.lookups = append(t.lookups, lookup{string(bucket), t.Bucket(bucket).Cursor()})
	}
	if found, value := t.lookups[i].cursor.Seek(key); bytes.Equal(found, key) {
		return value
	}
	return nil
}

func (t *tx) put(bucket, key, value []byte) error {
	t.wrote = true
	return t.Bucket(bucket).Put(key, value)
}

func (t *tx) del(bucket, key []byte) error {
	t.wrote = true
	return t.Bucket(bucket).Delete(key)
}

// A header is a record as bucket jobs holds it.
type header struct {
	store.Record
	Spec    *struct{} `json:"spec,omitempty"` // hides the record's: it is in bucket specs
	Account string    `json:"account"`
	// Writers says how many writes it has from whom (store.Writer).
	Writers map[string]int64 `json:"writers,omitempty"`
}

// header reads the small part of a record, or returns rowmill.ErrNotFound.
func (t *tx) header(id string) (header, error) {
	var h header
	raw := t.get(bucketJobs, []byte(id))
	if raw == nil {
		return h, fmt.Errorf("job %s: %w", id, rowmill.ErrNotFound)
	}
	if err := document.Decode(raw, &h); err != nil {
		return h, fmt.Errorf("decode the record of job %s: %w", id, err)
	}
	return h, nil
}

// ours reads the header of a job that this program may write.
func (t *tx) ours(id string) (header, error) {
	h, err := t.header(id)
	if err == nil {
		err = h.CheckVersion()
	}
	t.holds = h.Writers[t.writer.Name()]
	return h, err
}

// writable is ours for a write on top of all that was acknowledged to its writer.
func (t *tx) writable(id string) (header, error) {
	h, err := t.ours(id)
	if err == nil {
		err = t.writer.Check(id, t.holds)
	}
	return h, err
}

// putHeader writes a header and keeps what it does not know of the one before.
func (t *tx) putHeader(h header) error {
	id := []byte(h.Job.ID)
	if t.writer != nil {
		t.holds = h.Writers[t.writer.Name()] + 1
		h.Writers = maps.Clone(h.Writers)
		if h.Writers == nil {
			h.Writers = map[string]int64{}
		}
		h.Writers[t.writer.Name()] = t.holds
	}
	raw, err := document.Rewrite(t.get(bucketJobs, id), h)
	if err != nil {
		return fmt.Errorf("encode the record of job %s: %w", id, err)
	}
	return t.put(bucketJobs, id, raw)
}

// record completes a header to the whole record.
func (t *tx) record(h header) (store.Record, error) {
	rec := h.Record
	err := readTexts(t.get(bucketTexts, []byte(rec.Job.ID)), &rec.Job)
	if err != nil {
		return store.Record{}, fmt.Errorf("decode the texts of job %s: %w", rec.Job.ID, err)
	}
	if rec.Spec, err = readSpec(t.get(bucketSpecs, []byte(rec.Job.ID))); err != nil {
		return store.Record{}, fmt.Errorf("decode the specification of job %s: %w", rec.Job.ID, err)
	}
	return rec, nil
}

// save writes what differs of a record, the specification excepted, and moves
// the job between the indexes of open jobs. A job that is over gives back what
// it had reserved. before is nil for a new job.
func (t *tx) save(before *header, rec store.Record, account string) error {
	if rec.Job.Status.Terminal() {
		rec.Reserved = 0
	}
	after := header{Record: rec, Account: account}
	if before != nil {
		after.Writers = before.Writers
	}
	texts := writeTexts(rec.Job)
	after.Job.System, after.Job.Schema = nil, nil
	id := []byte(rec.Job.ID)
	err := t.putHeader(after)
	if err != nil {
		return err
	}
	switch old := t.get(bucketTexts, id); {
	case bytes.Equal(old, texts):
	case len(texts) == 0:
		err = t.del(bucketTexts, id)
	default:
		err = t.put(bucketTexts, id, texts)
	}
	if err != nil {
		return err
	}
	return t.reindex(before, after)
}

// saveHeader writes a header whose long texts are untouched.
func (t *tx) saveHeader(before, after header) error {
	if err := t.putHeader(after); err != nil {
		return err
	}
	return t.reindex(&before, after)
}

// reindex keeps waiting, owned, reserved, held and due in step with a header.
func (t *tx) reindex(before *header, after header) error {
	if err := t.reindexMoney(before, after); err != nil {
		return err
	}
	if err := t.reindexHeld(before, after); err != nil {
		return err
	}
	if err := t.reindexDue(before, after); err != nil {
		return err
	}
	key := orderKey(after.Account, after.Job.Created, after.Job.ID)
	bucket, value := after.index()
	if before != nil {
		oldBucket, oldValue := before.index()
		if bytes.Equal(oldBucket, bucket) && bytes.Equal(oldValue, value) {
			return nil
		}
		if oldBucket != nil && !bytes.Equal(oldBucket, bucket) {
			if err := t.del(oldBucket, key); err != nil {
				return err
			}
		}
	}
	if bucket == nil {
		return nil
	}
	return t.put(bucket, key, value)
}

// reindexMoney keeps reserved in step with a header.
func (t *tx) reindexMoney(before *header, after header) error {
	had, has := before != nil && before.Reserved != 0, after.Reserved != 0
	key := []byte(after.Account + "\x00" + after.Job.ID)
	switch {
	case had && !has:
		return t.del(bucketReserved, key)
	case has && !had:
		return t.put(bucketReserved, key, present)
	}
	return nil
}

// index says where an open job is listed and with which value; nil for a job
// that is over.
func (h *header) index() (bucket, value []byte) {
	switch {
	case h.Job.Status.Terminal():
		return nil, nil
	case h.Session == "":
		return bucketWaiting, []byte(h.Job.Status)
	}
	return bucketOwned, []byte(string(h.Job.Status) + "\x00" + h.Session)
}

// orderKey sorts an account's jobs by creation.
func orderKey(account string, created time.Time, id string) []byte {
	key := make([]byte, 0, len(account)+1+8+len(id))
	key = append(append(key, account...), 0)
	return append(append(key, position(created)...), id...)
}

// position is a time as eight bytes in its order.
func position(at time.Time) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(at.UnixNano())^(1<<63))
}

// positionBytes is the length of a position.
const positionBytes = 8

// splitOrderKey undoes orderKey but for the time, which it returns as bytes.
func splitOrderKey(key []byte) (account string, created []byte, id string, ok bool) {
	end := bytes.IndexByte(key, 0)
	if end < 0 || len(key) < end+1+8 {
		return "", nil, "", false
	}
	return string(key[:end]), key[end+1 : end+9], string(key[end+9:]), true
}

// number reads a value of eight bytes.
func number(raw []byte) (int64, error) {
	if len(raw) != 8 {
		return 0, fmt.Errorf("%d bytes where a number has 8", len(raw))
	}
	return int64(binary.BigEndian.Uint64(raw)), nil
}

// Sections are strings one after the other, each behind its length as a
// uvarint. Reading them back is one copy, however many there are.
func appendSection[T string | []byte | json.RawMessage](to []byte, section T) []byte {
	return append(binary.AppendUvarint(to, uint64(len(section))), section...)
}

var errSections = errors.New("sections are cut off")

func readSections(raw []byte) ([]string, error) {
	var sections []string
	for rest := string(raw); rest != ""; {
		head := min(len(rest), binary.MaxVarintLen64)
		length, n := binary.Uvarint([]byte(rest[:head]))
		if n <= 0 || length > uint64(len(rest)-n) {
			return nil, errSections
		}
		end := n + int(length)
		sections = append(sections, rest[n:end])
		rest = rest[end:]
	}
	return sections, nil
}

// firstSection returns the first section in place.
func firstSection(raw []byte) ([]byte, error) {
	length, n := binary.Uvarint(raw)
	if n <= 0 || length > uint64(len(raw)-n) {
		return nil, errSections
	}
	return raw[n : n+int(length)], nil
}

// writeTexts returns the long texts of a job: "=" and the system prompt (empty
// when null), the schema; or nothing when there are none.
func writeTexts(j rowmill.Job) []byte {
	if j.System == nil && j.Schema == nil {
		return nil
	}
	var system string
	if j.System != nil {
		system = "=" + *j.System
	}
	return appendSection(appendSection(nil, system), j.Schema)
}

func readTexts(raw []byte, j *rowmill.Job) error {
	j.System, j.Schema = nil, nil
	if raw == nil {
		return nil
	}
	sections, err := readSections(raw)
	if err != nil {
		return err
	}
	if len(sections) != 2 {
		return errSections
	}
	if sections[0] != "" {
		system := sections[0][1:]
		j.System = &system
	}
	if sections[1] != "" {
		j.Schema = json.RawMessage(sections[1])
	}
	return nil
}

// writeSpec returns a specification: the small fields as JSON, the system
// prompt, the schema, and each inline row. What it does not know of the small
// fields of stored, the specification before, stays; nil is none.
func writeSpec(stored []byte, s rowmill.Spec) ([]byte, error) {
	var before []byte
	if stored != nil {
		var err error
		if before, err = firstSection(stored); err != nil {
			return nil, err
		}
	}
	small := s
	small.System, small.Schema, small.Inline = "", nil, nil
	raw, err := document.Rewrite(before, small)
	if err != nil {
		return nil, fmt.Errorf("encode the specification: %w", err)
	}
	size := len(raw) + len(s.System) + len(s.Schema) + 3*binary.MaxVarintLen64
	for _, row := range s.Inline {
		size += len(row) + binary.MaxVarintLen32
	}
	out := appendSection(make([]byte, 0, size), raw)
	out = appendSection(out, s.System)
	out = appendSection(out, s.Schema)
	for _, row := range s.Inline {
		out = appendSection(out, row)
	}
	return out, nil
}

func readSpec(raw []byte) (rowmill.Spec, error) {
	var s rowmill.Spec
	sections, err := readSections(raw)
	if err != nil {
		return s, err
	}
	if len(sections) < 3 {
		return s, errSections
	}
	if err := document.Decode(sections[0], &s); err != nil {
		return s, err
	}
	s.System = sections[1]
	if sections[2] != "" {
		s.Schema = json.RawMessage(sections[2])
	}
	if len(sections) > 3 {
		s.Inline = sections[3:]
	}
	return s, nil
}
