package store

import "time"

// An Adopter is an owner of a job for as long as the job may be what ends its
// process: from the claim until more of it is done than before.
type Adopter struct {
	Node    string `json:"node"`            // its name, for a person
	Process string `json:"process"`         // its id, which no other has, nor the same node after a restart
	Alone   bool   `json:"alone,omitempty"` // it takes up no other job meanwhile
	Epoch   int64  `json:"epoch"`           // of its claim; the store sets it
}

// Claimed is when it claimed the job, by the store's clock.
func (a Adopter) Claimed() time.Time { return time.UnixMilli(a.Epoch).UTC() }

// MostAdopters bounds the list: a longer one begins anew.
const MostAdopters = 16

// Adopt applies a Claim to rec, whose owner it is from now on: those whose
// sessions have ended without a word stay listed before it. An owner that gave the
// job back does not.
func (rec *Record) Adopt(session string, epoch int64, by Adopter) {
	n := len(rec.Adopters)
	if rec.Session == "" || n >= MostAdopters {
		n = 0
	}
	lost := rec.Session != ""
	by.Epoch = epoch
	rec.Adopters = append(rec.Adopters[:n:n], by)
	rec.Session, rec.Epoch = session, epoch
	rec.Note(Event{At: epoch, What: EventClaimed, Node: by.Node, Process: by.Process, Lost: lost})
}

// Tried are the owners that have taken up a job without a living one, or whose
// session ended then, one after the other, oldest first.
func (rec *Record) Tried() []Adopter {
	if rec.Session == "" {
		return nil
	}
	return rec.Adopters
}

// proceed notes that a step of the input is done that is never done again: what
// ended earlier owners was before it, the last may still end.
func (rec *Record) proceed(before kept) {
	started, finished := rec.DownloadStarted != nil, rec.DownloadFinished != nil
	if n := len(rec.Adopters); n > 0 && (started != before.started || finished != before.finished || rec.Shards != before.shards) {
		rec.Adopters = rec.Adopters[n-1:]
	}
}
