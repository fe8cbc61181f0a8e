package dashboard

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	cookieName  = "throttle-dashboard"
	cookieLasts = 12 * time.Hour
)

// A token is the secret that operators share with the page. The zero token is none, and nobody has it.
type token string

// The least that a token needs to be out of reach of guesses: 128 bits, written as hexadecimal digits or
// with an alphabet of at least 58 characters.
const (
	leastDigits     = 32
	leastCharacters = 22
	leastDifferent  = 8 // so that a token of one character is refused
)

// check returns why a token is too weak.
func (t token) check() error {
	different := make(map[rune]bool)
	digits := true
	for _, c := range string(t) {
		different[c] = true
		digits = digits && strings.ContainsRune("0123456789abcdefABCDEF", c)
		if c <= ' ' || c > '~' {
			return errors.New("dashboard: a token has only printable characters of ASCII and no spaces")
		}
	}
	if len(t) < leastCharacters || digits && len(t) < leastDigits || len(different) < leastDifferent {
		return fmt.Errorf("dashboard: the token is too easy to guess: use %d random hexadecimal digits or more, as \"openssl rand -hex 16\" prints", leastDigits)
	}
	return nil
}

// is reports whether a text is the token. It takes as long for any text.
func (t token) is(text string) bool {
	own, other := sha256.Sum256([]byte(t)), sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(own[:], other[:]) == 1 && t != ""
}

// proof returns the value of a cookie that says until when its holder has the token. The token cannot be
// computed from it, and whoever changes the token ends all of them.
func (t token) proof(until time.Time) string {
	end := strconv.FormatInt(until.Unix(), 10)
	sum := hmac.New(sha256.New, []byte(t))
	sum.Write([]byte("throttle dashboard " + end))
	return end + "." + base64.RawURLEncoding.EncodeToString(sum.Sum(nil))
}

// isProof reports whether a value is one that proof has returned, and not yet over.
func (t token) isProof(value string) bool {
	end, _, _ := strings.Cut(value, ".")
	seconds, err := strconv.ParseInt(end, 10, 64)
	until := time.Unix(seconds, 0)
	if err != nil || t == "" || !until.After(time.Now()) {
		return false
	}
	return subtle.ConstantTimeCompare([]byte(value), []byte(t.proof(until))) == 1
}

// isIn reports whether a request has the token: typed once, so that a cookie proves it, or in its Authorization.
func (t token) isIn(r *http.Request) bool {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "bearer") && t.is(text) {
		return true
	}
	for _, c := range r.CookiesNamed(cookieName) {
		if t.isProof(c.Value) {
			return true
		}
	}
	return false
}
