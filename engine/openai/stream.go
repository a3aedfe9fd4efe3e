package openai

import "time"

// scanStream reads the chunks of a streamed chat completion, up to [DONE], into the
// same fields as scanChat. It returns an error for a malformed chunk. It stores an
// error that the server reports in r.fault.
func (r *replyReader) scanStream(src windowSource) error {
	r.events = eventReader{src: src}
	for {
		kind, err := r.events.nextPayload()
		if err != nil {
			return err
		}
		r.reset(&r.events)
		switch kind {
		case eventData:
			r.scanChunk()
			r.events.whole = true
			r.expectEnd()
		case eventError:
			r.events.whole = true // an error object is always one line
			r.scanFault()
			r.expectEnd()
		default:
			return nil
		}
		if r.err != nil || r.fault.found {
			return r.err
		}
	}
}

// scanChunk reads one chunk and adds its texts to the texts of the earlier chunks. For
// usage and finish_reason the last value replaces the earlier values.
func (r *replyReader) scanChunk() {
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		switch string(k) {
		case "choices":
			r.scanChunkChoices()
		case "model":
			r.scanModel()
		case "usage":
			if !r.consumeNull() { // vLLM writes usage into every chunk, mostly null
				r.scanUsage()
			}
		case "error":
			r.scanFault()
		default:
			r.skipValue()
		}
	}
}

func (r *replyReader) scanChunkChoices() {
	if r.consumeNull() {
		return
	}
	first := true
	for more := r.firstItem(); more; more = r.nextItem() {
		r.scanChunkChoice(first)
		first = false
	}
}

// scanChunkChoice reads one entry of a chunk's choices and adds its texts to r, if the
// entry belongs to the choice with the lowest index. first means that the entry is the
// first one of the chunk.
func (r *replyReader) scanChunkChoice(first bool) {
	index, sums, finish, ended := 0.0, r.logprobs, string(r.finish), false
	content, reasoning, refusal := len(r.content), len(r.reasoning), len(r.refusal)
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		switch string(k) {
		case "index":
			index = r.scanIndex()
		case "delta":
			r.scanTexts()
		case "logprobs":
			r.scanLogprobs(r.logprobs)
		case "finish_reason":
			if !r.consumeNull() {
				r.finish, ended = r.readString(r.finish[:0], maxWord, true), true
			}
		default:
			r.skipValue()
		}
	}
	switch {
	case r.choices && (index > r.index || index == r.index && !first):
		r.logprobs, r.finish = sums, append(r.finish[:0], finish...)
		r.content, r.reasoning, r.refusal = r.content[:content], r.reasoning[:reasoning], r.refusal[:refusal]
	case r.choices && index < r.index: // the texts so far belong to a choice with a higher index
		r.index = index
		if !ended {
			r.finish = r.finish[:0]
		}
		r.logprobs.sum, r.logprobs.count, r.logprobs.bytes = r.logprobs.sum-sums.sum, r.logprobs.count-sums.count, r.logprobs.bytes-sums.bytes
		r.content = append(r.content[:0], r.content[content:]...)
		r.reasoning = append(r.reasoning[:0], r.reasoning[reasoning:]...)
		r.refusal = append(r.refusal[:0], r.refusal[refusal:]...)
	default:
		r.choices, r.index = true, index
	}
}

// drainTimeout limits the wait for the end of a stream after its last event.
const drainTimeout = time.Second

// drain reads the stream after [DONE] to its end, so that the connection can be reused.
// The answer is already complete, so an error costs only the connection.
func (c *conn) drain() {
	err := c.applyDeadline(time.Now().Add(drainTimeout))
	for err == nil {
		_, err = c.body.nextWindow()
	}
}
