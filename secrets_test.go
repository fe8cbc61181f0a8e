package throttle_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

const (
	secretToken = "t0ken-in-the-query"
	secretBasic = "QWxhZGRpbjpvcGVu"
)

// secretRequest carries secrets where providers want them: in the query, in a
// header and in the path.
func secretRequest(ctx context.Context, query string) *http.Request {
	r := must(http.NewRequestWithContext(ctx, http.MethodGet,
		"https://user:pa55word@example.com/hook/h00k?access_token="+secretToken+"&"+query, nil))
	r.Header.Set("Authorization", "Basic "+secretBasic)
	return r
}

// A recording keeps everything that leaves the library, in all its spellings.
type recording struct{ strings.Builder }

func (w *recording) see(values ...any) {
	for _, v := range values {
		fmt.Fprintf(w, "%v\n%+v\n%#v\n", v, v, v)
		if b, err := json.Marshal(v); err == nil {
			w.Write(b)
		}
		if err, ok := v.(error); ok {
			for ; err != nil; err = errors.Unwrap(err) {
				fmt.Fprintf(w, "%+v\n%#v\n", err, err)
			}
		}
	}
}

func TestP14_NoSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told recording
		seen, store := &events{}, newSpy()
		store.pause = func(context.Context) error { return errors.New("down") }
		b := newDialer(always(100 * ms))
		b.written.then = answer(429, "", "Retry-After", "1")
		policies := []throttle.Policy{
			{Name: "token", Limit: throttle.PerSecond(1), Key: throttle.Query("access_token")},
			{Name: "header", Limit: throttle.PerSecond(1), Key: throttle.Header("Authorization"), Cost: func(r *http.Request) int { return cost(r) + 1 }},
			{Name: "hook", Match: "example.com/hook/{id}", Limit: throttle.PerMinute(1), Shadow: true,
				Key: throttle.Join(throttle.PathValue("id"), throttle.Query("access_token"))},
		}
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Base: b, Policies: everywhere(policies...), Observe: seen.observe}))

		charges := tr.Explain(secretRequest(t.Context(), ""))
		require.Len(t, charges, 3)
		told.see(charges)
		for _, c := range charges {
			told.see(c.Budget, c.Budget.String())
		}

		require.NoError(t, send(t, tr, secretRequest(t.Context(), "")))
		soon, cancel := context.WithTimeout(t.Context(), 600*ms)
		defer cancel()
		gone, leave := context.WithCancel(t.Context())
		time.AfterFunc(100*ms, leave)
		for _, r := range []*http.Request{
			secretRequest(throttle.WithMaxWait(t.Context(), -1), ""), // no room
			secretRequest(soon, ""),                                  // not in time
			secretRequest(gone, ""),                                  // given up
			secretRequest(t.Context(), "cost=9"),                     // never
			secretRequest(t.Context(), "cost=-9"),                    // a mistake
		} {
			err := send(t, tr, r)
			require.Error(t, err)
			told.see(err)
		}
		require.NoError(t, send(t, tr, secretRequest(t.Context(), ""))) // held, and late to connect

		down := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: brokenStore{err: errors.New("down")}, Policies: everywhere(policies...), Base: b, Observe: seen.observe}))
		err := send(t, down, secretRequest(t.Context(), ""))
		require.Error(t, err)
		told.see(err)

		for _, e := range seen.all {
			told.see(e, e.Err)
		}
		for _, k := range store.booked() {
			told.see(k)
		}
		kinds := seen.kinds()
		for _, k := range []throttle.EventKind{
			throttle.EventWaiting, throttle.EventStarted, throttle.EventRefused, throttle.EventGaveUp, throttle.EventStale, throttle.EventShadowed, throttle.EventStoreFailed,
		} {
			require.Contains(t, kinds, k, "the test shows all kinds")
		}
		text := told.String()
		require.Contains(t, text, charges[0].Budget.String())
		for _, secret := range []string{secretToken, secretBasic, "pa55word", "h00k", "access_token=", "example.com/hook/h"} {
			require.NotContains(t, text, secret)
		}
	})
}

// TestP14_KeysAreHashedWithTheirPolicy: the same key under two policies cannot
// be recognised, and no two pairs of name and key share a budget.
func TestP14_KeysAreHashedWithTheirPolicy(t *testing.T) {
	seen := make(map[[16]byte]string)
	for _, p := range []struct{ name, key string }{{"a", "bc"}, {"ab", "c"}, {"abc", ""}, {"a", ""}, {"a", "b"}, {"b", "bc"}} {
		tr := newTransport(t, answer(200, ""), throttle.Policy{Name: p.name, Limit: throttle.PerSecond(1), Key: constant(p.key)})
		k := tr.Explain(get(t, home))[0].Budget.Key
		require.Empty(t, seen[k], "%v", p)
		seen[k] = p.name + "/" + p.key
	}
}

// TestP14_NoPartOfTheKeyLeaves: what names a budget in the store holds nothing of
// the key.
func TestP14_NoPartOfTheKeyLeaves(t *testing.T) {
	const key = "a token that opens everything"
	tr := newTransport(t, answer(200, ""), throttle.Policy{Name: "p", Limit: throttle.PerSecond(1), Key: constant(key)})
	named := tr.Explain(get(t, home))[0].Budget.Key
	for i := range len(key) - 2 {
		require.NotContains(t, string(named[:]), key[i:i+3])
	}
}

