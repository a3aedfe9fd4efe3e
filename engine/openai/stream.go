package openai

import "time"

// scanStream reads a chat completion that comes as a stream of chunks, into the
// same fields as scanChat. It reads up to [DONE] and leaves what follows. A
// malformed chunk is the result, an error that the server reports is in fault.
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
			r.events.whole = true // it is one line
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

// scanChunk reads one chunk. What it holds is added to what came before; of
// usage and finish_reason the last ones count.
func (r *reply) scanChunk() {
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		switch string(k) {
		case "choices":
			r.scanChunkChoices()
		case "usage":
			if !r.null() { // vLLM writes one into every chunk
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
	first := true // only one choice was asked for
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

// drainWithin bounds the wait for the end of a body whose last event has come.
const drainWithin = time.Second

// drain reads what is left of a stream after [DONE], so that its connection can
// be used again. The answer is complete: an error only costs the connection.
func (c *conn) drain() {
	err := c.endAt(time.Now().Add(drainWithin))
	for err == nil {
		_, err = c.body.window()
	}
}
