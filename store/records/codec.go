package records

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/jsonpreserve"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv"
)

// The tables; doc.go describes them.
const (
	tableMeta     kv.Table = "meta"
	tableJobs     kv.Table = "jobs"
	tableTexts    kv.Table = "texts"
	tableSpecs    kv.Table = "specs"
	tableAccounts kv.Table = "accounts"
	tableWaiting  kv.Table = "waiting"
	tableOwned    kv.Table = "owned"
	tableTurns    kv.Table = "turns"
	tableIdem     kv.Table = "idem"
	tableIdemAge  kv.Table = "idemage"
	tableParts    kv.Table = "parts"
	tablePartKeys kv.Table = "partkeys"
	tableUsage    kv.Table = "usage"
	tableKeyUsage kv.Table = "keyusage"
	tableReserved kv.Table = "reserved"
	tableGranted  kv.Table = "granted"
	tableKeys     kv.Table = "keys"
	tableValues   kv.Table = "values"
	tableAudit    kv.Table = "audit"
	tableRetained kv.Table = "held"
	tableDue      kv.Table = "due"

	tableBatches   kv.Table = "batches"
	tableFiles     kv.Table = "files"
	tableFileLists kv.Table = "filelists"
	tableFilesDue  kv.Table = "filesdue"

	tableDeliveries      kv.Table = "deliveries"
	tableDeliveryLists   kv.Table = "deliverylists"
	tableDeliveriesDue   kv.Table = "deliveriesdue"
	tableEndpoints       kv.Table = "endpoints"
	tableEndpointsDue    kv.Table = "endpointsdue"
	tableDeliveryExpires kv.Table = "deliveryexpires"
)

// tables lists all tables except meta.
var tables = []kv.Table{
	tableJobs, tableTexts, tableSpecs, tableAccounts,
	tableWaiting, tableOwned, tableTurns, tableIdem, tableIdemAge,
	tableParts, tablePartKeys, tableUsage, tableKeyUsage, tableReserved, tableGranted, tableKeys, tableValues,
	tableAudit, tableRetained, tableDue,
	tableBatches, tableFiles, tableFileLists, tableFilesDue,
	tableDeliveries, tableDeliveryLists, tableDeliveriesDue, tableEndpoints, tableEndpointsDue, tableDeliveryExpires,
}

var keyLayout = []byte("layout")

// A jobHeader is a job's record as table jobs stores it: without the specification and the
// long texts.
type jobHeader struct {
	store.Record
	Spec    *struct{}   `json:"spec,omitempty"` // hides Record.Spec, which is stored in table specs
	Account string      `json:"account"`
	Price   *modelPrice `json:"price"`
	// Writers counts the writes of each writer (store.WriteCounter) in this record.
	Writers map[string]int64 `json:"writers,omitempty"`
}

// readHeader reads the header of a job, or returns rowmill.ErrNotFound.
func (t *tx) readHeader(id string) (jobHeader, error) {
	var h jobHeader
	raw, err := t.Get(tableJobs, []byte(id))
	if err != nil {
		return h, err
	}
	if raw == nil {
		return h, fmt.Errorf("job %s: %w", id, rowmill.ErrNotFound)
	}
	if err := jsonpreserve.Decode(raw, &h); err != nil {
		return h, fmt.Errorf("decode the record of job %s: %w: %w", id, err, store.ErrDamaged)
	}
	return h, nil
}

// readCheckedHeader reads a header. It returns store.ErrNewer if a newer version wrote the
// record, so that this program must not change it.
func (t *tx) readCheckedHeader(id string) (jobHeader, error) {
	h, err := t.readHeader(id)
	if err == nil {
		err = h.CheckVersion()
	}
	t.recorded = h.Writers[t.writer.Name()]
	return h, err
}

// readHeaderForWrite reads a header for a write. It fails when the record lacks acknowledged
// writes of the present writer.
func (t *tx) readHeaderForWrite(id string) (jobHeader, error) {
	h, err := t.readCheckedHeader(id)
	if err == nil {
		err = t.writer.CheckLostWrites(id, t.recorded)
	}
	return h, err
}

// putHeader writes a header. It keeps members of the stored header that this version
// does not know.
func (t *tx) putHeader(h jobHeader) error {
	id := []byte(h.Job.ID)
	if t.writer != nil {
		t.recorded = h.Writers[t.writer.Name()] + 1
		h.Writers = maps.Clone(h.Writers)
		if h.Writers == nil {
			h.Writers = map[string]int64{}
		}
		h.Writers[t.writer.Name()] = t.recorded
	}
	stored, err := t.Get(tableJobs, id)
	if err != nil {
		return err
	}
	raw, err := jsonpreserve.Rewrite(stored, h)
	if err != nil {
		return fmt.Errorf("encode the record of job %s: %w", id, err)
	}
	t.Put(tableJobs, id, raw)
	return nil
}

