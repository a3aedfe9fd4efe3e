package openai

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"

	"github.com/rowmill/rowmill/engine"
)

// maxDimension limits the numbers in an embedding if the catalog does not give its
// dimension. The longest published embeddings have 8192 numbers.
const maxDimension = 1 << 16

// scanEmbeddings reads the body of an embeddings reply and puts one embedding into each
// entry of out, by the index in the reply. dimension is the expected length of each
// embedding; 0 if unknown.
func (r *replyReader) scanEmbeddings(out []engine.Reply, dimension int) error {
	clear(out)
	found := false
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		switch string(k) {
		case "data":
			found = true
			clear(out)
			count := 0
			for more := r.firstItem(); more; more = r.nextItem() {
				r.scanEmbedding(out, dimension, count)
				count++
			}
		case "usage":
			r.scanUsage()
		case "error":
			r.scanFault()
		default:
			r.skipValue()
		}
	}
	r.expectEnd()
	if r.err != nil {
		return r.err
	}
	if r.fault.found && !found {
		return &engine.Error{
			Class: engine.Transient, Status: http.StatusOK, Code: r.fault.safeCode("error_in_reply"),
			Message: "the server reported an error inside its reply",
		}
	}
	for i := range out {
		if out[i].Embedding == nil {
			return &engine.Error{
				Class: engine.Transient, Status: http.StatusOK, Code: "no_embedding",
				Message: fmt.Sprintf("the server's reply has no embedding for text %d of %d", i+1, len(out)),
			}
		}
	}
	return nil
}

// scanEmbedding reads one embedding and puts it into out. position is the index to use
// if the reply gives no index. dimension is the expected length; 0 if unknown.
func (r *replyReader) scanEmbedding(out []engine.Reply, dimension, position int) {
	var vector []float32
	index := int64(position)
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		switch string(k) {
		case "index":
			index = r.readCount()
		case "embedding":
			if r.peek() == '"' {
				vector = r.readPackedVector()
			} else {
				vector = r.readVectorList(dimension)
			}
		default:
			r.skipValue()
		}
	}
	switch {
	case r.err != nil:
	case index >= int64(len(out)) || out[index].Embedding != nil:
		r.fail("embedding with an index that was not asked for")
	case len(vector) == 0:
		r.fail("empty embedding")
	case dimension > 0 && len(vector) != dimension: // all other embeddings of the server have the same wrong length
		r.failWith(&engine.Error{
			Class: engine.JobFault, Status: http.StatusOK, Code: "wrong_dimension",
			Message: fmt.Sprintf("the server's embeddings have %d numbers, but the model's dimension is %d: correct the dimension, or load that model on the server",
				len(vector), dimension),
		})
	default:
		out[index].Embedding = vector
	}
}

// readPackedVector reads an embedding that is a string: base64 of little-endian float32
// numbers.
func (r *replyReader) readPackedVector() []float32 {
	r.scratch = r.readString(r.scratch[:0], maxDimension*4*4/3+4, false)
	if r.err != nil {
		return nil
	}
	need := base64.StdEncoding.DecodedLen(len(r.scratch))
	if cap(r.content) < need {
		r.content = make([]byte, need)
	}
	n, err := base64.StdEncoding.Decode(r.content[:need], r.scratch)
	if err != nil || n%4 != 0 {
		r.fail("embedding is not base64 of float32")
		return nil
	}
	packed := r.content[:n]
	vector := make([]float32, n/4)
	for i := range vector {
		bits := binary.LittleEndian.Uint32(packed[4*i:])
		if bits&0x7F800000 == 0x7F800000 {
			r.fail("embedding with a number that is not finite")
			return nil
		}
		vector[i] = math.Float32frombits(bits)
	}
	return vector
}

// readVectorList reads an embedding that is a JSON list of numbers. dimension is its
// expected length; 0 if unknown.
func (r *replyReader) readVectorList(dimension int) []float32 {
	vector := make([]float32, 0, min(dimension, maxDimension))
	for more := r.firstItem(); more; more = r.nextItem() {
		v := float32(r.readApproxNumber())
		if math.IsInf(float64(v), 0) || len(vector) >= maxDimension {
			r.fail("embedding with a number that is not finite, or too many")
			return nil
		}
		vector = append(vector, v)
	}
	return vector
}
