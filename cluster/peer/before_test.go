package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/cluster/peer/peerv1/peerv1connect"
	"github.com/rowmill/rowmill/internal/previous"
)

// document has a message read and written as the version before does it.
type document[M any] struct{ message *M }

func documented[M any](message *M) document[M] { return document[M]{message} }

func (d document[M]) MarshalJSON() ([]byte, error) {
	m, _ := any(d.message).(proto.Message)
	return json.Marshal(documentOf(m.ProtoReflect()))
}

func (d *document[M]) UnmarshalJSON(text []byte) error {
	d.message = new(M)
	m, _ := any(d.message).(proto.Message)
	return readDocument(text, m.ProtoReflect())
}

// rows are 1, 2, 3 and 700, as RoaringBitmap writes them.
var rows = []byte("\x3a\x30\x00\x00\x01\x00\x00\x00\x00\x00\x03\x00\x10\x00\x00\x00\x01\x00\x02\x00\x03\x00\xbc\x02")

// TestMessagesOfThePreviousVersion holds that nodes of both versions read what
// they tell each other.
func TestMessagesOfThePreviousVersion(t *testing.T) {
	t.Parallel()
	holds := []*peerv1.ShardRows{{Shard: 3, Rows: rows}}
	for kind, message := range map[string]any{
		"invite": documented(&peerv1.InviteRequest{Job: "job-1", Epoch: 2, Address: "h:1", Session: "session-1", Context: 4096, MaxTokens: 100, Sample: 7}),
		"report": documented(&peerv1.ReportRequest{
			Job: "job-1", Epoch: 2, Worker: "w", Number: 3, Address: "h:2", Fresh: true, Holds: holds, Received: 4, Recalled: 5,
			Back: holds, Batch: 6, Want: true, Hungry: true, Ready: 7, Ports: 8, Leaves: true, Left: true, Warnings: []string{"w"},
			Parts: []*peerv1.Part{{Key: "k", Shard: 1, Rows: rows, Size: 9, Totals: &peerv1.Totals{
				Rows: 1, Failed: 2, TruncatedRows: 3, TruncatedOutputs: 4, InputTokens: 5, OutputTokens: 6,
			}}},
			Refused: map[string]string{"http://h": "why"}, Fault: &peerv1.Fault{Row: 5, Code: "c", Message: "m"},
		}),
		"orders": documented(&peerv1.AssignRequest{
			Job: "job-1", Epoch: 2, Worker: "w", Exhausted: true, Acked: []string{"k"}, Taken: 3, Stop: true,
			Batches:    []*peerv1.Batch{{Number: 1, Spans: []*peerv1.Span{{Shard: 2, From: 3, To: 4, Except: rows}}}},
			Revocation: &peerv1.Revocation{Number: 5, Rows: 6},
		}),
		"dismiss":  documented(&peerv1.DismissRequest{Job: "job-1", Epoch: 2}),
		"hint":     documented(&peerv1.HintRequest{Job: "job-1", Cancelled: true}),
		"invited":  documented(&peerv1.InviteResponse{Working: true}),
		"refusal":  refusalBefore{Code: "stale", Message: "m"},
		"envelope": envelope{Protocol: Protocol, From: "node-1", Kind: "hint", Job: "job-1", Epoch: 2, Body: json.RawMessage(`{"job":"job-1"}`)},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			previous.Document(t, "testdata/previous/"+kind+".json", message)
		})
	}
}

// former is a node of the version before.
type former struct {
	got    envelope
	answer string
	typ    string
}

