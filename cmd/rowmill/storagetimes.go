package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
)

// Numbers and sizes of the operations that a diagnosis times. The timed object has the
// size of a part with a few thousand rows. Timing may take half of checkTimeout; the
// other half is for removing the object.
const (
	timedCommits = 9
	timedObjects = 5
	timedObject  = 1 << 20 // bytes
	timedSync    = 4 << 10 // bytes
)

// measureCommitTimes measures how long commits of a small record take. The record stays in the
// store. With the embedded store it also measures flushes of the disk.
func (x *selfDiagnosis) measureCommitTimes(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, x.checkTimeout/2)
	defer cancel()
	x.times.CommitSeconds = x.measureTimes(ctx, "records", timedCommits, func() error { return x.commitProbeRecord(ctx) })
	if !x.Settings.Store.IsEmbedded() {
		return
	}
	file, err := os.CreateTemp(x.Settings.Data, ".doctor-*")
	if err != nil {
		x.Logger.Warn("flushes of the disk cannot be timed", "err", err)
		return
	}
	defer os.Remove(file.Name())
	defer file.Close()
	page := make([]byte, timedSync)
	x.times.SyncSeconds = x.measureTimes(ctx, "disk", timedCommits, func() error {
		if _, err := file.Write(page); err != nil {
			return err
		}
		return file.Sync()
	})
}

// commitProbeRecord writes the small record of measureCommitTimes once. It returns an error if another
// diagnosis of this node writes the record at the same time.
func (x *selfDiagnosis) commitProbeRecord(ctx context.Context) error {
	name := "probe/" + x.nodeName()
	if x.written == 0 {
		_, version, err := x.storage.Store.GetValue(ctx, name)
		if err != nil && !errors.Is(err, rowmill.ErrNotFound) {
			return err
		}
		x.written = version
	}
	doc, err := json.Marshal(map[string]time.Time{"at": x.now().UTC()})
	if err != nil {
		return err
	}
	version, err := x.storage.Store.PutValue(ctx, name, doc, x.written)
	x.written = version
	return err
}

// measureObjectTimes measures how long it takes to write and to read an object. It does not
// delete the object.
func (x *selfDiagnosis) measureObjectTimes(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(ctx, x.checkTimeout/2)
	defer cancel()
	text := make([]byte, timedObject)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(text) // never fails; random bytes, because some storage compresses
	x.times.ObjectBytes = int64(len(text))
	x.times.PutSeconds = x.measureTimes(ctx, "bucket", timedObjects, func() error { return writeProbeObject(ctx, x.storage.Bucket, key, text) })
	if len(x.times.PutSeconds) > 0 {
		x.times.GetSeconds = x.measureTimes(ctx, "bucket", timedObjects, func() error { return readProbeObject(ctx, x.storage.Bucket, key) })
	}
}

func readProbeObject(ctx context.Context, bucket blob.Bucket, key string) error {
	object, err := bucket.Open(ctx, key)
	if err != nil {
		return err
	}
	defer object.Close()
	n, err := io.Copy(io.Discard, blob.NewReader(object))
	if err == nil && n != timedObject {
		err = fmt.Errorf("only %d of %d bytes were read", n, timedObject)
	}
	return err
}

// measureTimes calls try up to n times and returns how many seconds each call took. It stops
// after an error, and starts no further call after ctx ends. storageName names the storage in
// the log.
func (x *selfDiagnosis) measureTimes(ctx context.Context, storageName string, n int, operation func() error) []float64 {
	var times []float64
	for len(times) < n && (len(times) == 0 || ctx.Err() == nil) {
		begun := time.Now()
		if err := operation(); err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				x.Logger.Warn("storage cannot be timed", "what", storageName, "err", err)
			}
			break
		}
		times = append(times, time.Since(begun).Seconds())
	}
	return times
}
