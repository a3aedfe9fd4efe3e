package virtual

import (
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/store"
)

// The accounts of jobs.
const (
	defaultAccount = caller.DefaultAccount
	otherAccount   = "other"
)

// otherKey is the API key of the clients of otherAccount.
const otherKey = "rk_other_virtual"

func keyOf(account string) string {
	if account == otherAccount {
		return otherKey
	}
	return adminKey
}

// admitOther stores the key of otherAccount.
func (w *world) admitOther() error {
	hash := sha256.Sum256([]byte(strings.TrimPrefix(otherKey, "rk_other_")))
	return w.vault.base.PutKey(background, store.APIKey{ID: "other", Hash: hash[:], Account: otherAccount, Role: caller.RoleUser, Created: w.began})
}

// owners returns the accounts with jobs, and defaultAccount.
func (w *world) owners() []string {
	if w.twoAccounts() {
		return []string{defaultAccount, otherAccount}
	}
	return []string{defaultAccount}
}

// owner returns the account of a job.
func (j *jobCase) owner() string {
	if j.Account == "" {
		return defaultAccount
	}
	return j.Account
}

// number returns the number of a job in its account: both accounts use the same idempotency
// keys.
func (j *jobCase) number() (n int) {
	for _, other := range j.jobs[:j.index] {
		if other.owner() == j.owner() {
			n++
		}
	}
	return n
}

// keptPlaces returns KeptPlaces of nodes with few places: one for each account. 0: the
// default.
func (w *world) keptPlaces() int {
	if w.Places > 0 {
		return 2
	}
	return 0
}

func (j *jobCase) priority() int {
	if j.Urgent {
		return 0
	}
	return 1
}

// meddle tries to cancel a job and to remove its data as a client of the other account. The
// other checks find any harm.
func (j *jobCase) meddle() {
	id := j.known()
	for _, stranger := range j.world.owners() {
		if stranger == j.owner() {
			continue
		}
		header := http.Header{"Authorization": {"Key " + keyOf(stranger)}}
		node := j.Node % len(j.world.Nodes)
		for _, ask := range [][2]string{{http.MethodGet, "/v1/job-cancel/" + id}, {http.MethodDelete, "/v1/jobs/" + id + "/data"}} {
			if code, text := j.world.request(node, ask[0], ask[1], header, nil); code == http.StatusOK {
				j.wrong("%s asks for %s of a job of %s and is told %s", stranger, ask[1], j.owner(), text)
			}
		}
	}
}

// judgeIsolation checks that no account sees a job of another.
func (a *account) judgeIsolation(node int) {
	owners := a.world.owners()
	if len(owners) == 1 {
		return
	}
	for _, by := range owners {
		header := http.Header{"Authorization": {"Key " + keyOf(by)}}
		code, list := a.world.request(node, http.MethodGet, "/v1/list-jobs?limit=100", header, nil)
		if code != http.StatusOK {
			a.wrong("the jobs of %s: %d %.300s", by, code, list)
		}
		for _, j := range a.jobs {
			id := j.known()
			if _, err := a.look(id); err != nil {
				continue // forgotten, or never created
			}
			if listed := strings.Contains(string(list), id); listed != (j.owner() == by) {
				a.wrong("job %d of %s is among those of %s: %v", j.index, j.owner(), by, listed)
			}
			if j.owner() == by {
				continue
			}
			for _, path := range []string{"", "/results", "/results?partial=true", "/errors", "/rows/0"} {
				if code, text := a.world.request(node, http.MethodGet, "/v1/jobs/"+id+path, header, nil); code != http.StatusNotFound {
					a.wrong("%s asks for %s of job %d of %s: %d %.300s", by, path, j.index, j.owner(), code, text)
				}
			}
		}
	}
}

// Time limits of a job with one row and priority 0, beside any jobs of other accounts. They
// count only if no fault struck for the time recovers before: nodes wait for a silent node
// and take over its jobs.
const (
	swiftStart = 2 * time.Second
	swiftEnd   = 5 * time.Second // beyond the time of its row at the engine, with the queue there
	recovers   = silence + 15*time.Second
)

// judgeSwift checks the time limits of an urgent job with one row.
func (j *jobCase) judgeSwift(rec store.Record) {
	if !j.swift() || rec.Job.Status != rowmill.StatusSucceeded || j.account.kills() > 0 || j.world.crashes() > 0 || !j.world.undisturbed(j.accepted-recovers, j.seen) {
		return
	}
	j.world.swifts++
	t := j.world.tally
	t.mu.Lock()
	first, last := t.first[j.texts[0]], t.last[j.texts[0]]
	t.mu.Unlock()
	if wait := first - j.accepted; wait > swiftStart {
		j.wrong("job %d of one row and priority 0 began after %v, while another account had jobs", j.index, wait)
	}
	if took, most := j.seen-j.accepted, last-first+swiftEnd; took > most {
		j.wrong("job %d of one row and priority 0 took %v, while another account had jobs: %v are promised", j.index, took, most)
	}
}

// swift reports whether a job is small, urgent, never paused, and the only one of its account at its time:
// the promise is only that other accounts do not delay it.
func (j *jobCase) swift() bool {
	if !j.Urgent || j.owner() != otherAccount || len(j.texts) != 1 || j.of != nil || j.reuses != nil || j.From != "" || j.Broken > 0 || j.Pause > 0 {
		return false
	}
	return !slices.ContainsFunc(j.jobs, func(o *jobCase) bool {
		return o != j && o.owner() == j.owner() && o.known() != "" && o.accepted <= j.seen && (o.seen == 0 || o.seen >= j.accepted)
	})
}

// undisturbed reports whether no fault struck or lasted between two times.
func (w *world) undisturbed(from, to time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, f := range w.Faults {
		if !w.struck[i] || f.Kind == "clock" {
			continue
		}
		if begins := w.struckAt[i]; begins <= to && begins+time.Duration(f.For) >= from {
			return false
		}
	}
	return true
}
