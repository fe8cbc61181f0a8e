package proxy

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"slices"
	"strings"
)

// shortestToken is how many base64 characters encode 128 bits.
const shortestToken = 22

// tokenUser is the user name in a base URL whose password is the token.
const tokenUser = "throttle"

var errToken = errors.New(`proxy: Config.Token needs 22 characters or more, of letters, digits and "-._~+/=": "openssl rand -hex 32" prints such a token`)

// isToken reports whether a token fits into a header unchanged and can encode 128 random bits.
func isToken(s string) bool {
	return len(s) >= shortestToken && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._~+/=", c)
	})
}

// A token is the secret of authorized callers.
type token struct {
	required bool
	sum      [sha256.Size]byte // hash of the token, so that a comparison takes the same time for all lengths
}

func newToken(text string) token { return token{text != "", sha256.Sum256([]byte(text))} }

// isIn reports whether headers have the token, or whether none is required.
func (t *token) isIn(h http.Header) bool {
	return !t.required || slices.ContainsFunc(h["Proxy-Authorization"], t.isCredential) || slices.ContainsFunc(h["Authorization"], t.isUser)
}

// remove returns the request without the token, so that no later step can forward it.
func (t *token) remove(r *http.Request) *http.Request {
	if !t.required {
		return r
	}
	bare := *r
	bare.Header = r.Header.Clone()
	bare.Header.Del("Proxy-Authorization")
	if own := slices.DeleteFunc(bare.Header["Authorization"], t.isUser); len(own) == 0 {
		bare.Header.Del("Authorization")
	} else {
		bare.Header["Authorization"] = own
	}
	return &bare
}

// isCredential reports whether a value of Proxy-Authorization has the token.
func (t *token) isCredential(value string) bool {
	if scheme, text, _ := strings.Cut(value, " "); strings.EqualFold(scheme, "Bearer") {
		return t.equals(strings.TrimSpace(text))
	}
	_, password, ok := basic(value)
	return ok && t.equals(password)
}

// isUser reports whether a value of Authorization has the token, as clients send it whose base URL has the
// token. The API's own user and password do not match.
func (t *token) isUser(value string) bool {
	user, password, ok := basic(value)
	return ok && user == tokenUser && t.equals(password)
}

// basic parses Basic credentials.
func basic(value string) (user, password string, ok bool) {
	return (&http.Request{Header: http.Header{"Authorization": {value}}}).BasicAuth()
}

func (t *token) equals(text string) bool {
	sum := sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(sum[:], t.sum[:]) == 1
}
