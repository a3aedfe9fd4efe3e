package openai

// leastLogprob replaces every lower log probability. A token sampled from float32
// probabilities has at least e^-103.97, the smallest float32. vLLM writes -9999 for
// minus infinity, which would distort the mean of an answer.
const leastLogprob = -104.0

// logprobs sums the log probabilities of an answer while they are read.
type logprobs struct {
	sum   float64
	count int64
	bytes int // bytes of the tokens' text, while the model reasons

	thinking bool // the model reasons before it answers
	matched  int  // bytes of </think> matched so far
	closed   bool // </think> was read
}

// scanLogprobs reads choices[].logprobs and adds the values to before. It uses each
// token's logprob and ignores top_logprobs: the chosen token is often not the most
// likely one.
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

// watch searches </think> in the text of the tokens, also across token borders. After
// the token that completes </think>, the sum starts again at 0.
func (p *logprobs) watch(token []byte) {
	p.bytes += len(token)
	for _, c := range token {
		switch {
		case c == closeThink[p.matched]:
			if p.matched++; p.matched == len(closeThink) {
				p.sum, p.count, p.closed = 0, 0, true
				return
			}
		case c == closeThink[0]: // < occurs only once in </think>
			p.matched = 1
		default:
			p.matched = 0
		}
	}
}

// result returns the sum and count for an answer with this many bytes of content and of
// reasoning. If a model reasoned and no </think> was read, there are two cases: the
// tokens cover only the answer, or the model marks its reasoning in another way and the
// tokens cover both. The total length of the tokens distinguishes the two; in the
// second case there is no result. There is also none if a model reasoned unexpectedly,
// because its tokens were not watched.
func (p *logprobs) result(content, reasoning int) (sum float64, count int64) {
	if reasoning > 0 && !p.closed && (!p.thinking || p.bytes >= content+(reasoning+1)/2) {
		return 0, 0
	}
	return p.sum, p.count
}
