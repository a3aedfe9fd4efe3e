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

// maxRetryAfter is the longest delay that a server may ask for. A longer delay would
// hold up the job, and one request per minute overloads no server.
const maxRetryAfter = time.Minute

// A refusal is an HTTP reply with a status other than 200.
type refusal struct {
	status     int
	retryAfter time.Duration
	fault      serverFault
}

// lowerCaseText returns the type, the code and the message of a refusal in lower case. private
// holds the texts of the prompt. If the message quotes one of them, lowerCaseText leaves
// out the message, because the message contains words of the prompt.
func (x refusal) lowerCaseText(promptTexts ...[]byte) string {
	text := x.fault.kind + "\n" + x.fault.code
	if !slices.ContainsFunc(promptTexts, func(p []byte) bool { return len(p) >= quoteLength && containsQuote(x.fault.message, string(p)) }) {
		text += "\n" + x.fault.message
	}
	return strings.ToLower(text)
}

// classify turns a refusal into an error, by the first rule that matches. asked lists
// the settings in the request. private holds texts that the error must not contain.
func (x refusal) classify(asked requestSettings, promptTexts ...[]byte) *engine.Error {
	lower := x.lowerCaseText(promptTexts...)
	r := matchRule(x.status, lower, x.fault, asked)
	e := &engine.Error{
		Class:      r.class,
		Status:     x.status,
		Code:       cmp.Or(r.code, x.fault.safeCode("http_"+strconv.Itoa(x.status))),
		Message:    r.messageFor(x.fault, asked),
		RetryAfter: x.retryAfter,
		Overloaded: r.overload,
		TooLong:    r.tooLong,
	}
	if e.TooLong {
		e.Code, e.Context = rowmill.RowTooLong, tokensInMessage(contextPattern, lower)
		e.Prompt = tokensInMessage(promptPattern, lower)
	}
	if shown := x.fault.redactedMessage(promptTexts...); shown != "" {
		e.Message += ": " + shown
	}
	return e
}

// contextPattern finds the server's context length in the lower-case message of a
// refusal, and promptPattern finds the number of tokens of the prompt. Both ignore
// numbers of characters, which vLLM and TEI write in similar sentences.
var (
	contextPattern = regexp.MustCompile(`(?:context (?:length|size|window)(?: is| of)?(?: only)?|maximum (?:prompt|input) length(?: is)?|configured limit of|must be <=|number of tokens allowed|max_input_len|max_seq_len|max_num_tokens|model with|maximum model length(?: of)?|n_ctx:|\(tpm\): limit|model token limit:) \(?([0-9]{1,10})\b` +
		`|have less than ([0-9]{1,10}) tokens|> ([0-9]{1,10})(?: maximum|$)`)
	promptPattern = regexp.MustCompile(`(?:prompt has|prompt contains|requested|request \(|input \(|resulted in|request contains|you passed|(?:prompt|input) is too long:)(?: at least| about)? ?([0-9]{1,10}) (?:input )?tokens` +
		`|(?:tokens\. given:|requested tokens \(|token count \(|(?:prompt|input) length \(|prompt \((?:total )?length|n_keep:|[0-9], requested|\(requested:) ?([0-9]{1,10})\b` +
		"|given: ([0-9]{1,10}) `inputs` tokens")
)

// tokensInMessage returns the number of tokens that pattern finds in message, or 0 if
// there is no match.
func tokensInMessage(pattern *regexp.Regexp, message string) int {
	found := pattern.FindStringSubmatch(message)
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
	return zeroIfImplausible(n, maxContext)
}

// parseRetryAfter returns the delay in a Retry-After header, which holds seconds or a
// date, limited to maxRetryAfter. It returns 0 for any other value.
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
