// Package layout defines the keys of all objects that Rowmill writes to a
// bucket. It does not know buckets or the content of objects.
//
//	jobs/<id>/input/raw                                 the downloaded input (a text is compressed with gzip), if it is not split during the download; removed when the shards exist
//	jobs/<id>/input/rows.jsonl                          inline rows, spooled
//	jobs/<id>/files.jsonl.gz                            the files of a source that the job reads, with their versions; later jobs that reuse rows read it
//	jobs/<id>/input/files-first.jsonl.gz                the first of these files, which the job reads while the others are listed
//	jobs/<id>/input/shard-000017                        rows, see package shard
//	jobs/<id>/input/manifest.json                       the list of shards; written when all shards are complete
//	jobs/<id>/input/groups                              groups of rows that begin alike and should run together, if any
//	jobs/<id>/input/copies                              which rows are equal to earlier rows; these copies do not run
//	jobs/<id>/input/whole/input/…                       shards, manifest and groups of the whole input of a job with a limit; jobs/<id>/input has only the chosen rows
//	jobs/<id>/input/matches                             which rows of finished jobs a job with reuse takes over
//	jobs/<id>/digests-text                              short hashes of the texts of all rows (or digests-id: of their IDs), for later jobs that reuse rows
//	jobs/<id>/kept.parquet                              columns of the whole input that results can repeat, as Parquet
//	jobs/<id>/parts/000017-<epoch>-<nonce>.parquet      finished rows of shard 17
//	jobs/<id>/results/full-<epoch>-<nonce>.parquet      an artifact, made when the job ended
//	jobs/<id>/results/inputs=0~logprobs=0-<nonce>.parquet a subset of its columns, made on the first request
//	jobs/<id>/results/<nonce>-output.jsonl              the answers of a batch, made on the first request
//	jobs/<id>/results/partial-<nonce>.parquet           the committed rows of a job that did not succeed, made on the first request
//	files/<id>                                          a file that a client uploaded, see store.File
//	uploads/<id>/upload.json                            describes an upload in parts
//	uploads/<id>/parts/<id>                             one part of the upload
//	uploads/<id>/cancelled                              marks the upload as cancelled
//	deployment.json                                     the owner of the bucket, see package deployment
//	spooling/<id>                                       a submission with spooled rows is being stored
//	set-aside/<id>.json                                 this job has objects but no record; its objects are kept
//	probe/<node>                                        written and removed to check for free space
//
// All objects of a job have a common prefix, so they can be removed together.
// Keys of objects that may be written twice after a crash have a nonce, so that
// a stale writer never touches another writer's object.
package layout

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// FileKey returns the key of an uploaded file.
func FileKey(id string) string { return Files + id }

// Files is the prefix of the keys that FileKey returns.
const Files = "files/"

// Uploads is the prefix of all uploads. Each upload has a folder with its ID as
// the name.
const Uploads = "uploads/"

// UploadPrefix returns the prefix of all objects of an upload.
func UploadPrefix(id string) string { return Uploads + id + "/" }

// UploadRecordKey returns the key of the object that describes an upload.
func UploadRecordKey(id string) string { return UploadPrefix(id) + "upload.json" }

// UploadPartsPrefix returns the prefix of an upload's parts. In the key of a part, the ID of
// the part follows the prefix.
func UploadPartsPrefix(id string) string { return UploadPrefix(id) + "parts/" }

// UploadCancelledKey returns the key of an object that marks an upload as
// cancelled.
func UploadCancelledKey(id string) string { return UploadPrefix(id) + "cancelled" }

// UploadLife is how long an upload may take. Objects of older uploads are
// removed. OpenAI allows an hour, but few connections can send the largest
// upload in that time.
const UploadLife = 24 * time.Hour

// UploadStartTime returns the start time of an upload from its ID: the hexadecimal digits
// of the ID are a UUID of version 7 (RFC 9562, section 5.7), which contains the time.
// ok is false if id is not such an ID.
func UploadStartTime(id string) (at time.Time, ok bool) {
	digits := id[strings.LastIndexByte(id, '_')+1:]
	if len(digits) != 32 {
		return at, false
	}
	ms, err := strconv.ParseInt(digits[:12], 16, 64)
	return time.UnixMilli(ms).UTC(), err == nil
}

// Jobs is the prefix of all jobs. Each job has a folder with its ID as the
// name.
const Jobs = "jobs/"

// Deployment is the key of the object that says which deployment owns the
// bucket.
const Deployment = "deployment.json"

// Spoolings is the prefix of the keys that SpoolingKey returns, and SetAsides is the prefix
// of the keys that QuarantineNoteKey returns.
const (
	Spoolings = "spooling/"
	SetAsides = "set-aside/"
)

// SpoolingKey returns the key of an object that exists while a submission is
// stored: it is written before the rows are spooled and removed after the
// record is stored. If there is no record, the client never got the job's ID.
func SpoolingKey(job string) string { return Spoolings + job }

// QuarantineNoteKey returns the key of a note. The note says that objects of this job exist
// although the job has no record.
func QuarantineNoteKey(job string) string { return SetAsides + job + ".json" }

// JobIDFromMarkerKey returns the ID of the job in a key that SpoolingKey or QuarantineNoteKey
// returned.
func JobIDFromMarkerKey(key string) string {
	return strings.TrimSuffix(key[strings.LastIndexByte(key, '/')+1:], ".json")
}