// prefetchRecord announces that the transaction will read a whole record.
func (t *tx) prefetchRecord(id string) {
	t.prefetchIDs([]string{id}, tableJobs, tableTexts, tableSpecs)
}

// completeRecord reads the texts and the specification of a job and returns them, together with
// the header, as a whole record.
func (t *tx) completeRecord(h jobHeader) (store.Record, error) {
	rec, id := h.Record, []byte(h.Job.ID)
	texts, err := t.Get(tableTexts, id)
	if err == nil {
		err = decodeTexts(texts, &rec.Job)
	}
	if err != nil {
		return store.Record{}, fmt.Errorf("read the texts of job %s: %w", id, err)
	}
	spec, err := t.Get(tableSpecs, id)
	if err == nil {
		rec.Spec, err = decodeSpec(spec)
	}
	if err != nil {
		return store.Record{}, fmt.Errorf("read the specification of job %s: %w", id, err)
	}
	return rec, nil
}

// saveRecord writes the changed parts of a record, except the specification, and moves the
// job between the indexes. When the job has ended, saveRecord releases its reservation.
// before is nil for a new job.
func (t *tx) saveRecord(before *jobHeader, rec store.Record, account string) error {
	if rec.Job.Status.IsTerminal() {
		rec.Reserved = 0
	}
	after := jobHeader{Record: rec, Account: account, Price: priceOf(rec.Spec.Model)}
	if before != nil {
		after.Writers = before.Writers
	}
	texts := encodeTexts(rec.Job)
	after.Job.System, after.Job.Schema, after.Job.Prompt = nil, nil, nil
	id := []byte(rec.Job.ID)
	if err := t.putHeader(after); err != nil {
		return err
	}
	var old []byte
	if before != nil {
		var err error
		if old, err = t.Get(tableTexts, id); err != nil {
			return err
		}
	}
	switch {
	case bytes.Equal(old, texts):
	case len(texts) == 0:
		t.Delete(tableTexts, id)
	default:
		t.Put(tableTexts, id, texts)
	}
	t.reindexJob(before, after)
	return nil
}

// replaceRecord writes a changed record as its next version and returns it as stored. The
// specification must be unchanged.
func (t *tx) replaceRecord(before jobHeader, rec store.Record) (store.Record, error) {
	rec.Version++
	if err := t.saveRecord(&before, rec, before.Account); err != nil {
		return store.Record{}, err
	}
	return t.readRecord(rec.Job.ID)
}

// saveHeader writes a changed header as its next version. The long texts must be unchanged.
func (t *tx) saveHeader(before jobHeader, after *jobHeader) error {
	after.Version++
	if err := t.putHeader(*after); err != nil {
		return err
	}
	t.reindexJob(&before, *after)
	return nil
}

// reindexJob updates the indexes waiting, owned, reserved, retained and due after a change of
// a header.
func (t *tx) reindexJob(before *jobHeader, after jobHeader) {
	t.reindexReserved(before, after)
	t.reindexRetained(before, after)
	t.reindexDue(before, after)
	key := accountTimeKey(after.Account, after.Job.Created, after.Job.ID)
	table, value := after.indexEntry()
	if before != nil {
		oldTable, oldValue := before.indexEntry()
		if oldTable == table && bytes.Equal(oldValue, value) {
			return
		}
		if oldTable != "" && oldTable != table {
			t.Delete(oldTable, key)
		}
	}
	if table != "" {
		t.Put(table, key, value)
	}
}

// reindexReserved updates the index of jobs with reserved money.
func (t *tx) reindexReserved(before *jobHeader, after jobHeader) {
	had, has := before != nil && before.Reserved != 0, after.Reserved != 0
	key := []byte(after.Account + "\x00" + after.Job.ID)
	switch {
	case had && !has:
		t.Delete(tableReserved, key)
	case has && !had:
		t.Put(tableReserved, key, nil)
	}
}

// indexEntry returns the index table of an open job and the value in it. The table is empty
// for a job that has ended.
func (h *jobHeader) indexEntry() (table kv.Table, value []byte) {
	switch {
	case h.Job.Status.IsTerminal():
		return "", nil
	case h.Job.Paused: // no session: not even the end of the owner's session makes the job an orphan
		return tableOwned, append([]byte(string(h.Job.Status)+"\x00\x00"), encodeTime(never)...)
	case h.Job.ParkedUntil != nil: // no session, but the time when the job becomes an orphan
		return tableOwned, append([]byte(string(h.Job.Status)+"\x00\x00"), encodeTime(*h.Job.ParkedUntil)...)
	case h.Session == "":
		return tableWaiting, []byte(h.Job.Status)
	}
	return tableOwned, []byte(string(h.Job.Status) + "\x00" + h.Session)
}

