package sender

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/rowmill/rowmill/http/webhook"
	"github.com/rowmill/rowmill/store"
)

// A poster sends signed bodies to receivers by POST.
type poster struct {
	client *http.Client
	clock  func() time.Time
	reason func(error) string // returns the reason of a failed request without the URL, as Config.Reason
}

func newPoster(transport http.RoundTripper, clock func() time.Time, reason func(error) string) poster {
	return poster{
		client: &http.Client{Transport: transport, Timeout: attemptTimeout, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}},
		clock: clock, reason: reason,
	}
}

// A signedRequest is the content of one request to a receiver.
type signedRequest struct {
	url, contentType string
	id, body         string
	sign             func(at time.Time) (string, error) // returns the value of HeaderSignature
}

// post sends a message once and returns the outcome.
func (c poster) post(ctx context.Context, m signedRequest) (a store.DeliveryAttempt) {
	begun := time.Now()
	a.At = c.clock().UTC().Truncate(time.Millisecond)
	defer func() { a.Millis = time.Since(begun).Milliseconds() }()
	signatures, err := m.sign(a.At)
	if err != nil {
		a.Error = err.Error()
		return a
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url, strings.NewReader(m.body))
	if err != nil {
		a.Error = "the URL cannot be used" // err would quote the URL
		return a
	}
	request.Header.Set("Content-Type", m.contentType)
	request.Header.Set("User-Agent", userAgent)
	request.Header.Set(webhook.HeaderID, m.id)
	request.Header.Set(webhook.HeaderTimestamp, fmt.Sprint(a.At.Unix()))
	request.Header.Set(webhook.HeaderSignature, signatures)
	response, err := c.client.Do(request)
	if err != nil {
		a.Error = c.reason(err)
		return a
	}
	defer response.Body.Close()
	a.Status = response.StatusCode
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	a.Answer = strings.ToValidUTF8(string(text), "\uFFFD")
	switch {
	case webhook.IsSuccess(a): // an error in reading the rest of the answer does not matter
	case a.Status >= 300 && a.Status < 400:
		a.Error = "the receiver redirects the request, which is not followed; set the webhook's URL to the new address"
	case a.Status == http.StatusGone:
		a.Error = "the receiver answered 410 Gone: it wants no more events"
	case err != nil:
		a.Error = c.reason(err)
	}
	return a
}
