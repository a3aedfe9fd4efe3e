package actors_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/store"
)

// TestAClaimThatTheRecordsDoNotHave tests that a worker stays with its owner if another node with
// a later epoch invites it, but the records do not have the claim of this node: after a split of
// Redis, the losing side may have claimed the job again.
func TestAClaimThatTheRecordsDoNotHave(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		owner := b.join(net, "owner", nil)
		worker := b.join(net, "worker", &scripted{answer: slowly(10 * time.Millisecond)})
		texts := numbered(2000)
		id := b.submitTo(owner, rowmill.Spec{Spooled: b.spool(texts)})
		running := b.await(id, func(r store.Record) bool { return r.Job.RowsDone > 0 })
		_, err := worker.system.Service().Invite(t.Context(), &peerv1.InviteRequest{
			Job: id, Epoch: running.Epoch + 5, Session: "lost", Address: "lost:1", Account: "default",
		})
		if err == nil || !strings.Contains(err.Error(), "the records do not have this claim") {
			t.Errorf("the worker answers %v to an unknown owner", err)
		}
		began := time.Now()
		rec := b.end(id)
		b.checkEcho(rec, texts)
		ranOnce(t, texts, worker)
		if took := time.Since(began); rec.Epoch != running.Epoch || took > 10*time.Second {
			t.Errorf("the job ended after %v with epoch %d, was %d", took, rec.Epoch, running.Epoch)
		}
	})
}
