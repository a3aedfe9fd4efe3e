package prompt

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill"
)

// message returns a message of a chat as JSON.
func message(role, content string) string {
	text, _ := json.Marshal(map[string]string{"role": role, "content": content})
	return string(text)
}

func chatOf(messages ...string) string { return "[" + strings.Join(messages, ",") + "]" }

func TestNormalizeChat(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"\t[ {\"role\": \"user\", \"content\": \"a  b\"} ]\n":                                 `[{"role":"user","content":"a  b"}]`,
		`[{"role":"user","content":[{"type":"text","text":"x"}],"name":"n"}]`:                 `[{"role":"user","content":[{"type":"text","text":"x"}],"name":"n"}]`,
		`[{"role":"assistant","content":null,"tool_calls":[]},{"role":"tool","content":"1"}]`: `[{"role":"assistant","content":null,"tool_calls":[]},{"role":"tool","content":"1"}]`,
	} {
		if got, err := NormalizeChat(text); got != want || err != nil {
			t.Errorf("%s became %s, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"":                                  "not a list of messages",
		"Hello":                             "not a list of messages",
		"[]":                                "not a list of messages",
		`{"role":"user","content":"x"}`:     "not a list of messages",
		`["x"]`:                             "message 0 is not an object",
		`[{"content":"x"}]`:                 "message 0 is not an object with a role",
		`[{"role":1,"content":"x"}]`:        "message 0 is not an object with a role",
		`[{"role":"","content":"x"}]`:       "message 0 is not an object with a role",
		`[{"role":"user"}]`:                 "the content of message 0",
		`[{"role":"user","content":{}}]`:    "the content of message 0",
		`[{"role":"user","content":"x"}] 1`: "not a list of messages",
		chatOf(message("user", "x"), `{"role":"user","content":1}`): "the content of message 1",
	} {
		if _, err := NormalizeChat(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

// A chat that is too long loses its oldest messages, then the end of its last message.
func TestCutChat(t *testing.T) {
	t.Parallel()
	system, old, answer, next := message("system", "Be kind."), message("user", "old"), message("assistant", "old answer"), message("user", "the question")
	whole := chatOf(system, old, answer, next)
	for n, want := range map[int]string{
		len(whole):                     whole,
		len(whole) - 1:                 chatOf(system, next),
		len(chatOf(system, next)):      chatOf(system, next),
		len(chatOf(system, next)) - 4:  chatOf(system, message("user", "the ques")),
		len(chatOf(system, next)) - 11: chatOf(system, message("user", "t")),
		len(chatOf(system, next)) - 12: "",
		0:                              "",
	} {
		if got := cutChat(whole, n); got != want {
			t.Errorf("with %d bytes: %s, want %s", n, got, want)
		}
	}
	if got := cutChat(chatOf(old, `{"role":"user","content":[{"type":"image_url"}]}`), 50); got != `[{"role":"user","content":[{"type":"image_url"}]}]` {
		t.Errorf("a chat with an image became %s", got)
	}
}

// A cut chat is a chat, is short enough, and has the system messages and the last message.
func TestCutChat_Properties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var messages []string
		for range rapid.IntRange(1, 6).Draw(t, "messages") {
			messages = append(messages, message(rapid.SampledFrom([]string{"system", "user", "assistant"}).Draw(t, "role"), rapid.String().Draw(t, "content")))
		}
		text := chatOf(messages...)
		n := rapid.IntRange(0, len(text)+5).Draw(t, "bytes")
		cut := cutChat(text, n)
		if cut == "" {
			return
		}
		before, _ := parseChat(text)
		after, err := parseChat(cut)
		if err != nil || len(cut) > n {
			t.Fatalf("%s cut to %d bytes: %s, %v", text, n, cut, err)
		}
		first := slices.IndexFunc(before, func(m chatMessage) bool { return m.role != "system" })
		for i := range max(first, 0) {
			if i < len(before)-1 && string(after[i].raw) != string(before[i].raw) {
				t.Fatalf("%s cut to %d bytes has lost a system message: %s", text, n, cut)
			}
		}
		if last := after[len(after)-1]; !strings.HasPrefix(before[len(before)-1].content, last.content) {
			t.Fatalf("%s cut to %d bytes ends otherwise: %s", text, n, cut)
		}
	})
}

// A chat fits after it was cut, by the server's count and by our own.
func TestCounter_Chats(t *testing.T) {
	t.Parallel()
	counter, err := newCounting(words{}, "", nil).NewCounter(&rowmill.Spec{Model: chatModel, Messages: true})
	check(t, err)
	var messages []string
	for i := range 20 {
		messages = append(messages, message([]string{"user", "assistant"}[i%2], fmt.Sprintf("turn %d with %s", i, strings.Repeat("many ", i))))
	}
	messages = append(messages, message("user", "the last question"))
	text := chatOf(messages...)
	if few, many := counter.Count(chatOf(messages[:2]...)), counter.Count(text); few >= many || many > counter.CountUpperBound(text) || counter.IsExact(text) {
		t.Errorf("%d tokens for two messages, %d for all, at most %d", few, many, counter.CountUpperBound(text))
	}
	asked := 0
	ask := func(_ context.Context, text string) (int, error) {
		asked++
		return counter.Count(text), nil
	}
	for name, ask := range map[string]func(context.Context, string) (int, error){"the server": ask, "no server": nil} {
		cut, ok, err := counter.TruncateToFit(t.Context(), text, 80, ask)
		if !ok || err != nil || counter.Count(cut) > 80 || !strings.HasSuffix(cut, messages[len(messages)-1]+"]") {
			t.Errorf("%s: cut to %s with %d tokens, %v, %v", name, cut, counter.Count(cut), ok, err)
		}
		if _, ok, err := counter.TruncateToFit(t.Context(), text, 3, ask); ok || err != nil {
			t.Errorf("%s: a limit of 3 tokens is enough, %v", name, err)
		}
	}
	if asked > 20 {
		t.Errorf("the server counted %d times", asked)
	}
}
