package openai

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
)

// passed sends a row unchanged to a server with this handler. It returns the result and
// the body that the server received.
func passed(t *testing.T, path, row string, handle http.HandlerFunc) (reply engine.Reply, fault *engine.Error, sent string) {
	t.Helper()
	server := http.NewServeMux()
	server.HandleFunc("/v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"served/name","owned_by":"vllm","max_model_len":4096}]}`)
	})
	server.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			http.NotFound(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		sent = string(body)
		handle(w, r)
	})
	behind := httptest.NewServer(server)
	t.Cleanup(behind.Close)
	e := probed(t, Config{BaseURL: behind.URL, MaxAnswerBytes: 10_000})
	call, err := e.Prepare(engine.JobParams{Path: path, Model: rowmill.Model{ID: "mine", Kind: rowmill.KindRaw, EngineNames: []string{"served/name"}}})
	must.Succeed(t, err)
	reply, err = call.Generate(t.Context(), engine.Row{Text: []byte(row)})
	if err != nil && !errors.As(err, &fault) {
		t.Fatal(err)
	}
	return reply, fault, sent
}

func TestRaw_RepliesComeAsTheyAre(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		path, row, sent, says string
		want                  engine.Reply
	}{
		"chat": {
			"/v1/chat/completions", `{"messages":[],"tools":[{"a":1.50}]}`, `{"model":"served/name","messages":[],"tools":[{"a":1.50}]}`,
			`{"choices":[{"message":{"tool_calls":[]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":2}},"more":null}`,
			engine.Reply{Finish: rowmill.FinishStop, InputTokens: 7, CachedTokens: 2, OutputTokens: 3},
		},
		"other notations": {
			"/v1/completions", `{}`, `{"model":"served/name"}`, `{"choices":[],"usage":{"prompt_tokens":12.0,"completion_tokens":1.1E+1,"prompt_tokens_details":{"cached_tokens":2e0}}}`,
			engine.Reply{Finish: rowmill.FinishStop, InputTokens: 12, CachedTokens: 2, OutputTokens: 11},
		},
		"cut off": {
			"/v1/completions", `{}`, `{"model":"served/name"}`, `{"choices":[{"text":"x","finish_reason":"stop"},{"text":"y","finish_reason":"length"}],"usage":{"prompt_tokens":1}}`,
			engine.Reply{Finish: rowmill.FinishLength, InputTokens: 1},
		},
		"messages": {
			"/v1/messages", `{"max_tokens":1}`, `{"model":"served/name","max_tokens":1}`, `{"type":"message","stop_reason":"max_tokens","usage":{"input_tokens":4,"output_tokens":1,"cache_read_input_tokens":6}}`,
			engine.Reply{Finish: rowmill.FinishLength, InputTokens: 10, CachedTokens: 6, OutputTokens: 1},
		},
		"responses": {
			"/v1/responses", `{"input":"x"}`, `{"model":"served/name","input":"x"}`, `{"status":"completed","error":null,"usage":{"input_tokens":4,"output_tokens":1}}`,
			engine.Reply{Finish: rowmill.FinishStop, InputTokens: 4, OutputTokens: 1},
		},
		"a response that was cut off": {
			"/v1/responses", `{"input":"x"}`, `{"model":"served/name","input":"x"}`,
			`{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"seed":12345678901234567890,"x":1.0E+400,"usage":{"input_tokens":4,"output_tokens":1}}`,
			engine.Reply{Finish: rowmill.FinishLength, InputTokens: 4, OutputTokens: 1},
		},
		"embeddings": {
			"/v1/embeddings", `{"input":"x"}`, `{"model":"served/name","input":"x"}`, `{"data":[{"embedding":[0.5]}],"usage":{"prompt_tokens":4}}`,
			engine.Reply{Finish: rowmill.FinishStop, InputTokens: 4},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, fault, sent := passed(t, tt.path, tt.row, func(w http.ResponseWriter, r *http.Request) {
				if version := r.Header.Get("anthropic-version"); (version != "") != (tt.path == pathMessages) {
					t.Errorf("anthropic-version is %q", version)
				}
				_, _ = io.WriteString(w, tt.says)
			})
			if fault != nil {
				t.Fatal(fault)
			}
			tt.want.Content = tt.says
			if diff := cmp.Diff(tt.want, got); diff != "" || sent != tt.sent {
				t.Errorf("sent %s (-want +got):\n%s", sent, diff)
			}
		})
	}
}

