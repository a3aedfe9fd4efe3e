package openai

// leastLogprob stands for every log probability below it. A token that was
// sampled from float32 probabilities cannot have less than the smallest one,
// e^-103.97; vLLM writes -9999 for minus infinity, which unclamped would turn
// into a plausible score in a long answer and into 0 in a short one.
const leastLogprob = -104.0

// logprobs adds up the log probabilities of an answer as they go by.
type logprobs struct {
	sum   float64
	count int64
	bytes int // of the tokens' text, while thinking

	thinking bool // the model reasons first
	matched  int  // bytes of </think> matched so far
	closed   bool // </think> has gone by
}

// scanLogprobs reads choices[].logprobs and adds it to before. Of every token it
// takes logprob, never top_logprobs: the chosen token is often not the likeliest.
func (r *reply) scanLogprobs(before logprobs) {
	r.logprobs = before
	if r.null() {
		return
	}
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		if string(k) != "content" {
			r.skip()
			continue
		}
		r.logprobs = before
		if r.null() {
			continue
		}
		for more := r.firstItem(); more; more = r.nextItem() {
			r.scanToken()
		}
	}
}

// scanToken reads one entry of logprobs.content.
func (r *reply) scanToken() {
	p := &r.logprobs
	watch := p.thinking && !p.closed
	token, value, known := r.scratch[:0], 0.0, false
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		switch {
		case string(k) == "logprob":
			if known = !r.null(); known {
				value, known = r.maybeNear()
			}
		case watch && string(k) == "token":
			if token = token[:0]; !r.null() {
				token = r.text(token, r.limit, true)
			}
		default:
			r.skip()
		}
	}
	if known {
		p.sum += min(max(value, leastLogprob), 0)
		p.count++
	}
	if watch {
		r.scratch = token
		p.watch(token)
	}
}

// watch looks for the end of the reasoning in the tokens' text, over their
// borders, and begins anew after the token that completes it.
func (p *logprobs) watch(token []byte) {
	p.bytes += len(token)
	for _, c := range token {
		switch {
		case c == closeThink[p.matched]:
			if p.matched++; p.matched == len(closeThink) {
				p.sum, p.count, p.closed = 0, 0, true
				return
			}
		case c == closeThink[0]: // occurs nowhere else in it
			p.matched = 1
		default:
			p.matched = 0
		}
	}
}

// result returns the sum and count for an answer of content bytes after
// reasoning bytes. Where a model reasoned and no </think> went by, either the
// tokens are those of the answer alone, or the model marks its reasoning in
// another way and the tokens of both cannot be told apart: their total length
// tells which, and in the second case there is no score. Nor is there one where
// a model reasoned that should not have: its tokens were not watched.
func (p *logprobs) result(content, reasoning int) (sum float64, count int64) {
	if reasoning > 0 && !p.closed && (!p.thinking || p.bytes >= content+(reasoning+1)/2) {
		return 0, 0
	}
	return p.sum, p.count
}
