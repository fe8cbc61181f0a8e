package presettest

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// A talker is an upstream that answers with a random number of tokens, after a time that grows with them.
type talker struct {
	mu     sync.Mutex
	random *rand.Rand
	begun  time.Time       // when the test began
	starts []time.Duration // of the calls, since begun
	tokens []int           // of the calls' answers, in the order of starts
}

// RoundTrip implements [http.RoundTripper]. It notes the call, and takes 10 ms for each token.
func (k *talker) RoundTrip(r *http.Request) (*http.Response, error) {
	k.mu.Lock()
	tokens := 100 + k.random.IntN(1501) // 100 to 1600
	k.starts, k.tokens = append(k.starts, time.Since(k.begun)), append(k.tokens, tokens)
	k.mu.Unlock()

	time.Sleep(time.Duration(tokens) * 10 * time.Millisecond)
	usage := fmt.Sprintf(`{"usage":{"total_tokens":%d}}`, tokens)
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(usage)), ContentLength: int64(len(usage)),
	}, nil
}

// fullest returns the most tokens of calls that began within one minute. It looks at the calls that began
// between from and to, and at the minutes that begin with one of these calls.
func (k *talker) fullest(from, to time.Duration) (most int) {
	for _, first := range k.starts {
		if first < from {
			continue
		}

		sum, end := 0, min(first+time.Minute, to)
		for i, at := range k.starts {
			if at >= first && at < end {
				sum += k.tokens[i]
			}
		}
		most = max(most, sum)
	}
	return most
}

// CallersThatStartTogether has 100 callers begin at one moment under a limit of tokens a minute, with the
// policies for that limit. Each sends requests in JSON to chat, a line for Request, one after the other for
// ten minutes, and reserves no tokens for the answers. No minute within the first two may have more than
// 110 % of the limit. In the six minutes from 3 to 9 minutes on at least 90 % of it must be used.
func CallersThatStartTogether(t *testing.T, chat string, policies func(limit int) []throttle.Policy) {
	const limit = 60_000
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			api := &talker{random: rand.New(rand.NewPCG(seed, 7)), begun: time.Now()}
			client, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: policies(limit), Base: api})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()

			var callers sync.WaitGroup
			for range 100 {
				callers.Go(func() {
					for ctx.Err() == nil {
						r := Request(t, chat, `{"model":"a","messages":"`+strings.Repeat("x", 80)+`"}`).WithContext(ctx)
						r.Header.Set("Content-Type", "application/json")
						resp, err := client.RoundTrip(r)
						if err != nil {
							return // its time is over before it could start
						}
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					}
				})
			}
			callers.Wait()

			first, later := api.fullest(0, 2*time.Minute), 0
			for i, at := range api.starts {
				if at >= 3*time.Minute && at < 9*time.Minute {
					later += api.tokens[i]
				}
			}
			t.Logf("the fullest of the first minutes has %d %%, later %d %% are used", first*100/limit, later*100/(6*limit))
			require.LessOrEqual(t, first, limit*11/10)
			require.GreaterOrEqual(t, later, 6*limit*9/10)
		})
	}
}

// Learns has a row of tokens learn from short answers to requests that reserve no tokens. chat is a line
// for Request. Until 64 answers have told, each answer must be expected to have 1,500 tokens.
func Learns(t *testing.T, chat, row string, policies []throttle.Policy) {
	t.Helper()
	const answer = `{"usage":{"prompt_tokens":4,"total_tokens":10}}`
	base := RoundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
			Body: io.NopCloser(strings.NewReader(answer)), ContentLength: int64(len(answer)),
		}, nil
	})
	client, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: policies, Base: base})
	require.NoError(t, err)
	request := func() *http.Request {
		r := Request(t, chat, `{"model":"m"}`)
		r.Header.Set("Content-Type", "application/json")
		return r
	}

	for told := range 70 {
		switch cost := Cost(t, policies, row, request()); {
		case told < 64:
			require.Greater(t, cost, 1500, "%d answers have told", told)
		case told > 65: // an answer may be settled behind the caller's back
			require.Less(t, cost, 20, "%d answers have told", told)
		}

		resp, err := client.RoundTrip(request())
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		require.NoError(t, resp.Body.Close())
	}
}