func TestRaw_RepliesAreOnOneLine(t *testing.T) {
	t.Parallel()
	got, fault, _ := passed(t, "/v1/completions", `{}`, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "{\r\n  \"choices\": [ {\"text\": \"a b\"} ]\n}\n")
	})
	if fault != nil || got.Content != `{"choices":[{"text":"a b"}]}` {
		t.Errorf("%q, %v", got.Content, fault)
	}
}

func TestRaw_Refusals(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status int
		says   string
		class  engine.ErrorClass
		code   string
	}{
		"bad request":      {400, `{"error":{"message":"max_tokens must be at least 1","code":400}}`, engine.RowFault, "http_400"},
		"too long":         {400, `{"error":{"message":"maximum context length is 5 tokens","code":400}}`, engine.RowFault, rowmill.RowTooLong},
		"media":            {415, `no`, engine.RowFault, "http_415"},
		"overload":         {429, `{"error":{"message":"later"}}`, engine.Busy, "http_429"},
		"crash":            {500, `{"error":{"message":"oops"}}`, engine.Transient, "http_500"},
		"no path":          {404, `{"detail":"Not Found"}`, engine.JobFault, "http_404"},
		"no method":        {405, `{"detail":"Method Not Allowed"}`, engine.JobFault, "http_405"},
		"no model":         {404, `{"error":{"message":"The model served/name does not exist."}}`, engine.ServerFault, "http_404"},
		"another response": {404, `{"error":{"message":"Response with id 'resp_1' not found."}}`, engine.RowFault, "http_404"},
		"key":              {401, `{"error":{"message":"key"}}`, engine.ServerFault, "http_401"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, fault, _ := passed(t, "/v1/chat/completions", `{"messages":[]}`, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.says)
			})
			if fault == nil || fault.Class != tt.class || fault.Status != tt.status || fault.Raw != tt.says || fault.Code != tt.code {
				t.Errorf("got %+v", fault)
			}
		})
	}
}

func TestRaw_BadReplies(t *testing.T) {
	t.Parallel()
	for says, want := range map[string]string{
		"": "malformed_reply", "[]": "malformed_reply", `{"a":`: "malformed_reply", "{\"a\":\"\xff\"}": "malformed_reply",
		`{"usage":{"prompt_tokens":-5}}`: "malformed_reply", `{"usage":{"prompt_tokens":99999999999}}`: "malformed_reply",
		`{"usage":{"completion_tokens":3.5}}`:                                                          "malformed_reply",
		`{"error":{"message":"full","code":503}}`:                                                      "error_in_reply",
		`{"status":"failed","error":{"code":"server_error","message":"x"},"usage":{"input_tokens":4}}`: "server_error",
		`{"status":"cancelled","error":null,"output":[],"usage":null}`:                                 "error_in_reply",
		`{"status":"queued","error":null,"output":[],"usage":null}`:                                    "malformed_reply",
		`{"status":"in_progress","output":[],"usage":{"input_tokens":4}}`:                              "malformed_reply",
		`{"choices":[{"text":"` + strings.Repeat("x", 11_000) + `"}]}`:                                 "reply_too_large",
	} {
		_, fault, _ := passed(t, "/v1/completions", `{}`, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, says) })
		final := want == "reply_too_large"
		if fault == nil || fault.Code != want || final != (fault.Class == engine.RowFault) {
			t.Errorf("%.40q: %+v", says, fault)
		}
	}
}

// FuzzRawReply checks that every accepted reply is one JSON object on one line.
func FuzzRawReply(f *testing.F) {
	for _, text := range []string{`{}`, "{\n}", `{"usage":{"input_tokens":1e3}}`, `{"choices":{}}`, `{"error":[]}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		reply, err := parseRawReply(text)
		if err != nil {
			return
		}
		if c := reply.Content; !json.Valid([]byte(c)) || c[0] != '{' || strings.ContainsAny(c, "\r\n") || reply.InputTokens < 0 || reply.OutputTokens < 0 || reply.CachedTokens > reply.InputTokens {
			t.Errorf("%q became %+v", text, reply)
		}
	})
}
