package dashboard

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	cookieName       = "throttle-dashboard"
	secureCookieName = "__Host-throttle-dashboard" // browsers take it over https alone, and from no other host
	cookieLasts      = 12 * time.Hour
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

// proof returns the value of a cookie that says until when its holder has the token. No two are equal. The token
// cannot be computed from one, and whoever changes the token ends all of them.
func (t token) proof(until time.Time) string {
	return t.sign(strconv.FormatInt(until.Unix(), 10) + "." + rand.Text())
}

// sign returns a text and its signature, which only who knows the token can compute.
func (t token) sign(text string) string {
	sum := hmac.New(sha256.New, []byte(t))
	sum.Write([]byte("throttle dashboard " + text))
	return text + "." + base64.RawURLEncoding.EncodeToString(sum.Sum(nil))
}

// isProof reports whether a value is one that proof has returned, and not yet over.
func (t token) isProof(value string) bool {
	end, _, _ := strings.Cut(value, ".")
	seconds, err := strconv.ParseInt(end, 10, 64)
	if err != nil || t == "" || !time.Unix(seconds, 0).After(time.Now()) {
		return false
	}
	signed := value[:max(0, strings.LastIndexByte(value, '.'))]
	return subtle.ConstantTimeCompare([]byte(value), []byte(t.sign(signed))) == 1
}

// wrongTokens count attempts with wrong tokens, and slow them. The zero wrongTokens tell nobody.
type wrongTokens struct {
	tell func(client string, attempts int) // nil tells nobody

	mu     sync.Mutex
	count  int       // attempts, ever
	at     time.Time // of the last one
	client string    // of the last one
	told   time.Time // when tell was called last
	held   int       // attempts that wait for their answer
}

const (
	slowBy    = time.Second // how long the answer to a wrong token takes
	mostHeld  = 16          // how many such answers take long at the same time
	toldEvery = time.Minute
)

// meet notes an attempt and holds it for a second. It returns false at once if so many are held already. The right token
// is never held, so attempts of others lock nobody out.
func (w *wrongTokens) meet(ctx context.Context, client string) bool {
	w.mu.Lock()
	now := time.Now()
	w.count, w.at, w.client = w.count+1, now, client
	attempts := w.count

	tells := w.tell != nil && (w.told.IsZero() || now.Sub(w.told) >= toldEvery)
	if tells {
		w.told = now
	}

	holds := w.held < mostHeld
	if holds {
		w.held++
	}

	w.mu.Unlock()

	if tells {
		w.tell(client, attempts)
	}
	if !holds {
		return false
	}

	rest := time.NewTimer(slowBy)
	defer rest.Stop()

	select {
	case <-rest.C:
	case <-ctx.Done():
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	w.held--
	return true
}

// A wrongToken is what a page shows of attempts with wrong tokens.
type wrongToken struct {
	Count  int    `json:"count"`
	At     int64  `json:"at"` // of the last one
	Client string `json:"client"`
}

// read returns what a page shows; nil if there were no attempts.
func (w *wrongTokens) read() *wrongToken {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count == 0 {
		return nil
	}
	return &wrongToken{w.count, w.at.UnixMilli(), w.client}
}
