package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

// limits of the tests: a lost node may cost 10 rows, and a takeover 6 s.
var limits = Limits{Takeover: 6 * time.Second, Flight: 10}

// flawless returns the evidence of a job of four rows. Its owner died after 2 s and was
// replaced after 5 s.
func flawless() Evidence {
	const rows = 4
	e := Evidence{Strikes: []Strike{{Fault: "kill", At: at(2), OwnerLost: true, Lost: 1}}}
	for i := range rows {
		input, answer := fmt.Sprint("row ", i), fmt.Sprint("answer ", i)
		e.Inputs = append(e.Inputs, input)
		e.Want = append(e.Want, Answer{answer, 10, 5})
		e.Results.Inputs = append(e.Results.Inputs, input)
		e.Results.Outputs = append(e.Results.Outputs, &answer)
		e.Sightings = append(e.Sightings, Sighting{Prompt: promptHash(input), Status: 200})
	}
	total, completed, cost := int64(rows), "2026-11-21T12:00:09Z", 0.25
	e.Record = Record{
		Status: "succeeded", NumRows: &total, RowsDone: rows, InputTokens: 40, OutputTokens: 20, Cost: &cost, Completed: &completed,
	}
	e.Later = e.Record
	e.History = []Glimpse{
		{At: at(1), Status: "running", Epoch: 1, Version: 3, Session: "a", RowsDone: 1},
		{At: at(3), Status: "running", Epoch: 1, Version: 3, Session: "a", RowsDone: 1},
		{At: at(7), Status: "running", Epoch: 2, Version: 4, Session: "b", RowsDone: 1},
		{At: at(9), Status: "succeeded", Over: true, Epoch: 2, Version: 6, Session: "b", RowsDone: 4},
		{At: at(10), Status: "succeeded", Over: true, Epoch: 2, Version: 7, Session: "b", RowsDone: 4},
	}
	return e
}

// fail changes a record to that of a failed job.
func fail(r *Record, code string) {
	r.Status = "failed"
	r.Failure = &struct {
		Message string `json:"message"`
		Code    string `json:"code"`
	}{"no", code}
}

// again adds a sighting of row 0.
func again(e *Evidence, times int, s Sighting) {
	s.Prompt = promptHash(e.Inputs[0])
	for range times {
		e.Sightings = append(e.Sightings, s)
	}
}

