package openai

import (
	"cmp"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// maxRetryAfter bounds what a server may ask us to wait: a row that waits holds
// its job up, and asking again once a minute overloads nobody.
const maxRetryAfter = time.Minute

// A refusal is an answer with another status than 200.
type refusal struct {
	status     int
	retryAfter time.Duration
	fault      serverFault
}

// words are the message, the type and the code in lower case. A message that repeats a
// prompt is left out: the words would be the row's.
func (x refusal) words(private ...[]byte) string {
	text := x.fault.kind + "\n" + x.fault.code
	if !slices.ContainsFunc(private, func(p []byte) bool { return len(p) >= quoteLength && quotes(x.fault.message, string(p)) }) {
		text += "\n" + x.fault.message
	}
	return strings.ToLower(text)
}

// classify makes the error of a refusal by the first rule that matches. asked is what
// the request asked for; private are the texts that must not be passed on.
func (x refusal) classify(asked asked, private ...[]byte) *engine.Error {
	lower := x.words(private...)
	r := ruleOf(x.status, lower, x.fault, asked)
	e := &engine.Error{
		Class:      r.class,
		Status:     x.status,
		Code:       cmp.Or(r.code, x.fault.word("http_"+strconv.Itoa(x.status))),
		Message:    r.says(x.fault, asked),
		RetryAfter: x.retryAfter,
		Overloaded: r.overload,
		TooLong:    r.tooLong,
	}
	if e.TooLong {
		e.Code, e.Context = rowmill.RowTooLong, saidTokens(contextSaid, lower)
		e.Prompt = saidTokens(promptSaid, lower)
	}
	if shown := x.fault.shown(private...); shown != "" {
		e.Message += ": " + shown
	}
	return e
}

// contextSaid and promptSaid find the context and the tokens of the prompt in the message
// of a refusal, as servers write them, in lower case. Numbers of characters are no tokens:
// vLLM and TEI name them in sentences of the same form.
var (
	contextSaid = regexp.MustCompile(`(?:context (?:length|size|window)(?: is| of)?(?: only)?|maximum (?:prompt|input) length(?: is)?|configured limit of|must be <=|number of tokens allowed|max_input_len|max_seq_len|max_num_tokens|model with|maximum model length(?: of)?|n_ctx:|\(tpm\): limit|model token limit:) \(?([0-9]{1,10})\b` +
		`|have less than ([0-9]{1,10}) tokens|> ([0-9]{1,10})(?: maximum|$)`)
	promptSaid = regexp.MustCompile(`(?:prompt has|prompt contains|requested|request \(|input \(|resulted in|request contains|you passed|(?:prompt|input) is too long:)(?: at least| about)? ?([0-9]{1,10}) (?:input )?tokens` +
		`|(?:tokens\. given:|requested tokens \(|token count \(|(?:prompt|input) length \(|prompt \((?:total )?length|n_keep:|[0-9], requested|\(requested:) ?([0-9]{1,10})\b` +
		"|given: ([0-9]{1,10}) `inputs` tokens")
)

// saidTokens returns the number of tokens that a refusal names; 0 for none.
func saidTokens(what *regexp.Regexp, message string) int {
	found := what.FindStringSubmatch(message)
	if found == nil {
		return 0
	}
	digits := found[1]
	for _, group := range found[1:] {
		digits = cmp.Or(digits, group)
	}
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return usable(n, maxContext)
}

// parseRetryAfter reads the header Retry-After: seconds or a date. Anything else
// is no wish at all.
func parseRetryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if value == "" {
		return 0
	}
	if seconds, err := strconv.ParseFloat(value, 64); err == nil {
		if !(seconds > 0) {
			return 0
		}
		return time.Duration(min(seconds, maxRetryAfter.Seconds()) * float64(time.Second))
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
