package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"sync"
	"time"
)

// loginLinkTime is how long a login link is valid.
const loginLinkTime = 5 * time.Minute

// loginLink holds the login link of a node: a token that a browser can exchange once for a
// session. It keeps only the hash of the token, in the memory of this node. Other nodes do
// not accept the token.
type loginLink struct {
	now func() time.Time

	mu      sync.Mutex
	hash    [sha256.Size]byte
	key     string    // API key that the session is for
	expires time.Time // zero if there is no link, or if it was used
}

// create returns the token of a new link, which replaces the old link. The session is for
// this API key.
func (l *loginLink) create(key string) (token string) {
	token = rand.Text()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hash, l.key, l.expires = sha256.Sum256([]byte(token)), key, l.now().Add(loginLinkTime)
	return token
}

// redeem returns the API key of the link with this token. The link is used then. The error
// can be sent to the client.
func (l *loginLink) redeem(token string) (key string, err error) {
	hash := sha256.Sum256([]byte(token))
	l.mu.Lock()
	defer l.mu.Unlock()
	if subtle.ConstantTimeCompare(hash[:], l.hash[:]) != 1 || !l.now().Before(l.expires) {
		return "", unauthorized(SchemeKey, "invalid_login_link",
			"this login link was used already, has expired, or is of another start of the node; log in with an API key, or restart the node for a new link")
	}
	key = l.key
	l.key, l.expires = "", time.Time{}
	return key, nil
}