// never is later than all times at which a parked job becomes an orphan.
var never = time.Unix(0, math.MaxInt64)

// accountTimeKey returns a key that sorts an account's jobs by creation time, then by id.
func accountTimeKey(account string, created time.Time, id string) []byte {
	key := make([]byte, 0, len(account)+1+8+len(id))
	key = append(append(key, account...), 0)
	return append(append(key, encodeTime(created)...), id...)
}

// encodeTime encodes a time in eight bytes that sort like the time.
func encodeTime(at time.Time) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(at.UnixNano())^(1<<63))
}

// positionBytes is the length of a time that encodeTime has encoded.
const positionBytes = 8

// splitAccountTimeKey splits a key of the form of accountTimeKey. created is the time as encodeTime
// encodes it.
func splitAccountTimeKey(key []byte) (account string, created []byte, id string, ok bool) {
	end := bytes.IndexByte(key, 0)
	if end < 0 || len(key) < end+1+8 {
		return "", nil, "", false
	}
	return string(key[:end]), key[end+1 : end+9], string(key[end+9:]), true
}

// decodeNumber decodes a stored number: eight bytes, big-endian.
func decodeNumber(raw []byte) (int64, error) {
	if len(raw) != 8 {
		return 0, fmt.Errorf("a stored number has %d bytes instead of 8", len(raw))
	}
	return int64(binary.BigEndian.Uint64(raw)), nil
}

// appendSection appends a section: a string after its length as a uvarint. decodeSections
// reads all sections of a value with one copy.
func appendSection[T string | []byte | json.RawMessage](to []byte, section T) []byte {
	return append(binary.AppendUvarint(to, uint64(len(section))), section...)
}

// errSections means that a value is missing or incomplete, for example after a salvage.
var errSections = fmt.Errorf("%w: it is missing, or sections of it are cut off", store.ErrDamaged)

func decodeSections(raw []byte) ([]string, error) {
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

// firstSection returns the first section of a value. The result shares the memory of raw.
func firstSection(raw []byte) ([]byte, error) {
	length, n := binary.Uvarint(raw)
	if n <= 0 || length > uint64(len(raw)-n) {
		return nil, errSections
	}
	return raw[n : n+int(length)], nil
}

// encodeTexts encodes the long texts of a job in three sections: the system prompt, the
// schema, and the prompt. A prompt begins with "=", and an empty section is null. It
// returns nothing when the job has none of them.
func encodeTexts(j rowmill.Job) []byte {
	if j.System == nil && j.Schema == nil && j.Prompt == nil {
		return nil
	}
	optional := func(text *string) string {
		if text == nil {
			return ""
		}
		return "=" + *text
	}
	return appendSection(appendSection(appendSection(nil, optional(j.System)), j.Schema), optional(j.Prompt))
}

func decodeTexts(raw []byte, j *rowmill.Job) error {
	j.System, j.Schema, j.Prompt = nil, nil, nil
	if raw == nil {
		return nil
	}
	sections, err := decodeSections(raw)
	if err != nil {
		return err
	}
	if len(sections) != 3 {
		return errSections
	}
	optional := func(section string) *string {
		if section == "" {
			return nil
		}
		return new(section[1:])
	}
	j.System, j.Prompt = optional(sections[0]), optional(sections[2])
	if sections[1] != "" {
		j.Schema = json.RawMessage(sections[1])
	}
	return nil
}

// encodeSpec encodes a specification in sections: the small fields as JSON, the system
// prompt, the schema, and each inline row. stored is the previous specification, nil
// for none; encodeSpec keeps small fields of stored that this version does not know.
func encodeSpec(stored []byte, s rowmill.Spec) ([]byte, error) {
	var before []byte
	if stored != nil {
		var err error
		if before, err = firstSection(stored); err != nil {
			return nil, err
		}
	}
	small := s
	small.System, small.Schema, small.Inline = "", nil, nil
	raw, err := jsonpreserve.Rewrite(before, small)
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

func decodeSpec(raw []byte) (rowmill.Spec, error) {
	var s rowmill.Spec
	sections, err := decodeSections(raw)
	if err != nil {
		return s, err
	}
	if len(sections) < 3 {
		return s, errSections
	}
	if err := jsonpreserve.Decode(sections[0], &s); err != nil {
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
