package openai

// leastLogprob replaces every lower log probability. A token that was sampled from
// float32 probabilities has at least the log probability -103.97, of the smallest
// float32. vLLM writes -9999 for minus infinity, which would distort the mean of an
// answer.
const leastLogprob = -104.0

// logprobSum adds up the log probabilities of an answer's tokens while the reply is read.
type logprobSum struct {
	sum   float64 // sum of the log probabilities of count tokens
	count int64
	bytes int // total length in bytes of the tokens up to </think>, for a reasoning model

	thinking bool // the model reasons before it answers
	matched  int  // number of bytes of </think> that the last tokens have matched
	closed   bool // </think> was read
}

// scanLogprobs reads the field logprobs of a choice and adds its values to before. It
// uses the field logprob of each token and ignores top_logprobs, because the chosen
// token is often not the most likely token.
func (r *replyReader) scanLogprobs(before logprobSum) {
	r.logprobs = before
	if r.consumeNull() {
		return
	}
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		if string(k) != "content" {
			r.skipValue()
			continue
		}
		r.logprobs = before
		if r.consumeNull() {
			continue
		}
		for more := r.firstItem(); more; more = r.nextItem() {
			r.scanToken()
		}
	}
}

// scanToken reads one entry of logprobs.content.
func (r *replyReader) scanToken() {
	p := &r.logprobs
	watch := p.thinking && !p.closed
	token, value, known := r.scratch[:0], 0.0, false
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		switch {
		case string(k) == "logprob":
			if known = !r.consumeNull(); known {
				value, known = r.readApproxOrNaN()
			}
		case watch && string(k) == "token":
			if token = token[:0]; !r.consumeNull() {
				token = r.readString(token, r.limit, true)
			}
		default:
			r.skipValue()
		}
	}
	if known {
		p.sum += min(max(value, leastLogprob), 0)
		p.count++
	}
	if watch {
		r.scratch = token
		p.trackCloseThink(token)
	}
}

// trackCloseThink searches </think> in the text of the tokens, also across the borders of tokens.
// After the token that completes </think>, the sum restarts at 0, so that it covers
// only the answer.
func (p *logprobSum) trackCloseThink(token []byte) {
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

// sumForAnswer returns the sum and the count for an answer with content bytes of content and
// reasoning bytes of reasoning. If a model reasoned and no token completed </think>,
// there are two cases: the tokens cover only the answer, or the model marks its
// reasoning in another way and the tokens cover both. The total length of the tokens
// distinguishes the two cases; in the second case sumForAnswer returns 0. It also returns 0
// if a model that should not reason did reason, because trackCloseThink did not see the
// tokens of this model.
func (p *logprobSum) sumForAnswer(contentBytes, reasoningBytes int) (sum float64, count int64) {
	if reasoningBytes > 0 && !p.closed && (!p.thinking || p.bytes >= contentBytes+(reasoningBytes+1)/2) {
		return 0, 0
	}
	return p.sum, p.count
}