// TestJudge checks that the judge accepts a correct job and finds every broken promise.
func TestJudge(t *testing.T) {
	text := func(s string) *string { return &s }
	tests := []struct {
		name string
		make func(*Evidence)
		want string // part of the only wrong; empty: none
	}{
		{"flawless", func(*Evidence) {}, ""},
		{"still running", func(e *Evidence) { e.Record.Status, e.Later.Status = "running", "running" }, "the job is running"},
		{"a failed row", func(e *Evidence) { e.Record.FailedRows, e.Later.FailedRows = 1, 1 }, "4 rows done and 1 failed"},
		{"a row too few in the figures", func(e *Evidence) { e.Record.RowsDone, e.Later.RowsDone = 3, 3 }, "3 rows done and 0 failed"},
		{"tokens twice", func(e *Evidence) { e.Record.OutputTokens, e.Later.OutputTokens = 25, 25 }, "counts 40 and 25 tokens"},
		{"a download that died", func(e *Evidence) {
			e.Strikes[0].MayFail = downloadFailed
			fail(&e.Record, downloadFailed)
			e.Later = e.Record
		}, ""},
		{"a download that failed by itself", func(e *Evidence) {
			fail(&e.Record, downloadFailed)
			e.Later = e.Record
		}, "the job is failed: download_failed"},
		{"a download that died, and another failure", func(e *Evidence) {
			e.Strikes[0].MayFail = downloadFailed
			fail(&e.Record, "internal_error")
			e.Later = e.Record
		}, "the job is failed: internal_error"},
		{"a second download", func(e *Evidence) { e.Downloads = 2 }, "asked for 2 times"},
		{"a part that stays", func(e *Evidence) { e.Left = []string{"object parts/1"} }, "left of the job: object parts/1"},
		{"another end", func(e *Evidence) { e.Later.Status = "cancelled" }, "was over and changed"},
		{"another time", func(e *Evidence) { e.Later.Completed = text("later") }, "was over and changed"},

		{"a row missing", func(e *Evidence) { e.Results.Outputs = e.Results.Outputs[:3] }, "4 rows have 3 outputs and 4 inputs"},
		{"a row twice", func(e *Evidence) { e.Results.Outputs = append(e.Results.Outputs, text("answer 3")) }, "4 rows have 5 outputs"},
		{"no output", func(e *Evidence) { e.Results.Outputs[2] = nil }, "row 2 has no output"},
		{"an unknown answer", func(e *Evidence) { e.Results.Outputs[1] = text("what") }, `row 1 has the output "what", want "answer 1"`},
		{"another input", func(e *Evidence) { e.Results.Inputs[1] = "what" }, `row 1 of the results has the input "what"`},

		{"a row without an answer", func(e *Evidence) { e.Sightings = e.Sightings[1:] }, "1 rows were never answered"},
		{"a row answered in vain only", func(e *Evidence) { e.Sightings[0].Cancelled = true }, "1 rows were never answered"},
		{"a row refused only", func(e *Evidence) { e.Sightings[0].Status = 503 }, "1 rows were never answered"},
		{"as many again as may", func(e *Evidence) { again(e, 10, Sighting{Status: 200}) }, ""},
		{"one more again", func(e *Evidence) { again(e, 11, Sighting{Status: 200}) }, "11 rows were run again, 10 may"},
		{"again without a fault", func(e *Evidence) { e.Strikes = nil; again(e, 1, Sighting{Status: 200}) }, "1 rows were run again, 0 may"},
		{"refused and aborted", func(e *Evidence) {
			again(e, 20, Sighting{Status: 503})
			again(e, 20, Sighting{Status: 200, Cancelled: true})
		}, ""},
		{"other jobs' rows", func(e *Evidence) { e.Sightings = append(e.Sightings, Sighting{Prompt: "x", Status: 200}) }, ""},

		{"two owners in one epoch", func(e *Evidence) { e.History[1].Session = "c" }, `epoch 1 belongs to "a", and then to "c"`},
		{"given back", func(e *Evidence) { e.History[1].Session = "" }, ""},
		{"given back and taken without a new epoch", func(e *Evidence) {
			e.History[1].Session = ""
			e.History[2].Epoch, e.History[2].Session = 1, "a"
			e.Strikes = nil
		}, `epoch 1 belongs to "", and then to "a"`},
		{"the epoch goes back", func(e *Evidence) { e.History[2].Epoch, e.History[2].Session = 3, "c" }, "went back from epoch 3"},
		{"the version goes back", func(e *Evidence) { e.History[1].Version = 9 }, "version 9 to 2, 4"},
		{"progress goes back", func(e *Evidence) { e.History[1].RowsDone = 2 }, "rows done went back from 2 to 1"},
		{"a final state changes", func(e *Evidence) { e.History[4].Status = "failed" }, "a job that was over changed"},
		{"figures change at the end", func(e *Evidence) { e.History[4].OutputTokens = 1 }, "a job that was over changed"},
		{"the store forgot", func(e *Evidence) {
			e.Strikes[0].Forgot = true
			e.History[0].RowsDone, e.History[0].Version = 2, 5
		}, ""},

		{"too late a takeover", func(e *Evidence) { e.History[2].At = at(8.5) }, "taken over after 6.5s, want 6s"},
		{"the others are lost too", func(e *Evidence) {
			e.Strikes = append(e.Strikes, Strike{Fault: "kill all", At: at(3), AllLost: true})
			e.History[2].At = at(8.5)
		}, ""},
		{"no node can write the record", func(e *Evidence) {
			e.Strikes = append(e.Strikes, Strike{Fault: "Redis full", At: at(3), Unwritten: 2 * time.Second})
			e.History[2].At = at(9.5)
		}, ""},
		{"too late after it could be", func(e *Evidence) {
			e.Strikes = append(e.Strikes, Strike{Fault: "Redis full", At: at(3), Unwritten: 2 * time.Second})
			e.History[2].At = at(10.5)
		}, "taken over after 6.5s, want 6s"},
		{"too late though two took what records need at once", func(e *Evidence) {
			away := Strike{Fault: "Redis away", At: at(3), Unwritten: 2 * time.Second}
			e.Strikes = append(e.Strikes, away, away)
			e.History[2].At = at(10.5)
		}, "taken over after 6.5s, want 6s"},
		{"no takeover", func(e *Evidence) { e.History = e.History[:2] }, "no node took the job over"},
		{"over before the takeover", func(e *Evidence) {
			e.History[3].Epoch, e.History[3].Session = 1, "a"
			e.History = slices.Delete(e.History[:4], 2, 3)
		}, ""},
		{"never seen", func(e *Evidence) { e.History = nil }, "not seen before and after"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := flawless()
			tt.make(&e)
			wrongs := Judge(e, limits).Wrongs
			switch {
			case tt.want == "" && len(wrongs) > 0:
				t.Errorf("found wrong: %q", wrongs)
			case tt.want != "" && (len(wrongs) != 1 || !strings.Contains(wrongs[0], tt.want)):
				t.Errorf("found wrong: %q, want only %q", wrongs, tt.want)
			}
		})
	}
}

