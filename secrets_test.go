package throttle_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
		tr := must(throttle.New(throttle.Config{Store: store, Base: b, Policies: policies, Observe: seen.observe}))

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

		down := must(throttle.New(throttle.Config{Store: brokenStore{errors.New("down")}, Policies: policies, Base: b, Observe: seen.observe}))
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
			throttle.Waiting, throttle.Started, throttle.Refused, throttle.GaveUp, throttle.Stale, throttle.Shadowed, throttle.StoreFailed,
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
