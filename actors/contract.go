package actors

import (
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/commit"
	"github.com/rowmill/rowmill/actors/registry"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// This file turns the values of this package into protobuf messages between
// nodes, and messages into values. Messages come from other nodes, perhaps of
// another version: a message with an unusable value is refused with
// peer.CodeInvalid.

// sanitizeUTF8 returns the text with its invalid UTF-8 replaced, because messages carry only
// valid UTF-8.
func sanitizeUTF8(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

func sanitizeAllUTF8(texts []string) []string { return mapSlice(texts, sanitizeUTF8) }

// mapSlice calls turn for all elements of a list and returns the results; nil for an empty
// list.
func mapSlice[A, B any](list []A, turn func(A) B) []B {
	if len(list) == 0 {
		return nil
	}
	out := make([]B, len(list))
	for i, a := range list {
		out[i] = turn(a)
	}
	return out
}

// clampInt32 converts a count, such as a number of rows, to an int32. A count that does
// not fit becomes the nearest int32.
func clampInt32[T int | int64](n T) int32 { return int32(max(math.MinInt32, min(math.MaxInt32, n))) } //nolint:gosec // the bounds make it fit

// A rowSetDecoder decodes the sets of rows in a message, and stores the first error in err.
type rowSetDecoder struct{ err error }

func (r *rowSetDecoder) rows(raw []byte) assign.RowSet {
	set, err := assign.DecodeRowSet(raw)
	if err != nil && r.err == nil {
		r.err = err
	}
	return set
}

func (r *rowSetDecoder) shardRows(list []*peerv1.ShardRows) []assign.ShardRows {
	return mapSlice(list, func(s *peerv1.ShardRows) assign.ShardRows {
		return assign.ShardRows{Shard: int(s.GetShard()), Rows: r.rows(s.GetRows())}
	})
}

func shardRowsOf(list []assign.ShardRows) []*peerv1.ShardRows {
	return mapSlice(list, func(s assign.ShardRows) *peerv1.ShardRows {
		return &peerv1.ShardRows{Shard: clampInt32(s.Shard), Rows: s.Rows.Encode()}
	})
}

func totalsOf(t store.RowTotals) *peerv1.Totals {
	return &peerv1.Totals{
		Rows: t.Rows, Failed: t.Failed, TruncatedRows: t.TruncatedRows, TruncatedOutputs: t.TruncatedOutputs,
		InputTokens: t.InputTokens, OutputTokens: t.OutputTokens, Deduplicated: t.Deduplicated,
	}
}

func readTotals(t *peerv1.Totals) store.RowTotals {
	return store.RowTotals{
		Rows: t.GetRows(), Failed: t.GetFailed(), TruncatedRows: t.GetTruncatedRows(), TruncatedOutputs: t.GetTruncatedOutputs(),
		InputTokens: t.GetInputTokens(), OutputTokens: t.GetOutputTokens(), Deduplicated: t.GetDeduplicated(),
	}
}

// waits maps each reason of a worker's wait to its value in the contract between nodes.
var waits = map[string]peerv1.Wait{
	assign.WaitsForServer: peerv1.Wait_WAIT_SERVER,
	assign.WaitsForMemory: peerv1.Wait_WAIT_MEMORY,
	assign.WaitsForWrite:  peerv1.Wait_WAIT_WRITE,
}

// keyOfValue returns the key of a value in names, a map to values of the contract; empty if
// the map does not have the value.
func keyOfValue[V comparable](names map[string]V, value V) string {
	for name, v := range names {
		if v == value {
			return name
		}
	}
	return ""
}

func reportOf(h *assign.Heartbeat) *peerv1.ReportRequest {
	r := &peerv1.ReportRequest{
		Job: h.Job, Epoch: h.Epoch, Worker: h.Worker, Number: h.Number, Address: h.Address,
		Fresh: h.Fresh, Holds: shardRowsOf(h.Holds),
		Received: h.Received, Recalled: h.Recalled, Back: shardRowsOf(h.Back), Batch: h.Batch,
		Want: h.Want, Hungry: h.Hungry, Ready: clampInt32(h.Ready), Ports: clampInt32(h.Engines), Leaves: h.Leaves, Left: h.Left,
		AwayMs: h.Away, Waits: waits[h.Waits], Warnings: sanitizeAllUTF8(h.Warnings), Servers: sanitizeAllUTF8(h.Servers), Suspects: mapSlice(h.Suspects, suspectOf),
	}
	r.Parts = mapSlice(h.Parts, func(p assign.Part) *peerv1.Part {
		return &peerv1.Part{Key: p.Key, Shard: clampInt32(p.Shard), Rows: p.Rows.Encode(), Totals: totalsOf(p.Totals), Size: p.Size}
	})
	if len(h.Refused) > 0 {
		r.Refused = make(map[string]string, len(h.Refused))
		for engine, why := range h.Refused {
			r.Refused[sanitizeUTF8(engine)] = sanitizeUTF8(why)
		}
	}
	if f := h.Fault; f != nil {
		r.Fault = &peerv1.Fault{Row: f.Row, Code: sanitizeUTF8(f.Code), Message: sanitizeUTF8(f.Message)}
	}
	return r
}

func suspectOf(s assign.SuspectRow) *peerv1.Suspect {
	return &peerv1.Suspect{Shard: clampInt32(s.Shard), Row: clampInt32(s.Row), Group: clampInt32(s.Group), Crashes: clampInt32(s.Crashes)}
}

func readSuspect(s *peerv1.Suspect) assign.SuspectRow {
	return assign.SuspectRow{Shard: int(s.GetShard()), Row: int(s.GetRow()), Group: int(s.GetGroup()), Crashes: int(s.GetCrashes())}
}

func readReport(r *peerv1.ReportRequest) (*assign.Heartbeat, error) {
	var read rowSetDecoder
	h := &assign.Heartbeat{
		Job: r.GetJob(), Epoch: r.GetEpoch(), Worker: r.GetWorker(), Number: r.GetNumber(), Address: r.GetAddress(),
		Fresh: r.GetFresh(), Holds: read.shardRows(r.GetHolds()),
		Received: r.GetReceived(), Recalled: r.GetRecalled(), Back: read.shardRows(r.GetBack()), Batch: r.GetBatch(),
		Want: r.GetWant(), Hungry: r.GetHungry(), Ready: int(r.GetReady()), Engines: int(r.GetPorts()), Leaves: r.GetLeaves(), Left: r.GetLeft(),
		Away: r.GetAwayMs(), Waits: keyOfValue(waits, r.GetWaits()), Warnings: r.GetWarnings(), Servers: r.GetServers(), Refused: r.GetRefused(), Suspects: mapSlice(r.GetSuspects(), readSuspect),
	}
	h.Parts = mapSlice(r.GetParts(), func(p *peerv1.Part) assign.Part {
		return assign.Part{Key: p.GetKey(), Shard: int(p.GetShard()), Rows: read.rows(p.GetRows()), Totals: readTotals(p.GetTotals()), Size: p.GetSize()}
	})
	if f := r.GetFault(); f != nil {
		h.Fault = &assign.Fault{Row: f.GetRow(), Code: f.GetCode(), Message: f.GetMessage()}
	}
	switch {
	case read.err != nil:
		return nil, refuse(peer.CodeInvalid, "report: %v", read.err)
	case h.Address == "" || h.Worker == "" || !h.WellFormed():
		return nil, refuse(peer.CodeInvalid, "report: address, worker or row sets are missing")
	}
	return h, nil
}

func assignmentOf(a *assign.Assignment) *peerv1.AssignRequest {
	r := &peerv1.AssignRequest{
		Job: a.Job, Epoch: a.Epoch, Worker: a.Worker, Exhausted: a.Exhausted, Acked: a.Acked, Taken: a.Taken, Stop: a.Stop,
	}
	r.Batches = mapSlice(a.Batches, func(b assign.Batch) *peerv1.Batch {
		return &peerv1.Batch{Number: b.Number, Spans: mapSlice(b.Spans, spanOf)}
	})
	if a.Revoke != (assign.Revocation{}) {
		r.Revocation = &peerv1.Revocation{Number: a.Revoke.Number, Rows: clampInt32(a.Revoke.Rows)}
	}
	return r
}

func spanOf(s assign.RowSpan) *peerv1.Span {
	span := &peerv1.Span{
		Shard: clampInt32(s.Shard), From: clampInt32(s.From), To: clampInt32(s.To), Except: s.Except.Encode(), Block: clampInt32(s.Block), Share: clampInt32(s.Share),
		Suspects: mapSlice(s.Suspects, suspectOf),
	}
	if s.Of != (shard.ManifestEntry{}) {
		span.Of = shardInfoOf(s.Of)
	}
	return span
}

func readAssignment(r *peerv1.AssignRequest) (*assign.Assignment, error) {
	var read rowSetDecoder
	a := &assign.Assignment{
		Job: r.GetJob(), Epoch: r.GetEpoch(), Worker: r.GetWorker(), Exhausted: r.GetExhausted(), Acked: r.GetAcked(), Taken: r.GetTaken(), Stop: r.GetStop(),
		Revoke: assign.Revocation{Number: r.GetRevocation().GetNumber(), Rows: int(r.GetRevocation().GetRows())},
	}
	a.Batches = mapSlice(r.GetBatches(), func(b *peerv1.Batch) assign.Batch {
		return assign.Batch{Number: b.GetNumber(), Spans: mapSlice(b.GetSpans(), func(s *peerv1.Span) assign.RowSpan {
			return assign.RowSpan{
				Shard: int(s.GetShard()), From: int(s.GetFrom()), To: int(s.GetTo()), Except: read.rows(s.GetExcept()),
				Of: readShardInfo(s.GetOf()), Block: int(s.GetBlock()), Share: int(s.GetShare()),
				Suspects: mapSlice(s.GetSuspects(), readSuspect),
			}
		})}
	})
	if read.err != nil {
		return nil, refuse(peer.CodeInvalid, "assignment: %v", read.err)
	}
	return a, nil
}

func shardInfoOf(s shard.ManifestEntry) *peerv1.ShardInfo {
	return &peerv1.ShardInfo{First: s.First, Rows: clampInt32(s.Rows), Bytes: s.Bytes}
}

func readShardInfo(s *peerv1.ShardInfo) shard.ManifestEntry {
	return shard.ManifestEntry{First: s.GetFirst(), Rows: int(s.GetRows()), Bytes: s.GetBytes()}
}

func invitationOf(m *invite) *peerv1.InviteRequest {
	r := &peerv1.InviteRequest{
		Job: m.Job, Epoch: m.Epoch, Address: m.Address, Session: m.Session,
		Context: int64(m.Context), MaxTokens: int64(m.MaxTokens), Account: sanitizeUTF8(m.Account), Priority: clampInt32(int(m.Priority)),
	}
	if in := m.Input; in != nil {
		r.Input = &peerv1.Manifest{
			IdKind: uint32(in.IDKind), IdLeaf: sanitizeUTF8(string(in.IDLeaf)), Fields: sanitizeAllUTF8(in.Fields), Rows: in.Rows, Shards: mapSlice(in.Shards, shardInfoOf),
			Size:  &peerv1.InputSize{Tokens: in.Tokens},
			Taken: in.Taken, Copies: in.Copies, Groups: in.Groups,
		}
	}
	return r
}

func readInvitation(r *peerv1.InviteRequest) (*invite, error) {
	m := &invite{
		Job: r.GetJob(), Epoch: r.GetEpoch(), Address: r.GetAddress(), Session: r.GetSession(),
		Context: int(r.GetContext()), MaxTokens: int(r.GetMaxTokens()), Account: r.GetAccount(), Priority: rowmill.Priority(r.GetPriority()),
	}
	if in := r.GetInput(); in != nil {
		m.Input = &shard.Manifest{
			IDType: idTypeOf(in.GetIdKind(), in.GetIdLeaf()), Fields: in.GetFields(), Rows: in.GetRows(), Shards: mapSlice(in.GetShards(), readShardInfo),
			Tokens: in.GetSize().GetTokens(),
			Taken:  in.GetTaken(), Copies: in.GetCopies(), Groups: in.GetGroups(),
		}
	}
	if m.Address == "" {
		return nil, refuse(peer.CodeInvalid, "invite: address is missing")
	}
	return m, nil
}

// idTypeOf returns the type of an ID column. An unknown kind becomes a kind that no
// code accepts.
func idTypeOf(kind uint32, leaf string) rowmill.IDType {
	return rowmill.IDType{IDKind: rowmill.IDKind(min(kind, math.MaxUint8)), IDLeaf: rowmill.IDParquetType(leaf)}
}

// A hint tells a node about a cancelled job, or a job without an owner, so that the
// node need not wait for its next scan.
type hint = peerv1.HintRequest

// hintOf returns a hint that a job has no owner.
func hintOf(o store.OrphanJob) *hint {
	account := sanitizeUTF8(o.Account)
	return &hint{Job: o.JobID, Account: &account, Priority: clampInt32(int(o.Priority))}
}

// orphanOf returns the job without an owner that a hint names.
func orphanOf(h *hint) store.OrphanJob {
	return store.OrphanJob{JobID: h.GetJob(), Account: h.GetAccount(), Priority: rowmill.Priority(h.GetPriority())}
}

func readRowDistribution(r *peerv1.LocateRowsResponse) RowDistribution {
	return RowDistribution{
		Shards: int(r.GetShards()), Complete: int(r.GetComplete()),
		Nodes: mapSlice(r.GetNodes(), func(n *peerv1.NodeRows) NodeRows {
			return NodeRows{Node: n.GetNode(), Assigned: n.GetAssigned(), Done: n.GetDone(), Rate: n.Rate}
		}),
	}
}

// compactionKinds maps each kind of compaction to its value in the contract between
// nodes.
var compactionKinds = map[string]peerv1.CompactionKind{
	commit.MakeMerge: peerv1.CompactionKind_COMPACTION_KIND_MERGE,
	commit.MakeJoin:  peerv1.CompactionKind_COMPACTION_KIND_JOIN,
	commit.MakeFull:  peerv1.CompactionKind_COMPACTION_KIND_FULL,
	commit.MakeRows:  peerv1.CompactionKind_COMPACTION_KIND_ROWS,
}

func compactionOf(m *compactionRequest) *peerv1.RunCompactionRequest {
	e := m.Compaction
	s := e.Schema
	return &peerv1.RunCompactionRequest{
		Job: m.Job, Account: sanitizeUTF8(m.Account), Priority: clampInt32(int(m.Priority)),
		Compaction: &peerv1.Compaction{
			Kind: compactionKinds[e.Make], Key: e.Key, First: e.First, Rows: e.Rows,
			Schema: &peerv1.Schema{
				JobId: s.JobID, Output: sanitizeUTF8(s.Output), Model: sanitizeUTF8(s.Model), IdColumn: sanitizeUTF8(s.IDColumn), IdKind: uint32(s.IDKind), IdLeaf: sanitizeUTF8(string(s.IDLeaf)),
				Fields: sanitizeAllUTF8(s.Fields), Embedding: s.Embedding, Partial: s.Partial, ContentAsJson: s.ContentAsJSON,
			},
			Parts: mapSlice(e.Parts, func(p store.Part) *peerv1.StoredPart {
				return &peerv1.StoredPart{
					Key: p.Key, Shard: clampInt32(p.Shard), Rows: p.Rows, Accepted: p.Accepted, Complete: p.Complete,
					Totals: totalsOf(p.Totals), Carried: p.Carried, Unpaid: p.Unpaid, Size: p.Size,
				}
			}),
		},
	}
}

func readCompaction(r *peerv1.RunCompactionRequest) (*compactionRequest, error) {
	e := r.GetCompaction()
	if r.GetJob() == "" || e.GetKey() == "" {
		return nil, refuse(peer.CodeInvalid, "compaction: job or key is missing")
	}
	s := e.GetSchema()
	return &compactionRequest{
		Job: r.GetJob(), Account: r.GetAccount(), Priority: rowmill.Priority(r.GetPriority()),
		Compaction: &commit.Compaction{
			Make: keyOfValue(compactionKinds, e.GetKind()), Key: e.GetKey(), First: e.GetFirst(), Rows: e.GetRows(),
			Schema: results.Schema{
				JobID: s.GetJobId(), Output: s.GetOutput(), Model: s.GetModel(), IDColumn: s.GetIdColumn(), IDType: idTypeOf(s.GetIdKind(), s.GetIdLeaf()),
				Fields: s.GetFields(), Embedding: s.GetEmbedding(), Partial: s.GetPartial(), ContentAsJSON: s.GetContentAsJson(),
			},
			Parts: mapSlice(e.GetParts(), func(p *peerv1.StoredPart) store.Part {
				return store.Part{
					Key: p.GetKey(), Shard: int(p.GetShard()), Rows: p.GetRows(), Accepted: p.GetAccepted(), Complete: p.GetComplete(),
					Totals: readTotals(p.GetTotals()), Carried: p.GetCarried(), Unpaid: p.GetUnpaid(), Size: p.GetSize(),
				}
			}),
		},
	}, nil
}

func filterOf(f registry.Filter) *peerv1.ListActorsRequest {
	return &peerv1.ListActorsRequest{Kind: sanitizeUTF8(f.Kind), Job: sanitizeUTF8(f.Job), MinAge: durationpb.New(f.MinAge)}
}

func readFilter(r *peerv1.ListActorsRequest) registry.Filter {
	return registry.Filter{Kind: r.GetKind(), Job: r.GetJob(), MinAge: r.GetMinAge().AsDuration()}
}

// actorStates maps each state of an actor to its value in the contract between nodes.
var actorStates = map[string]peerv1.ActorState{
	registry.Running:  peerv1.ActorState_ACTOR_STATE_RUNNING,
	registry.Panicked: peerv1.ActorState_ACTOR_STATE_PANICKED,
}

func listingOf(l registry.Listing) *peerv1.ListActorsResponse {
	return &peerv1.ListActorsResponse{
		LeftOut: clampInt32(l.LeftOut),
		Actors: mapSlice(l.Actors, func(a registry.Actor) *peerv1.Actor {
			said := &peerv1.Actor{
				Kind: a.Kind, Job: a.Job, Engine: sanitizeUTF8(a.Engine), Id: sanitizeUTF8(a.ID), State: actorStates[a.State],
				Since: timestamppb.New(a.Since), Restarts: clampInt32(a.Restarts), MailboxDepth: a.Depth, OldestMessage: durationpb.New(a.Oldest),
				Tasks: clampInt32(a.Tasks), Task: a.Task, TaskTime: durationpb.New(a.TaskTime),
			}
			if a.Trouble != nil {
				said.Trouble = &peerv1.Trouble{Text: sanitizeUTF8(a.Trouble.Text), At: timestamppb.New(a.Trouble.At)}
			}
			return said
		}),
	}
}

func readListing(r *peerv1.ListActorsResponse) registry.Listing {
	return registry.Listing{
		LeftOut: int(r.GetLeftOut()),
		Actors: mapSlice(r.GetActors(), func(a *peerv1.Actor) registry.Actor {
			read := registry.Actor{
				ActorIdentity: registry.ActorIdentity{Kind: a.GetKind(), Job: a.GetJob(), Engine: a.GetEngine()},
				ID:            a.GetId(), State: keyOfValue(actorStates, a.GetState()), Since: timeOf(a.GetSince()),
				Restarts: int(a.GetRestarts()), Depth: a.GetMailboxDepth(), Oldest: a.GetOldestMessage().AsDuration(),
				Tasks: int(a.GetTasks()), Task: a.GetTask(), TaskTime: a.GetTaskTime().AsDuration(),
			}
			if t := a.GetTrouble(); t != nil {
				read.Trouble = &registry.Trouble{Text: t.GetText(), At: timeOf(t.GetAt())}
			}
			return read
		}),
	}
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