// forgeries are what a tenant would put into values that become keys to share or
// spend another's budget.
var forgeries = []string{
	"", "a", "b", "ab", ":", "1:a", "1:a1:b", "0:", "\x00", "a\x00", "\x00a", "\xff", "\xc3\x28", "\ufffd", "A", " a", "a ", "a,b", "a;b", "a=b", "a&k=b",
	"%61", "%00", "é", "e\u0301", "\u202ea", "a\nb", "{a}", "*", "tenant", "tenant/a", "1", "01", "-1", "9223372036854775808",
}

// TestP14_TenantsCannotShareABudget has tenants take their keys from where they
// can write what they like. A tenant that writes something else has another
// budget, under every policy, by one value or by two.
func TestP14_TenantsCannotShareABudget(t *testing.T) {
	from := map[string]func(*http.Request) string{
		"header": throttle.Header("X-Tenant"),
		"query":  throttle.Query("k"),
		"path":   throttle.PathValue("tenant"),
		"one":    throttle.Join(throttle.Header("X-Tenant")),
		"two":    throttle.Join(throttle.Header("X-Tenant"), throttle.Query("k")),
		"nested": throttle.Join(throttle.Join(throttle.Header("X-Tenant"), throttle.RawPath), throttle.Join(throttle.Query("k"))),
	}
	seen := make(map[[16]byte]string)
	for place, key := range from {
		for _, policy := range []string{"tenant", "tenant2", "tenant/", "t", "enant"} {
			name := policy + place
			tr := newTransport(t, answer(200, ""), throttle.Policy{Name: name, Match: "/t/{tenant}", Key: key, Limit: throttle.PerSecond(1)})
			for _, a := range forgeries {
				for _, b := range forgeries {
					if place != "two" && place != "nested" && a != b {
						continue
					}
					r := tenantRequest(t, a, b)
					if place == "path" {
						r.URL.Path = "/t/" + a
					}
					charges := tr.Explain(r)
					if place == "path" && charges == nil {
						continue // what is not one segment is no tenant
					}
					require.Len(t, charges, 1)
					k, tenant := charges[0].Budget.Key, fmt.Sprintf("%q %q %q", name, a, b)
					require.Empty(t, seen[k], tenant)
					seen[k] = tenant
				}
			}
		}
	}
	require.Greater(t, len(seen), 10_000)
}

// tenantRequest is one whose header says a, and whose query says b.
func tenantRequest(t *testing.T, a, b string) *http.Request {
	t.Helper()
	r := get(t, "https://example.com/t/any")
	r.Header["X-Tenant"] = []string{a}
	q := r.URL.Query()
	q.Set("k", b)
	r.URL.RawQuery = q.Encode()
	return r
}

// TestP14_WhatCanBeGuessedCanBeFound: a key is hashed, but not kept secret. A
// reader of Redis, or of an event, can check a guess. A program that minds gives
// keys of its own that cannot be guessed.
func TestP14_WhatCanBeGuessedCanBeFound(t *testing.T) {
	seed := [32]byte{5}
	pin := fmt.Sprintf("%04d", rand.New(rand.NewChaCha8(seed)).IntN(10_000))
	find := func(secret []byte) (found string) {
		key := throttle.Header("X-Pin")
		if secret != nil {
			key = keyed(secret, key)
		}
		const name = "pin"
		tr := newTransport(t, answer(200, ""), throttle.Policy{Name: name, Key: key, Limit: throttle.PerSecond(1)})
		r := get(t, home)
		r.Header.Set("X-Pin", pin)
		read := tr.Explain(r)[0].Budget // as any reader of Redis sees it
		for n := range 10_000 {
			guess := fmt.Sprintf("%04d", n)
			sum := sha256.Sum256([]byte("\x03" + name + guess))
			if [16]byte(sum[:16]) == read.Key {
				found = guess
			}
		}
		return found
	}
	require.Equal(t, pin, find(nil))
	require.Empty(t, find([]byte("a secret of the fleet's, from where its passwords are")))
}

// keyed makes another key of a key, which cannot be guessed without the secret.
func keyed(secret []byte, key func(*http.Request) string) func(*http.Request) string {
	return func(r *http.Request) string {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(key(r)))
		return string(mac.Sum(nil))
	}
}

// TestP14_TheFirstValueCounts: a parameter or field that stands twice has the key
// of its first value, whatever the upstream makes of the others. So the writer
// of the URL chooses the budget.
func TestP14_TheFirstValueCounts(t *testing.T) {
	r := get(t, "https://example.com/?k=a&k=b&%6b=c;k=d")
	r.Header["X-Tenant"] = []string{"a", "b"}
	require.Equal(t, "a", throttle.Query("k")(r))
	require.Equal(t, "a", throttle.Header("x-tenant")(r))
}

// TestP14_ACauseIsPassedOn: what the program itself said when it ended a context
// is in the error and the event of the caller that gave up, because the program wants
// to read it there.
func TestP14_ACauseIsPassedOn(t *testing.T) {
	cause := fmt.Errorf("the program's own words")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	var seen events
	tr := throttle.Must(throttle.New(throttle.Config{
		MaxWait: throttle.Forever,
		Store:   newSpy(), Base: answer(200, ""), Observe: seen.observe,
		Policies: []throttle.Policy{{Name: "one", Match: "/", Limit: throttle.PerSecond(1)}},
	}))
	err := send(t, tr, get(t, home).WithContext(ctx))
	require.ErrorIs(t, err, cause)
	require.ErrorIs(t, seen.first(t, throttle.EventGaveUp).Err, cause)
	require.ErrorContains(t, seen.first(t, throttle.EventGaveUp).Err, "the program's own words", "see Event")
}
