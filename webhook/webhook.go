// Package webhook is what accounts are told of the ends of their jobs: which
// events there are, what their bodies hold, how they are signed, and when one that
// was not taken is sent again, all by the specification Standard Webhooks. It keeps
// the endpoints of an account and makes the deliveries of a job; webhook/sender
// sends them. It knows no HTTP.
package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The headers of a delivery.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

const (
	// secretPrefix leads a secret, whose rest is base64.
	secretPrefix = "whsec_"
	// secretBytes is its length, within the 24 to 64 bytes of the specification:
	// as long as what HMAC-SHA256 makes of it.
	secretBytes = 32
	// shownPrefix is how much of a secret is shown after its making: enough to
	// tell two apart, and no help to whoever guesses the rest.
	shownPrefix = len(secretPrefix) + 4
)

// newSecret returns a secret that nobody knows.
func newSecret() string {
	key := make([]byte, secretBytes)
	_, _ = rand.Read(key) // it never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(key)
}

// Sign is the signature of a body that is sent under an id at a time.
func Sign(secret, id string, at time.Time, body string) (string, error) {
	text, found := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || !found {
		return "", errors.New("a webhook's secret is not " + secretPrefix + " and base64") // without the secret
	}
	sum := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(sum, "%s.%d.%s", id, at.Unix(), body)
	return "v1," + base64.StdEncoding.EncodeToString(sum.Sum(nil)), nil
}

// SignAll is the header of a body that is sent under an id at a time: a signature by
// each of the secrets, in their order.
func SignAll(secrets []string, id string, at time.Time, body string) (string, error) {
	var all []string
	for _, secret := range secrets {
		signature, err := Sign(secret, id, at, body)
		if err != nil {
			return "", err
		}
		all = append(all, signature)
	}
	return strings.Join(all, " "), nil
}

// waits are the pauses between attempts that the specification suggests, over
// three days: a receiver that is restarted hears again within seconds, one that
// is down over a weekend when it is back.
func waits() []time.Duration {
	return []time.Duration{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
		10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
}

// A Schedule says when a delivery that was not taken is sent again: the pause
// after each attempt; after the last one it has failed.
type Schedule []time.Duration

// DefaultSchedule is that of the specification.
func DefaultSchedule() Schedule { return waits() }

// jitter is the part of a pause that is random: those whom one outage struck do
// not come back together.
const jitter = 0.2

// Next is the pause after so many attempts; again is false after the last. chance
// is a random number from 0 to 1.
func (s Schedule) Next(tries int, chance float64) (pause time.Duration, again bool) {
	if tries < 1 || tries > len(s) {
		return 0, false
	}
	pause = s[tries-1]
	return pause + time.Duration(jitter*chance*float64(pause)), true
}

// idDigits is how many hexadecimal digits stand behind the prefix of an id: those of
// a time and of ten bytes more.
const idDigits = 12 + 20

// BatchID is the id under which several things are sent in one body, the first of a
// time: the same as often as they are sent.
func BatchID(at time.Time, of ...string) string { return idOf(deliveryPrefix, at, of...) }

// idOf is an id that follows from what it is of and that sorts by a time: at any
// node, and however often, the same.
func idOf(prefix string, at time.Time, of ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(of, "\x00")))
	return fmt.Sprintf("%s%012x%s", prefix, at.UnixMilli(), hex.EncodeToString(sum[:10]))
}
