package sim

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/rowmill/rowmill/internal/textfmt"
)

// embedRequest is a parsed request for embeddings.
type embedRequest struct {
	Model      *string `json:"model"`
	Input      any     `json:"input"` // a text or a list of texts
	Encoding   string  `json:"encoding_format"`
	Dimensions jsonInt `json:"dimensions"`

	model  *servedModel
	inputs []string
	tokens []int // number of tokens of each input
	sum    int   // sum of tokens
}

func (r *embedRequest) parse(body []byte, find func(name string) (*servedModel, error)) error {
	r.Encoding = "float"
	if err := decodeBody(body, r); err != nil {
		return err
	}
	var isText bool
	r.inputs, isText = parseStringList(r.Input)
	_, isList := r.Input.([]any)
	switch {
	case r.Model == nil:
		return badRequest("model", "model: Field required")
	case !isText && isList:
		return badRequest("input", "input: only texts are simulated, no token ids")
	case !isText:
		return badRequest("input", "input: Input should be a valid string or a valid list")
	case len(r.inputs) == 0:
		return badRequest("input", "input: at least one text is required")
	case r.Encoding != "float" && r.Encoding != "base64":
		return badRequest("encoding_format", "encoding_format must be float or base64, got %q", r.Encoding)
	}
	var err error
	if r.model, err = find(*r.Model); err != nil {
		return err
	}
	if !r.model.embeds {
		return badRequest("model", "The model %q does not support Embeddings API", *r.Model)
	}
	if r.Dimensions != 0 && int(r.Dimensions) != r.model.dimension {
		return badRequest("dimensions", "dimensions: the model %q has %d dimensions and cannot be cut to %d", *r.Model, r.model.dimension, r.Dimensions)
	}
	for _, input := range r.inputs {
		n := countTokens(input)
		if err := r.model.checkContextLength(n, 0, "input"); err != nil {
			return err
		}
		r.tokens = append(r.tokens, n)
		r.sum += n
	}
	return nil
}

// serveEmbeddings serves /v1/embeddings.
func (s *Server) serveEmbeddings(x *httpExchange) {
	began := time.Now()
	r := &embedRequest{}
	if err := r.parse(x.body, s.findModel); err != nil {
		s.replyError(x, err)
		return
	}
	var d directives
	h := sha256.New()
	h.Write([]byte(r.model.id))
	for _, input := range r.inputs {
		d.read([]byte(input))
		h.Write([]byte{0})
		h.Write([]byte(input))
	}
	group := digest(h.Sum(nil))
	hit := s.faults.chooseFault(group.key(), &d)
	if hit.fault == faultViolate {
		hit = chosenFault{} // there is no schema to violate
	}
	c := &activeRequest{httpExchange: x, began: began, injected: hit}
	c.note = func(status, _ int, cancelled bool) { s.recordEmbeddings(c, r, status, cancelled) }
	run := s.startCall(c, d.delay, EngineRequest{PromptTokens: r.sum})
	if run == nil {
		return
	}
	defer run.End()
	if s.waitForTokens(c, run, 0) {
		s.deliver(c, r.appendReply(x.buffer(), hit.fault == faultEmpty))
	}
}

// recordEmbeddings counts a finished call for embeddings, and writes a line of the
// request log for each text.
func (s *Server) recordEmbeddings(c *activeRequest, r *embedRequest, status int, cancelled bool) {
	if status == http.StatusOK {
		s.counts.promptTokens.Add(int64(r.sum))
		s.counts.countFinished("stop")
	}
	if s.requests == nil {
		return
	}
	line := c.newLogRecord("embeddings", *r.Model, status, cancelled)
	for i, input := range r.inputs {
		line.PromptTokens = r.tokens[i]
		s.requests.write(line, []byte(input))
	}
}

// appendReply appends the JSON body of the answer. If empty is true, the body has no
// embeddings.
func (r *embedRequest) appendReply(dst []byte, empty bool) []byte {
	dst = append(dst, `{"object":"list","model":`...)
	dst = textfmt.AppendString(dst, []byte(*r.Model))
	dst = append(dst, `,"simulated":true,"data":[`...)
	vector := make([]float32, r.model.dimension)
	var raw []byte
	for i, input := range r.inputs {
		if empty {
			break
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		embedText(vector, r.model, []byte(input))
		dst = append(dst, `{"object":"embedding","index":`...)
		dst = strconv.AppendInt(dst, int64(i), 10)
		dst = append(dst, `,"embedding":`...)
		if r.Encoding == "base64" {
			raw = raw[:0]
			for _, number := range vector {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(number))
			}
			dst = append(dst, '"')
			dst = base64.StdEncoding.AppendEncode(dst, raw)
			dst = append(dst, `"}`...)
			continue
		}
		for j, number := range vector {
			dst = append(dst, "[,"[min(j, 1)])
			dst = strconv.AppendFloat(dst, float64(number), 'g', -1, 32)
		}
		dst = append(dst, `]}`...)
	}
	return fmt.Appendf(dst, `],"usage":{"prompt_tokens":%d,"total_tokens":%d}}`, r.sum, r.sum)
}

// embedText fills vector with the unit vector of a text. The vector depends only on the
// server's seed, the model and the text. Similar texts do not have similar vectors.
func embedText(vector []float32, m *servedModel, text []byte) {
	h := sha256.New()
	h.Write([]byte(m.id))
	h.Write(binary.LittleEndian.AppendUint64([]byte{0}, uint64(m.seed)))
	h.Write(text)
	d := digest(h.Sum(nil))
	r := d.random()
	sum := 0.0
	for i := range vector {
		number := 2*r.uniform() - 1
		vector[i] = float32(number)
		sum += number * number
	}
	scale := float32(1 / math.Sqrt(sum))
	for i := range vector {
		vector[i] *= scale
	}
}