// These are the names of the artifacts that are made when a job ends. They are
// also keys of a record's Artifacts.
const (
	Full = "full" // ID, inputs, outputs and log probabilities
	Rows = "rows" // data for requests about single rows: tokens, errors, attempts

	// Wide has all rows with all columns that a client can request. It is made on the first
	// request for columns that the file Full lacks.
	Wide = "wide"

	// Partial has all rows of a job that did not succeed, including the rows
	// that did not run. It is made on the first request, and so are subsets of
	// its columns.
	Partial = "partial"
)

// These are the media types of objects.
const (
	Parquet = "application/vnd.apache.parquet"
	JSON    = "application/json"
	NDJSON  = "application/x-ndjson"
	Bytes   = "application/octet-stream"
)

// MediaType returns the media type of the object with this key.
func MediaType(key string) string {
	switch path.Ext(key) {
	case ".parquet":
		return Parquet
	case ".json":
		return JSON
	case ".jsonl":
		return NDJSON
	}
	return Bytes
}

// JobPrefix returns the prefix of all objects of a job.
func JobPrefix(job string) string { return Jobs + job + "/" }

// InputPrefix returns the prefix of a job's input objects.
func InputPrefix(job string) string { return JobPrefix(job) + "input/" }

// WholeInput returns the name that replaces the job's id in the keys of the whole input of a
// job with a limit. InputPrefix(job) covers these keys.
func WholeInput(job string) string { return job + "/input/whole" }

// KeptColumnsKey returns the key of the columns of a job's whole input that results can repeat.
func KeptColumnsKey(job string) string { return JobPrefix(job) + "kept.parquet" }

// PartsPrefix returns the prefix of a job's parts.
func PartsPrefix(job string) string { return JobPrefix(job) + "parts/" }

// RawInputKey returns the key of a downloaded input.
func RawInputKey(job string) string { return InputPrefix(job) + "raw" }

// SpooledRowsKey returns the key of the rows that were sent in the submission itself and are
// too many for the job's record.
func SpooledRowsKey(job string) string { return InputPrefix(job) + "rows.jsonl" }

// FileListKey returns the key of the list of files that a job reads from a source.
func FileListKey(job string) string { return JobPrefix(job) + "files.jsonl.gz" }

// FirstFilesKey returns the key of the list of the first files that a job reads from a source. The
// object does not exist if the job read no file before all files were listed.
func FirstFilesKey(job string) string { return InputPrefix(job) + "files-first.jsonl.gz" }

// ManifestKey returns the key of the list of a job's shards.
func ManifestKey(job string) string { return InputPrefix(job) + "manifest.json" }

// GroupsKey returns the key of the groups of a job's rows, see package shard. The
// object does not exist if rows run in the order of the input.
func GroupsKey(job string) string { return InputPrefix(job) + "groups" }

// RowCopiesKey returns the key of the list of a job's copies: rows that are equal to an
// earlier row and get its answer, see package shard. The object does not exist if
// there are no copies.
func RowCopiesKey(job string) string { return InputPrefix(job) + "copies" }

// DigestsKey returns the key of the digests of a job's rows, see package ingest. by is the part of
// the row that is hashed.
func DigestsKey(job, by string) string { return JobPrefix(job) + "digests-" + by }

// DerivedDigestsKey returns the key of the digests of the rows of the job source, which the job
// makes for itself because source has none.
func DerivedDigestsKey(job, source string) string { return InputPrefix(job) + "digests-of-" + source }

// ReuseMatchesKey returns the key of the list of rows that a job takes over from finished jobs.
func ReuseMatchesKey(job string) string { return InputPrefix(job) + "matches" }

// ShardKey returns the key of shard n.
func ShardKey(job string, n int) string { return fmt.Sprintf("%sshard-%06d", InputPrefix(job), n) }

// NewPartKey returns a new key for a part of a shard that is written under an epoch.
func NewPartKey(job string, shard int, epoch int64) string {
	return fmt.Sprintf("%s%06d-%d-%s.parquet", PartsPrefix(job), shard, epoch, Nonce())
}

// CarriedPartKey returns the key of the part with the rows of a shard that a job takes over
// from another job. The key is always the same, so a node that commits the part late
// only repeats the commit that counts.
func CarriedPartKey(job string, shard int) string {
	return fmt.Sprintf("%s%06d-carried.parquet", PartsPrefix(job), shard)
}

// NewArtifactKey returns a new key for an artifact that is written under an epoch.
func NewArtifactKey(job, name string, epoch int64) string {
	return fmt.Sprintf("%sresults/%s-%d-%s.parquet", JobPrefix(job), name, epoch, Nonce())
}

// EpochFromKey returns the epoch in a key that NewPartKey or NewArtifactKey made, or 0 if
// the key has none.
func EpochFromKey(key string) int64 {
	fields := strings.Split(path.Base(key), "-")
	if len(fields) < 3 {
		return 0
	}
	epoch, _ := strconv.ParseInt(fields[len(fields)-2], 10, 64) // 0 if the field is not a number
	return epoch
}

// NewSubsetKey returns a new key for some columns of the full artifact.
func NewSubsetKey(job, name string) string {
	return fmt.Sprintf("%sresults/%s-%s.parquet", JobPrefix(job), name, Nonce())
}

// NewJSONLKey returns a new key for an artifact that consists of lines. name ends in .jsonl.
func NewJSONLKey(job, name string) string {
	return fmt.Sprintf("%sresults/%s-%s", JobPrefix(job), Nonce(), name)
}

// Probes is the prefix of the keys that ProbeKey returns.
const Probes = "probe/"

// ProbeKey returns the key that a node writes to check that it can write. The
// object is removed immediately.
func ProbeKey(node string) string {
	return Probes + strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, node)
}

// Nonce returns twelve random hexadecimal digits, which make a key unique.
func Nonce() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}
