// Package layout owns where the objects of a job lie in a bucket: every key
// that Rowmill writes is made here. It knows neither buckets nor what the
// objects hold.
//
//	jobs/<id>/input/raw                                 the download, text under gzip, where it is not cut as it comes; until there are shards
//	jobs/<id>/input/rows.jsonl                          inline rows, spooled
//	jobs/<id>/input/shard-000017                        rows, see package shard
//	jobs/<id>/input/manifest.json                       the list of shards; its existence says that they are complete
//	jobs/<id>/input/groups                              which rows begin alike, where it pays to run them near one another
//	jobs/<id>/input/copies                              which rows are equal to earlier ones, and are not run
//	jobs/<id>/parts/000017-<epoch>-<nonce>.parquet      finished rows of shard 17
//	jobs/<id>/results/full-<epoch>-<nonce>.parquet      an artifact made as the job ended
//	jobs/<id>/results/inputs=0~logprobs=0-<nonce>.parquet a subset of its columns, made when first asked for
//	jobs/<id>/results/<nonce>-output.jsonl              the answers of a batch, made when somebody first looks at it
//	jobs/<id>/results/partial-<nonce>.parquet           what a job that has not succeeded committed, made when first asked for
//	files/<id>                                          what a client uploaded, see store.File
//	uploads/<id>/upload.json                            what a client is uploading in parts
//	uploads/<id>/parts/<id>                             one of them
//	uploads/<id>/cancelled                              it does not want them any more
//	deployment.json                                     whose bucket this is, see package deployment
//	spooling/<id>                                       a submission is being stored whose rows are spooled
//	set-aside/<id>.json                                 the records know nothing of this job, whose objects stay
//	probe/<node>                                        written and removed to see whether there is room
//
// Everything of a job can be removed by a prefix. Keys of what may be written
// twice after a crash carry a nonce, so that a stale writer never touches
// another's object.
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

// File is the key of an uploaded file.
func File(id string) string { return Files + id }

// Files is the prefix of what File makes.
const Files = "files/"

// Uploads is the prefix of the folders of all uploads; the name of each is its id.
const Uploads = "uploads/"

// Upload is the prefix of all objects of an upload.
func Upload(id string) string { return Uploads + id + "/" }

// Uploading is the key of what an upload is to become.
func Uploading(id string) string { return Upload(id) + "upload.json" }

// UploadParts is the prefix of its parts, which continue it by their ids.
func UploadParts(id string) string { return Upload(id) + "parts/" }

// UploadCancelled is the key of an object that says that it was cancelled.
func UploadCancelled(id string) string { return Upload(id) + "cancelled" }

// UploadLife is how long an upload may take; what is there of it later is removed.
// Upstream's is an hour, in which few lines carry the largest.
const UploadLife = 24 * time.Hour

// UploadBegan is when an upload began, by its id, whose hexadecimal digits are a
// UUID of version 7 (RFC 9562, section 5.7); ok is false for what is no id.
func UploadBegan(id string) (at time.Time, ok bool) {
	digits := id[strings.LastIndexByte(id, '_')+1:]
	if len(digits) != 32 {
		return at, false
	}
	ms, err := strconv.ParseInt(digits[:12], 16, 64)
	return time.UnixMilli(ms).UTC(), err == nil
}

// Jobs is the prefix of the folders of all jobs; the name of each is its id.
const Jobs = "jobs/"

// Deployment is the key of the object that says whose bucket this is.
const Deployment = "deployment.json"

// Spoolings is the prefix of what Spooling makes, SetAsides that of SetAside.
const (
	Spoolings = "spooling/"
	SetAsides = "set-aside/"
)

// Spooling is the key of an object that is there from before a submission's
// rows are spooled until its record is stored. Without a record it says that
// nobody was told of the job.
func Spooling(job string) string { return Spoolings + job }

// SetAside is the key of the note that a job was found which no record knows.
func SetAside(job string) string { return SetAsides + job + ".json" }

// NotedJob is the job of a key that Spooling or SetAside made.
func NotedJob(key string) string {
	return strings.TrimSuffix(key[strings.LastIndexByte(key, '/')+1:], ".json")
}

// Names of the artifacts that are made as a job ends, and keys of a record's
// Artifacts.
const (
	Full = "full" // id, inputs, outputs and log probabilities
	Rows = "rows" // what questions about single rows are answered from

	// Partial has all rows of a job that has not succeeded, those that did not
	// run too; it is made when first asked for, and so are columns of it.
	Partial = "partial"
)

// Media types of objects.
const (
	Parquet = "application/vnd.apache.parquet"
	JSON    = "application/json"
	NDJSON  = "application/x-ndjson"
	Bytes   = "application/octet-stream"
)

// MediaType is that of the object at a key.
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

// Job is the prefix of all objects of a job.
func Job(job string) string { return Jobs + job + "/" }

// Input is the prefix of what a job reads.
func Input(job string) string { return Job(job) + "input/" }

// Parts is the prefix of a job's parts.
func Parts(job string) string { return Job(job) + "parts/" }

// Raw is the key of a downloaded input.
func Raw(job string) string { return Input(job) + "raw" }

// Spooled is the key of inline rows that were too many for the record.
func Spooled(job string) string { return Input(job) + "rows.jsonl" }

// Manifest is the key of the list of a job's shards.
func Manifest(job string) string { return Input(job) + "manifest.json" }

// Groups is the key of the groups of a job's rows, see package shard; there is none
// where rows go in the order of the input.
func Groups(job string) string { return Input(job) + "groups" }

// Copies is the key of which rows of a job are copies of others, see package shard;
// there is none where none is.
func Copies(job string) string { return Input(job) + "copies" }

// Shard is the key of shard n.
func Shard(job string, n int) string { return fmt.Sprintf("%sshard-%06d", Input(job), n) }

// Part is a new key for a part of a shard, written under an epoch.
func Part(job string, shard int, epoch int64) string {
	return fmt.Sprintf("%s%06d-%d-%s.parquet", Parts(job), shard, epoch, Nonce())
}

// Carried is the key of the part with what a job takes over of a shard. It is the
// same each time: a commit of it that comes late repeats the one that counts.
func Carried(job string, shard int) string {
	return fmt.Sprintf("%s%06d-carried.parquet", Parts(job), shard)
}

// Artifact is a new key for an artifact, written under an epoch.
func Artifact(job, name string, epoch int64) string {
	return fmt.Sprintf("%sresults/%s-%d-%s.parquet", Job(job), name, epoch, Nonce())
}

// Subset is a new key for columns of the full artifact.
func Subset(job, name string) string {
	return fmt.Sprintf("%sresults/%s-%s.parquet", Job(job), name, Nonce())
}

// Lines is a new key for an artifact of lines, whose name ends in .jsonl.
func Lines(job, name string) string {
	return fmt.Sprintf("%sresults/%s-%s", Job(job), Nonce(), name)
}

// Probes is the prefix of what Probe makes.
const Probes = "probe/"

// Probe is the key of what a node writes to see whether it can. It is removed at
// once.
func Probe(node string) string {
	return Probes + strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, node)
}

// Nonce is twelve random hexadecimal digits.
func Nonce() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}
