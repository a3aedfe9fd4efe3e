// Package layout owns where the objects of a job lie in a bucket: every key
// that Rowmill writes is made here. It knows neither buckets nor what the
// objects hold.
//
//	jobs/<id>/input/raw                                 the download, as it came
//	jobs/<id>/input/rows.jsonl                          inline rows, spooled
//	jobs/<id>/input/shard-000017                        rows, see package shard
//	jobs/<id>/input/manifest.json                       the list of shards; its existence says that they are complete
//	jobs/<id>/parts/000017-<epoch>-<nonce>.parquet      finished rows of shard 17
//	jobs/<id>/results/full-<epoch>-<nonce>.parquet      an artifact made as the job ended
//	jobs/<id>/results/inputs=0~logprobs=0-<nonce>.parquet a subset of its columns, made when first asked for
//
// Everything of a job can be removed by a prefix. Keys of what may be written
// twice after a crash carry a nonce, so that a stale writer never touches
// another's object.
package layout

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
)

// Jobs is the prefix of the folders of all jobs; the name of each is its id.
const Jobs = "jobs/"

// Names of the artifacts that are made as a job ends, and keys of a record's
// Artifacts.
const (
	Full = "full" // id, inputs, outputs and log probabilities
	Rows = "rows" // what questions about single rows are answered from
)

// Media types of objects.
const (
	Parquet = "application/vnd.apache.parquet"
	JSON    = "application/json"
	Lines   = "application/x-ndjson"
	Bytes   = "application/octet-stream"
)

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

// Shard is the key of shard n.
func Shard(job string, n int) string { return fmt.Sprintf("%sshard-%06d", Input(job), n) }

// Part is a new key for a part of a shard, written under an epoch.
func Part(job string, shard int, epoch int64) string {
	return fmt.Sprintf("%s%06d-%d-%s.parquet", Parts(job), shard, epoch, Nonce())
}

// Artifact is a new key for an artifact, written under an epoch.
func Artifact(job, name string, epoch int64) string {
	return fmt.Sprintf("%sresults/%s-%d-%s.parquet", Job(job), name, epoch, Nonce())
}

// Subset is a new key for columns of the full artifact.
func Subset(job, name string) string {
	return fmt.Sprintf("%sresults/%s-%s.parquet", Job(job), name, Nonce())
}

// Nonce is twelve random hexadecimal digits.
func Nonce() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}
