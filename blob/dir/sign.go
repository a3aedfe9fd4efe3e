package dir

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rowmill/rowmill/blob"
)

// pathPrefix is the path of objects for Handler, below the public URL.
const pathPrefix = "/objects/"

// These are the parameters of a signed URL.
const (
	paramExpires   = "expires"   // last second at which the URL is valid, in seconds since 1970
	paramFilename  = "filename"  // file name of the download; may be empty
	paramKeyID     = "key_id"    // ID of the key that signed
	paramSignature = "signature" // HMAC of the URL, made by sign
)

// SigningKeys has the secrets that sign URLs.
type SigningKeys interface {
	// Current returns the ID and the secret of the key that signs.
	Current() (id string, secret []byte)
	// Find returns the secret of a key that can still verify. ok is false if there is
	// no such key.
	Find(id string) (secret []byte, ok bool)
}

func checkPublicURL(base string) error {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return fmt.Errorf("dir: PublicURL is %q: it must be like https://rows.example.org, without user, query or fragment", base)
	}
	return nil
}

// SetPublicURL sets the beginning of all URLs that are signed afterwards.
func (b *Bucket) SetPublicURL(base string) error {
	if err := checkPublicURL(base); err != nil {
		return err
	}
	b.public.Store(&base)
	return nil
}

// SignURL returns a URL that permits one method on an object. It does not check
// whether the object exists.
func (b *Bucket) SignURL(ctx context.Context, method, key, filename string, expires time.Duration) (string, error) {
	if err := cmp.Or(checkContextAndKey(ctx, key), blob.CheckSignRequest(method, filename, expires)); err != nil {
		return "", blob.Wrap(err, "sign URL of", key)
	}
	base := strings.TrimSuffix(*b.public.Load(), "/")
	switch {
	case b.config.Keys == nil:
		return "", errors.New("sign URL: the bucket has no signing keys")
	case base == "":
		return "", errors.New("sign URL: the public URL is not set yet")
	}
	// Round up, so that the URL is valid at least as long as requested.
	until := strconv.FormatInt(b.config.Clock().Add(expires+time.Second-1).Unix(), 10)
	id, secret := b.config.Keys.Current()
	query := url.Values{
		paramExpires:   {until},
		paramFilename:  {filename},
		paramKeyID:     {id},
		paramSignature: {sign(secret, method, key, until, filename, id)},
	}
	// A key needs no escaping, see the package comment of blob.
	return base + pathPrefix + key + "?" + query.Encode(), nil
}

// sign returns the HMAC-SHA256 of everything that a URL grants. No part can
// contain a line break, so different grants have different texts.
func sign(secret []byte, method, key, until, filename, keyID string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(strings.Join([]string{"rowmill object 1", method, key, until, filename, keyID}, "\n")))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// urlGrant is what a verified URL permits: to read the object at key and save it as
// filename.
type urlGrant struct{ key, filename string }

// verify returns the grant of a request's URL, or the reason why the URL is not
// valid.
func (b *Bucket) verify(r *http.Request, key string) (urlGrant, error) {
	if b.config.Keys == nil {
		return urlGrant{}, errors.New("no URL can be verified here")
	}
	if err := checkKey(key); err != nil {
		return urlGrant{}, errors.New("the path is not an object's path")
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return urlGrant{}, errors.New("its query cannot be read")
	}
	if len(query) != 4 {
		return urlGrant{}, errors.New("it is not a signed URL, or its query was changed")
	}
	for _, name := range []string{paramExpires, paramFilename, paramKeyID, paramSignature} {
		if len(query[name]) != 1 {
			return urlGrant{}, errors.New("it is not a signed URL, or its query was changed")
		}
	}
	until, filename, id := query.Get(paramExpires), query.Get(paramFilename), query.Get(paramKeyID)
	secret, ok := b.config.Keys.Find(id)
	if !ok {
		return urlGrant{}, errors.New("the key that signed it is not valid any more")
	}
	want := sign(secret, r.Method, key, until, filename, id)
	if !hmac.Equal([]byte(query.Get(paramSignature)), []byte(want)) {
		return urlGrant{}, fmt.Errorf("it was not signed for this %s request: GET and HEAD have URLs of their own, and nothing in them may be changed", r.Method)
	}
	last, err := strconv.ParseInt(until, 10, 64)
	if err != nil || b.config.Clock().After(time.Unix(last, 0)) {
		return urlGrant{}, errors.New("it has expired")
	}
	return urlGrant{key: key, filename: filename}, nil
}
