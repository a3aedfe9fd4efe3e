package sim

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

type embeddings struct {
	Object string `json:"object"`
	Data   []struct {
		Index     int       `json:"index"`
		Embedding []float32 `json:"embedding"`
	} `json:"data"`
	Usage struct {
		Prompt int `json:"prompt_tokens"`
		Total  int `json:"total_tokens"`
	} `json:"usage"`
}

func TestEmbeddings(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	r := c.must("POST", "/v1/embeddings", `{"model":"embedder","input":["one","two words","one"]}`)
	got := decode[embeddings](t, r.body)
	if len(got.Data) != 3 || got.Object != "list" {
		t.Fatalf("%s", r.body)
	}
	for i, item := range got.Data {
		sum := 0.0
		for _, number := range item.Embedding {
			sum += float64(number) * float64(number)
		}
		if item.Index != i || len(item.Embedding) != 64 || math.Abs(sum-1) > 1e-5 {
			t.Errorf("item %d: index %d, %d numbers, length %v", i, item.Index, len(item.Embedding), sum)
		}
	}
	if !slices.Equal(got.Data[0].Embedding, got.Data[2].Embedding) || slices.Equal(got.Data[0].Embedding, got.Data[1].Embedding) {
		t.Error("a vector must depend on its text, and on that alone")
	}
	if want := 2*c.count("one") + c.count("two words"); got.Usage.Prompt != want || got.Usage.Total != want {
		t.Errorf("usage %+v, want %d", got.Usage, want)
	}
	encoded := decode[struct {
		Data []struct{ Embedding string }
	}](t, c.must("POST", "/v1/embeddings", `{"model":"embedder","input":"two words","encoding_format":"base64","dimensions":64}`).body)
	raw := must.Get(base64.StdEncoding.DecodeString(encoded.Data[0].Embedding))(t)
	for i, want := range got.Data[1].Embedding {
		if number := math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])); number != want {
			t.Fatalf("number %d is %v in base64, %v in JSON", i, number, want)
		}
	}
}

func TestEmbeddingRefusals(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	for reason, tt := range map[string]struct {
		body   string
		status int
	}{
		"cannot be cut to 32":             {`{"model":"embedder","input":"x","dimensions":32}`, 400},
		"dimensions: Input":               {`{"model":"embedder","input":"x","dimensions":"64"}`, 400},
		"at least one text":               {`{"model":"embedder","input":[]}`, 400},
		"does not exist":                  {`{"model":"nobody","input":"x"}`, 404},
		"does not support Embeddings API": {`{"model":"plain","input":"x"}`, 400},
		"model: Field required":           {`{"input":"x"}`, 400},
		"must be float or base64":         {`{"model":"embedder","input":"x","encoding_format":"hex"}`, 400},
		"no token ids":                    {`{"model":"embedder","input":[1,2]}`, 400},
		"valid list":                      {`{"model":"embedder","input":{}}`, 400},
		"invalid JSON":                    {`{"model":"embedder","input":`, 400},
		"maximum context length":          {`{"model":"embedder","input":["fine","` + strings.Repeat("a ", 600) + `"]}`, 400},
	} {
		if p := c.refused("/v1/embeddings", tt.body, tt.status); !strings.Contains(p.Error.Message, reason) {
			t.Errorf("message %q does not say %q", p.Error.Message, reason)
		}
	}
}

func TestTokenize(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	type counted struct {
		Count       int   `json:"count"`
		MaxModelLen int   `json:"max_model_len"`
		Tokens      []int `json:"tokens"`
	}
	got := decode[counted](t, c.must("POST", "/tokenize", `{"model":"plain","prompt":"Hello brave  new-world, ünï 12345678901234"}`).body)
	// Hello| brave| | new|-|world|,| |ü|n|ï| 123456789012|34
	if got.Count != 13 || len(got.Tokens) != 13 || got.MaxModelLen != 4096 {
		t.Errorf("got %+v", got)
	}
	empty := decode[counted](t, c.must("POST", "/tokenize", `{"model":"plain","prompt":""}`).body)
	if empty.Count != 0 || empty.Tokens == nil {
		t.Errorf("got %+v", empty)
	}
	for _, prompt := range []string{"x", "", "several words, and more"} {
		messages := fmt.Sprintf(`"messages":[{"role":"system","content":"be kind"},{"role":"user","content":%q}]`, prompt)
		tokens := decode[counted](t, c.must("POST", "/tokenize", `{"model":"plain",`+messages+`}`).body)
		usage := c.complete(`{"model":"plain",` + messages + `}`).Usage
		if tokens.Count != usage.Prompt || len(tokens.Tokens) != tokens.Count {
			t.Errorf("/tokenize counts %d, usage says %d", tokens.Count, usage.Prompt)
		}
		open := decode[counted](t, c.must("POST", "/tokenize", `{"model":"plain","add_generation_prompt":false,`+messages+`}`).body)
		if open.Count != tokens.Count-promptTokens {
			t.Errorf("%d tokens without the start of an answer, %d with it", open.Count, tokens.Count)
		}
	}
	c.refused("/tokenize", `{"model":"plain"}`, 400)
	c.refused("/tokenize", `{"model":"plain","prompt":"x","messages":[]}`, 400)
	c.refused("/tokenize", `{"model":"nobody","prompt":"x"}`, 404)
	c.refused("/tokenize", `{"model":"plain","prompt":5}`, 400)
	c.refused("/tokenize", `[]`, 400)
}