func TestJudge_Figures(t *testing.T) {
	e := flawless()
	again(&e, 3, Sighting{Status: 200})
	again(&e, 2, Sighting{Status: 200, Cancelled: true})
	v := Judge(e, limits)
	if v.Reruns != 3 || v.Aborted != 2 || v.Bound != 10 || v.Takeover != 5*time.Second {
		t.Errorf("%+v", v)
	}
}

// TestJudge_ManyWrongRows checks that the report about a completely wrong result is short.
func TestJudge_ManyWrongRows(t *testing.T) {
	e := flawless()
	for i := range e.Results.Outputs {
		e.Results.Outputs[i] = nil
	}
	wrongs := Judge(e, limits).Wrongs
	if len(wrongs) != 4 || wrongs[3] != "4 rows are wrong in all" {
		t.Errorf("%q", wrongs)
	}
}

func TestJudgeLedger(t *testing.T) {
	used := Ledger{Rows: 4, InputTokens: 40, OutputTokens: 20}
	if wrongs := JudgeLedger(used, used); len(wrongs) > 0 {
		t.Errorf("%q", wrongs)
	}
	charged := used
	charged.Rows++
	if wrongs := JudgeLedger(charged, used); len(wrongs) != 1 {
		t.Errorf("a row too many is found %q", wrongs)
	}
}

// A request may fail at a killed node, and while something that it needs is unavailable. Any
// other failure is reported.
func TestJudgeRequests(t *testing.T) {
	killed, lives := &Node{}, &Node{process: process{name: "node2"}}
	killed.kills = []downtime{{at(2), at(4)}, {from: at(8)}}
	fails := &refusal{status: 503, body: "away"}
	for _, tt := range []struct {
		name     string
		node     *Node
		from, to float64
		away     stretch
		want     Requests
		wrong    bool
	}{
		{"answered before the kill", killed, 0, 1.9, stretch{}, Requests{}, true},
		{"in flight at the kill", killed, 1, 2.5, stretch{}, Requests{Killed: 1}, false},
		{"while it was gone", killed, 3, 3.5, stretch{}, Requests{Killed: 1}, false},
		{"once it was back", killed, 4.1, 5, stretch{}, Requests{}, true},
		{"killed again and not back", killed, 20, 21, stretch{}, Requests{Killed: 1}, false},
		{"another node", lives, 1, 2.5, stretch{}, Requests{}, true},
		{"while Redis was away", lives, 1, 2.5, stretch{at(2), at(3)}, Requests{Away: 1}, false},
		{"before it was", lives, 1, 1.9, stretch{at(2), at(3)}, Requests{}, true},
		{"once it was back", lives, 3.1, 4, stretch{at(2), at(3)}, Requests{}, true},
	} {
		got, wrongs := judgeRequests(7, []*failure{{tt.node, at(tt.from), at(tt.to), fails}}, tt.away)
		if tt.want.Asked = 7; got != tt.want || (len(wrongs) == 1) != tt.wrong {
			t.Errorf("%s: %+v, %q", tt.name, got, wrongs)
		}
	}
	bad := &failure{lives, at(1), at(2), fails}
	if _, wrongs := judgeRequests(9, []*failure{bad, bad, bad, bad, bad}, stretch{}); len(wrongs) != 4 || wrongs[3] != "5 requests failed at nodes that were not killed" {
		t.Errorf("of many it says %q", wrongs)
	}
}

// Which errors count as failed requests: not answers, and not the test's own cancels.
func TestRequestsNote(t *testing.T) {
	var r requests
	n := &Node{}
	for err, fails := range map[error]bool{
		nil:                                  false,
		&refusal{404, "no such job"}:         false,
		&refusal{429, "too many"}:            true,
		&refusal{500, "internal error"}:      true,
		&refusal{503, `{"code":"draining"}`}: false,
		context.Canceled:                     false,
		context.DeadlineExceeded:             true,
		io.ErrUnexpectedEOF:                  true,
		syscall.ECONNREFUSED:                 false,
		syscall.ECONNRESET:                   true,
	} {
		noted := r.note(n, at(1), err)
		var f *failure
		if errors.As(noted, &f) != fails || err != nil && !errors.Is(noted, err) {
			t.Errorf("%v is noted as %v", err, noted)
		}
	}
	asked, failures := r.take()
	if again, none := r.take(); asked != 10 || len(failures) != 5 || again != 0 || none != nil {
		t.Errorf("%d requests, %d failures; then %d, %v", asked, len(failures), again, none)
	}
}
