// Package webhook tells accounts by HTTP request when their jobs have ended. It defines
// the event types, their bodies, the signatures and the retry schedule, all by the
// specification Standard Webhooks. It stores the endpoints of an account and creates
// the deliveries of a job; http/webhook/sender sends them. It makes no requests itself.
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

// Names of the headers of a request that sends a delivery.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

const (
	// secretPrefix is the beginning of every secret. A random key in base64 follows.
	secretPrefix = "whsec_"
	// secretBytes is the length of a secret before base64. The specification allows 24 to
	// 64 bytes; 32 is also the output size of HMAC-SHA256.
	secretBytes = 32
	// shownLength is how many characters of a secret the API still shows after its
	// creation: enough to tell two secrets apart, too few to help an attacker.
	shownLength = len(secretPrefix) + 4
)

// newSecret returns a random secret.
func newSecret() string {
	key := make([]byte, secretBytes)
	_, _ = rand.Read(key) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(key)
}

// Sign returns the signature of a body with the message id and the time of the attempt,
// for HeaderSignature.
func Sign(secret, id string, at time.Time, body string) (string, error) {
	text, found := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || !found {
		return "", errors.New("a webhook's secret must be " + secretPrefix + " followed by base64") // do not quote the secret
	}
	sum := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(sum, "%s.%d.%s", id, at.Unix(), body)
	return "v1," + base64.StdEncoding.EncodeToString(sum.Sum(nil)), nil
}

// SignAll returns the value of HeaderSignature: one signature per secret, in the order
// of secrets.
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

// standardPauses returns the pauses between attempts that the specification suggests.
// They span three days: a receiver that restarts gets the event within seconds, and a
// receiver that is down over a weekend gets it when it is back.
func standardPauses() []time.Duration {
	return []time.Duration{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
		10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
}

// A RetrySchedule has the pause after each failed attempt of a delivery. The delivery fails
// for good when an attempt fails and no pause is left.
type RetrySchedule []time.Duration

// DefaultSchedule returns the schedule that the specification Standard Webhooks
// suggests.
func DefaultSchedule() RetrySchedule { return standardPauses() }

// jitter is the largest random addition to a pause, as a share of the pause. The addition
// spreads out the retries of deliveries that failed in the same outage.
const jitter = 0.2

// PauseAfter returns the pause after the given number of failed attempts. again is false if no
// further attempt follows. randomFraction is a random number from 0 to 1, which selects the
// jitter.
func (s RetrySchedule) PauseAfter(tries int, randomFraction float64) (pause time.Duration, again bool) {
	if tries < 1 || tries > len(s) {
		return 0, false
	}
	pause = s[tries-1]
	return pause + time.Duration(jitter*randomFraction*float64(pause)), true
}

// idDigits is the number of hexadecimal digits after the prefix of an id: 12 for the
// time, 20 for ten bytes of a hash.
const idDigits = 12 + 20

// DeriveMessageID returns the message id of a body with several entries. at is the time of the
// first entry. Equal arguments give equal ids, so a body that is sent again keeps its id.
func DeriveMessageID(at time.Time, parts ...string) string {
	return deriveID(deliveryPrefix, at, parts...)
}

// deriveID returns an id that is derived from a time and some texts. Every node derives
// the same id from the same arguments. Ids have the same order as their times.
func deriveID(prefix string, at time.Time, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return fmt.Sprintf("%s%012x%s", prefix, at.UnixMilli(), hex.EncodeToString(sum[:10]))
}