func (f *former) RoundTrip(r *http.Request) (*http.Response, error) {
	text, err := io.ReadAll(r.Body)
	if err == nil && r.URL.Path == pathBefore {
		err = json.Unmarshal(text, &f.got)
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", f.typ)
	_, _ = io.WriteString(w, f.answer)
	return w.Result(), err
}

// A node of the version before is asked by envelopes, for what it knows.
func TestAskBefore(t *testing.T) {
	t.Parallel()
	there := &former{typ: typeBefore}
	client, err := NewClient(Config{Node: "node-1", Carrier: there, Before: func(address string) bool { return address == "old:1" }})
	if err != nil {
		t.Fatal(err)
	}
	at := client.Node("old:1")
	there.answer = `{"reply":{"working":true,"news":1}}`
	in, err := at.Invite(t.Context(), &peerv1.InviteRequest{Job: "job-1", Epoch: 1<<62 + 1, Address: "a:1", Session: "s"})
	if err != nil || !in.GetWorking() {
		t.Errorf("%v, %v", in, err)
	}
	if g := there.got; g.Protocol != Protocol || g.From != "node-1" || g.Kind != "invite" || g.Job != "job-1" || g.Epoch != 1<<62+1 ||
		string(g.Body) != `{"address":"a:1","epoch":4611686018427387905,"job":"job-1","session":"s"}` {
		t.Errorf("it was asked %+v, %s", g, g.Body)
	}
	there.answer = `{"reply":{}}`
	if _, err := at.Assign(t.Context(), &peerv1.AssignRequest{Job: "job-1", Acked: []string{"k"}, Batches: []*peerv1.Batch{{Number: 1, Spans: []*peerv1.Span{{To: 3, Except: rows}}}}}); err != nil {
		t.Error(err)
	}
	if g := there.got; g.Kind != "orders" || string(g.Body) != `{"deals":[{"number":1,"spans":[{"except":"OjAAAAEAAAAAAAMAEAAAAAEAAgADALwC","to":3}]}],"job":"job-1","settled":["k"]}` {
		t.Errorf("it was asked %+v, %s", g, g.Body)
	}

	var refusal *Refusal
	there.answer = `{"refusal":{"code":"unknown_job","message":"m"}}`
	if _, err := at.Hint(t.Context(), &peerv1.HintRequest{Job: "j"}); !errors.As(err, &refusal) || *refusal != (Refusal{"unknown_job", "m"}) {
		t.Errorf("error %v, want its refusal", err)
	}
	there.got = envelope{}
	if _, err := at.RunErrand(t.Context(), &peerv1.RunErrandRequest{Job: "j"}); !errors.As(err, &refusal) || refusal.Code != CodeUnknownKind || there.got.Kind != "" {
		t.Errorf("what it does not know: %v, want a refusal without asking", err)
	}
	there.answer = "welcome"
	if _, err := at.Hint(t.Context(), &peerv1.HintRequest{Job: "j"}); !errors.Is(err, ErrUnreachable) {
		t.Errorf("an answer that is none: %v", err)
	}
	there.typ = "text/html"
	if _, err := at.Hint(t.Context(), &peerv1.HintRequest{Job: "j"}); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "no peer") {
		t.Errorf("somebody else: %v", err)
	}
}

// inviting answers invites.
type inviting struct {
	peerv1connect.UnimplementedNodeServiceHandler
	got *peerv1.InviteRequest
}

func (i *inviting) Invite(_ context.Context, r *peerv1.InviteRequest) (*peerv1.InviteResponse, error) {
	i.got = r
	switch r.GetJob() {
	case "stale":
		return nil, &Refusal{Code: "stale", Message: "epoch 4 is known"}
	case "fails":
		return nil, errors.New("disk on fire")
	}
	return &peerv1.InviteResponse{Working: true}, nil
}

