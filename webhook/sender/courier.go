package sender

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/webhook"
)

// A courier carries signed bodies to receivers.
type courier struct {
	client *http.Client
	clock  func() time.Time
	reason func(error) string // as Config has it
}

func newCourier(transport http.RoundTripper, clock func() time.Time, reason func(error) string) courier {
	return courier{
		client: &http.Client{Transport: transport, Timeout: attemptTimeout, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}},
		clock: clock, reason: reason,
	}
}

// A letter is a body for a receiver.
type letter struct {
	url, kind string // where it goes, and its Content-Type
	id, body  string
	sign      func(at time.Time) (string, error) // returns the header of signatures
}

// carry sends a letter, once, and says what came back.
func (c courier) carry(ctx context.Context, l letter) (a store.DeliveryAttempt) {
	begun := time.Now()
	a.At = c.clock().UTC().Truncate(time.Millisecond)
	defer func() { a.Millis = time.Since(begun).Milliseconds() }()
	signatures, err := l.sign(a.At)
	if err != nil {
		a.Error = err.Error()
		return a
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, strings.NewReader(l.body))
	if err != nil {
		a.Error = "the URL cannot be used" // its error would quote it
		return a
	}
	request.Header.Set("Content-Type", l.kind)
	request.Header.Set("User-Agent", userAgent)
	request.Header.Set(webhook.HeaderID, l.id)
	request.Header.Set(webhook.HeaderTimestamp, fmt.Sprint(a.At.Unix()))
	request.Header.Set(webhook.HeaderSignature, signatures)
	response, err := c.client.Do(request)
	if err != nil {
		a.Error = c.reason(err)
		return a
	}
	defer response.Body.Close()
	a.Status = response.StatusCode
	text, err := io.ReadAll(io.LimitReader(response.Body, keptAnswer))
	a.Answer = strings.ToValidUTF8(string(text), "\uFFFD")
	switch {
	case webhook.Took(a): // whatever becomes of the rest of its answer
	case a.Status >= 300 && a.Status < 400:
		a.Error = "it redirects, which is not followed"
	case a.Status == http.StatusGone:
		a.Error = "it wants no more events"
	case err != nil:
		a.Error = c.reason(err)
	}
	return a
}
