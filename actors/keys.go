package actors

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
)

// Objects of a job. Everything is removable by prefix. Keys of what may be
// written twice after a crash carry epoch and nonce, so that a stale writer
// never touches a newer one's object.

const jobsPrefix = "jobs/"

func jobPrefix(job string) string   { return jobsPrefix + job + "/" }
func inputPrefix(job string) string { return jobPrefix(job) + "input/" }
func partsPrefix(job string) string { return jobPrefix(job) + "parts/" }

func rawKey(job string) string      { return inputPrefix(job) + "raw" }
func manifestKey(job string) string { return inputPrefix(job) + "manifest.json" }

func shardKey(job string, n int) string { return fmt.Sprintf("%sshard-%06d", inputPrefix(job), n) }

func partKey(job string, shard int, epoch int64) string {
	return fmt.Sprintf("%s%06d-%d-%s.parquet", partsPrefix(job), shard, epoch, nonce())
}

func artifactKey(job, name string, epoch int64) string {
	return fmt.Sprintf("jobs/%s/results/%s-%d-%s.parquet", job, name, epoch, nonce())
}

func nonce() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}