// A node of the version before asks by envelopes, and is answered likewise.
func TestAnswerBefore(t *testing.T) {
	t.Parallel()
	there := &inviting{}
	s := NewResponder(Config{MaxBody: 2000})
	post := func(text string) (a reply) {
		t.Helper()
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, pathBefore, strings.NewReader(text)))
		if got := w.Header().Get("Content-Type"); got != typeBefore || w.Code != http.StatusOK {
			t.Errorf("%s: answered as %q, %d", text, got, w.Code)
		}
		if err := json.NewDecoder(w.Body).Decode(&a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	code := func(a reply) string {
		if a.Refusal == nil {
			return ""
		}
		return a.Refusal.Code
	}
	const hello = `{"protocol":1,"from":"node-1","kind":"invite","job":"job-1","epoch":3,"body":{"job":"job-1","epoch":3,"address":"a:1","news":{"a":[]}}}`
	if got := code(post(hello)); got != CodeStarting {
		t.Errorf("before it serves: %q", got)
	}
	s.Serve(there)
	if a := post(hello); a.Refusal != nil || string(a.Reply) != `{"working":true}` {
		t.Errorf("answered %s, %v", a.Reply, a.Refusal)
	}
	if want := (&peerv1.InviteRequest{Job: "job-1", Epoch: 3, Address: "a:1"}); !proto.Equal(there.got, want) {
		t.Errorf("it was read as %s", prototext.Format(there.got))
	}
	for _, test := range []struct{ name, body, code string }{
		{"refused", `{"protocol":1,"kind":"invite","body":{"job":"stale"}}`, "stale"},
		{"failed", `{"protocol":1,"kind":"invite","body":{"job":"fails"}}`, CodeInternal},
		{"other protocol", `{"protocol":2,"kind":"invite","news":true}`, CodeProtocol},
		{"no protocol", `{"kind":"invite"}`, CodeProtocol},
		{"no JSON", `hello`, CodeInvalid},
		{"two documents", `{"protocol":1,"kind":"invite"}{"protocol":1,"kind":"invite"}`, CodeInvalid},
		{"wrong type", `{"protocol":1,"kind":"invite","epoch":"3"}`, CodeInvalid},
		{"wrong type within", `{"protocol":1,"kind":"invite","body":{"epoch":"3"}}`, CodeInvalid},
		{"no body", `{"protocol":1,"kind":"invite"}`, CodeInvalid},
		{"never heard of", `{"protocol":1,"kind":"dance","body":{}}`, CodeUnknownKind},
		{"of a later version", `{"protocol":1,"kind":"report","body":{}}`, CodeUnknownKind}, // there answers invites alone
		{"too large", `{"protocol":1,"kind":"invite","body":{"job":"` + strings.Repeat("x", 3000) + `"}}`, CodeTooLarge},
	} {
		if got := code(post(test.body)); got != test.code {
			t.Errorf("%s: %q, want %s", test.name, got, test.code)
		}
	}
}

// FuzzBefore feeds the server with anything that the version before might post. What it
// lets in can be sent on.
func FuzzBefore(f *testing.F) {
	for _, seed := range []string{
		`{"protocol":1,"from":"n-1","kind":"report","job":"job-1","epoch":7,"body":{"holds":[{"shard":3,"rows":"OjA="}],"refused":{"a":"b"},"fault":{"row":-1}}}`,
		`{"protocol":1,"kind":"orders","body":{"deals":[{"spans":[null,{"of":{"rows":1}}]}],"recall":null}}`,
		`{"protocol":2,"kind":"news"}`, `{"protocol":1,"kind":"Ä"}`, `{"protocol":1,"kind":"hint","body":{"account":"\ud800"}}`,
		`null`, `[]`, `{`, ``,
	} {
		f.Add([]byte(seed))
	}
	s := NewResponder(Config{})
	f.Fuzz(func(t *testing.T, text []byte) {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, pathBefore, bytes.NewReader(text))
		m, _, refusal := s.readBefore(newExchange(w, r, "", true, 1<<20))
		if refusal != nil {
			if refusal.Code != CodeInvalid && refusal.Code != CodeProtocol && refusal.Code != CodeUnknownKind {
				t.Fatalf("refused with %q", refusal.Code)
			}
			return
		}
		raw, err := proto.Marshal(m.input)
		if err != nil {
			t.Fatalf("cannot be sent on: %v", err)
		}
		again, err := json.Marshal(documentOf(m.input.ProtoReflect()))
		if err != nil {
			t.Fatal(err)
		}
		other := m.input.ProtoReflect().New()
		if err := readDocument(again, other); err != nil {
			t.Fatal(err)
		}
		was := m.input.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(raw, was); err != nil || !proto.Equal(was, other.Interface()) {
			t.Fatalf("%s became %s, %v", prototext.Format(was), prototext.Format(other.Interface()), err)
		}
	})
}
