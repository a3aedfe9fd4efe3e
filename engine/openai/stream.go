package openai

import "time"

// scanStream reads a chat completion from a stream of chunks into the same fields as
// scanChat. It reads up to [DONE]. It returns an error for a malformed chunk; an error
// that the server reports is in fault.
func (r *reply) scanStream(src source) error {
	r.events = events{src: src}
	for {
		kind, err := r.events.next()
		if err != nil {
			return err
		}
		r.reset(&r.events)
		switch kind {
		case eventData:
			r.scanChunk()
			r.events.whole = true
			r.end()
		case eventError:
			r.events.whole = true // the error is one line
			r.scanFault()
			r.end()
		default:
			return nil
		}
		if r.err != nil || r.fault.found {
			return r.err
		}
	}
}

// scanChunk reads one chunk and adds it to the earlier chunks. For usage and
// finish_reason the last value counts.
func (r *reply) scanChunk() {
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		switch string(k) {
		case "choices":
			r.scanChunkChoices()
		case "usage":
			if !r.null() { // vLLM writes a usage into every chunk, null in most
				r.scanUsage()
			}
		case "error":
			r.scanFault()
		default:
			r.skip()
		}
	}
}

func (r *reply) scanChunkChoices() {
	if r.null() {
		return
	}
	first := true // requests ask for one choice
	for more := r.firstItem(); more; more = r.nextItem() {
		if !first {
			r.skip()
			continue
		}
		first, r.choices = false, true
		for k := r.firstKey(); k != nil; k = r.nextKey() {
			switch string(k) {
			case "delta":
				r.scanTexts()
			case "logprobs":
				r.scanLogprobs(r.logprobs)
			case "finish_reason":
				if !r.null() {
					r.finish = r.text(r.finish[:0], maxWord, true)
				}
			default:
				r.skip()
			}
		}
	}
}

// drainTimeout limits the wait for the end of a body after its last event.
const drainTimeout = time.Second

// drain reads the rest of a stream after [DONE], so that the connection can be reused.
// The answer is complete: an error costs only the connection.
func (c *conn) drain() {
	err := c.endAt(time.Now().Add(drainTimeout))
	for err == nil {
		_, err = c.body.window()
	}
}
