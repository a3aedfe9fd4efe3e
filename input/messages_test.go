package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

const messagesPath = "/v1/messages"

// readLines returns the IDs and bodies of the lines that ConvertMessages wrote.
func readLines(t testing.TB, lines []byte) (ids, bodies []string, model string) {
	t.Helper()
	b := OpenBatch(bytes.NewReader(lines), messagesPath, Limits{})
	for {
		var row rowmill.Row
		err := b.Next(&row)
		if errors.Is(err, io.EOF) {
			return ids, bodies, b.Model()
		}
		if err != nil {
			t.Fatalf("the lines cannot be read: %v\n%s", err, lines)
		}
		ids, bodies = append(ids, row.ID.Text), append(bodies, row.Text)
	}
}

func TestMessages_BecomeLines(t *testing.T) {
	t.Parallel()
	body := ` { "other": [1, {"requests": []}], "requests" : [
		{"params": {"model": "m", "x": "a\nb", "y": [1,
			2]}, "custom_id": "é\n\u2028"} ,
		{"custom_id":"b","params":{"stream":false,"model":"m"},"more":{}}
	], "last": null } `
	var lines bytes.Buffer
	model, n, err := ConvertMessages(iotest.OneByteReader(strings.NewReader(body)), &lines, messagesPath, Limits{})
	if err != nil || model != "m" || n != 2 {
		t.Fatal(model, n, err)
	}
	ids, bodies, model := readLines(t, lines.Bytes())
	if diff := cmp.Diff([]string{"é\n\u2028", "b"}, ids); diff != "" || model != "m" {
		t.Error(model, diff)
	}
	if diff := cmp.Diff([]string{`{"x":"a\nb","y":[1,2]}`, `{"stream":false}`}, bodies); diff != "" {
		t.Error(diff)
	}
}

// A value that never ends must be refused before it is in memory. The error names its field.
func TestMessages_BoundsAValue(t *testing.T) {
	t.Parallel()
	for begin, field := range map[string]string{
		`{"requests":[{"custom_id":"`:                                          "requests.0",
		`{"requests":[{"custom_id":"a","params":{"model":"m"}},{"custom_id":"`: "requests.1",
		`{"comment":"`: "comment",
		`{"requests":[{"custom_id":"a","params":{"model":"m"}}],"comment":"`: "comment",
	} {
		src := &counted{Reader: io.MultiReader(strings.NewReader(begin), endless{})}
		_, _, err := ConvertMessages(src, io.Discard, messagesPath, Limits{MaxRowBytes: 1 << 20})
		invalid := (*rowmill.InvalidError)(nil)
		if !errors.As(err, &invalid) || invalid.Fields[0].Field != field {
			t.Errorf("%s: error %v", begin, err)
		}
		if src.n > 1<<20+2*readAhead {
			t.Errorf("%s: %d bytes were read", begin, src.n)
		}
	}
}

func TestMessages_RefuseTwoLists(t *testing.T) {
	t.Parallel()
	const one = `[{"custom_id":"a","params":{"model":"m"}}]`
	for _, body := range []string{`{"requests":[],"requests":` + one + `}`, `{"requests":` + one + `,"requests":[]}`} {
		_, _, err := ConvertMessages(strings.NewReader(body), io.Discard, messagesPath, Limits{})
		if err == nil || !strings.Contains(err.Error(), "twice") {
			t.Errorf("%s: error %v", body, err)
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

type counted struct {
	io.Reader
	n int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

func TestMessages_ReturnErrorsOfTheSource(t *testing.T) {
	t.Parallel()
	broke := errors.New("broke")
	for _, begin := range []string{"", `{"requests":[`, `{"requests":[{"custom_id":"a","params":{"model":"m"}}`, `{"x":1`} {
		_, _, err := ConvertMessages(io.MultiReader(strings.NewReader(begin), iotest.ErrReader(broke)), io.Discard, messagesPath, Limits{})
		if !errors.Is(err, broke) {
			t.Errorf("%s: %v", begin, err)
		}
	}
}

// FuzzMessages compares the lines with encoding/json's view of the body.
func FuzzMessages(f *testing.F) {
	for _, body := range []string{
		`{"requests":[{"custom_id":"a","params":{"model":"m"}}]}`,
		"{\"requests\":[{\"custom_id\":\"a\\u0062\",\"params\":{ \"x\" : [1,2.50,\"\u2028\\n\"] ,\n\"model\":\"m\"}}, {\"params\":{\"model\":\"m\"},\"custom_id\":\"c\"}]}",
		`{"requests":[{"custom_id":"a","params":{"model":"m","stream":true}}]}`,
		`{"x":{"requests":[1]},"requests":[]}`, `[]`, `{"requests":7}`, `{"requests":[7]}{`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		var lines bytes.Buffer
		model, n, err := ConvertMessages(strings.NewReader(body), &lines, messagesPath, Limits{})
		if err != nil {
			return
		}
		if !json.Valid([]byte(body)) {
			t.Fatalf("%q is not JSON but was accepted", body)
		}
		ids, bodies, of := readLines(t, lines.Bytes())
		if int64(len(ids)) != n || of != model {
			t.Fatalf("%d lines of %d requests, for %q and %q", len(ids), n, of, model)
		}
		var want struct {
			Requests []struct {
				CustomID string                     `json:"custom_id"`
				Params   map[string]json.RawMessage `json:"params"`
			} `json:"requests"`
		}
		if json.Unmarshal([]byte(body), &want) != nil || len(want.Requests) != len(ids) || !sameNames(body) {
			return // encoding/json ignores the case of names, and takes the last of two lists
		}
		for i, request := range want.Requests {
			if request.CustomID != ids[i] {
				t.Fatalf("request %d has the id %q, not %q", i, ids[i], request.CustomID)
			}
			delete(request.Params, "model")
			for name, value := range request.Params {
				var compact bytes.Buffer
				must.Succeed(t, json.Compact(&compact, value))
				request.Params[name] = compact.Bytes()
			}
			var got map[string]json.RawMessage
			must.Succeed(t, json.Unmarshal([]byte(bodies[i]), &got))
			if diff := cmp.Diff(request.Params, got); diff != "" {
				t.Fatalf("request %d (-want +got):\n%s", i, diff)
			}
		}
	})
}
