package policyfile_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/redisstore"
)

// answering is a base that a function makes.
type answering func(*http.Request) (*http.Response, error)

func (f answering) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answerOf returns an answer of a base.
func answerOf(r *http.Request, status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"text/html"}}, Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// A fakeSEC serves ten requests in any second, of all machines together, and refuses everybody for ten
// minutes if there are more. A request during the ban prolongs it.
type fakeSEC struct {
	mu       sync.Mutex
	served   []time.Time
	refused  []time.Time
	banEnds  time.Time
	mostSeen int
}

const (
	secRate = 10
	secBan  = 10 * time.Minute
	secPage = "<html>\n<head>\n<title>SEC.gov | Request Rate Threshold Exceeded</title>"
)

// RoundTrip implements [http.RoundTripper].
func (s *fakeSEC) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()

	recent := 1 // with this one
	for i := len(s.served) - 1; i >= 0 && now.Sub(s.served[i]) < time.Second; i-- {
		recent++
	}
	s.mostSeen = max(s.mostSeen, recent)
	if recent > secRate || now.Before(s.banEnds) {
		s.banEnds = now.Add(secBan)
		s.refused = append(s.refused, now)
		return answerOf(r, http.StatusForbidden, secPage), nil
	}
	s.served = append(s.served, now)
	return answerOf(r, http.StatusOK, "{}"), nil
}

// A crawler is one machine of a fleet that reads EDGAR.
type crawler struct {
	client *http.Client
	done   int
}

// crawl sends so many requests, by so many workers, and sends again what was refused.
func (c *crawler) crawl(t *testing.T, requests, workers int) {
	t.Helper()
	var wait sync.WaitGroup
	var mu sync.Mutex
	for range workers {
		wait.Go(func() {
			for {
				mu.Lock()
				over := c.done == requests
				if !over {
					c.done++
				}
				mu.Unlock()
				if over {
					return
				}

				const most = 5 // a fleet that does not hear of the ban would prolong it forever
				for tries, status := 0, 0; status != http.StatusOK && tries < most; tries++ {
					resp, err := c.client.Get("https://data.sec.gov/submissions/CIK0000320193.json")
					if !assertNoError(t, err) {
						return
					}
					status = resp.StatusCode
					_ = resp.Body.Close()
				}
			}
		})
	}
	wait.Wait()
}

// assertNoError reports an error of a goroutine.
func assertNoError(t *testing.T, err error) bool {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

// edgarFleet returns machines that share a store, with the preset as a file and as Go have it.
func edgarFleet(t *testing.T, sec http.RoundTripper) (fleet []*crawler) {
	t.Helper()
	store := memstore.New()
	rows, err := policyfile.Preset("edgar", policyfile.PresetOptions{})
	require.NoError(t, err)
	f, err := policyfile.Parse("policies.yaml", []byte("version: 1\npresets: [edgar]\n"))
	require.NoError(t, err)
	for _, policies := range [][]throttle.Policy{rows, f.Policies, rows} {
		transport := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: policies, Base: sec}))
		fleet = append(fleet, &crawler{client: &http.Client{Transport: transport}})
	}
	return fleet
}

// TestEDGAR: three machines together stay within ten requests a second, and use nearly all of them.
func TestEDGAR(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const requests, workers = 200, 8
		sec, begin := &fakeSEC{}, time.Now()
		var wait sync.WaitGroup
		for _, machine := range edgarFleet(t, sec) {
			wait.Go(func() { machine.crawl(t, requests, workers) })
		}
		wait.Wait()

		const all = 3 * requests
		require.Empty(t, sec.refused)
		require.Len(t, sec.served, all)
		require.Equal(t, secRate, sec.mostSeen)
		least := (all/secRate - 1) * time.Second
		require.GreaterOrEqual(t, time.Since(begin), least)
		require.Less(t, time.Since(begin), least+least/10+time.Second)
	})
}

// TestEDGAR_Ban: if a program that nobody holds has the address banned, the fleet hears of it once, and
// sends nothing in the ten minutes that it would prolong.
func TestEDGAR_Ban(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sec := &fakeSEC{}
		fleet := edgarFleet(t, sec)
		stranger := &http.Client{Transport: sec}
		for range secRate + 1 {
			resp, err := stranger.Get("https://www.sec.gov/")
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
		require.Len(t, sec.refused, 1, "premise: the address is banned")

		const requests, workers = 50, 1
		var wait sync.WaitGroup
		for _, machine := range fleet {
			wait.Go(func() { machine.crawl(t, requests, workers) })
		}
		wait.Wait()

		require.LessOrEqual(t, len(sec.refused), 1+len(fleet), "each machine meets the ban once at the most")
		last := sec.refused[len(sec.refused)-1]
		for _, at := range sec.served[secRate:] {
			require.GreaterOrEqual(t, at.Sub(last), secBan)
		}
		require.Len(t, sec.served, secRate+len(fleet)*requests)
	})
}

// catalogPlaceholder is a wildcard of a pattern.
var catalogPlaceholder = regexp.MustCompile(`\{[^}]*\}|\*`)

// requestTo returns a request that a pattern matches, with a text wherever a platform has a place for one.
func requestTo(t testing.TB, match, text string) *http.Request {
	t.Helper()
	method, target, ok := strings.Cut(match, " ")
	if !ok {
		method, target = http.MethodPost, match
	}
	target = catalogPlaceholder.ReplaceAllString(target, "a")
	query := "?access_token=" + text + "&key=" + text + "&ak=" + text + "&api_key=" + text + "&token=" + text + "&Signature=" + text + "&PhoneNumbers=" + text
	r, err := http.NewRequestWithContext(t.Context(), method, "https://"+target+text+query, strings.NewReader(`{"model":"`+text+`"}`))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	for _, name := range []string{"Authorization", "Cookie", "X-BAPI-API-KEY", "X-TC-Token", "x-acs-security-token"} {
		r.Header.Set(name, text)
	}
	return r
}

// A listener keeps all that a client of Redis is told to send.
type listener struct {
	mu    sync.Mutex
	heard strings.Builder
}

func (l *listener) hear(cmds ...redis.Cmder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, cmd := range cmds {
		fmt.Fprintf(&l.heard, "%v\n%q\n", cmd.Args(), cmd.Args())
	}
}

// DialHook implements [redis.Hook].
func (l *listener) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements [redis.Hook].
func (l *listener) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		l.hear(cmd)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (l *listener) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		l.hear(cmds...)
		return next(ctx, cmds)
	}
}

// TestP14_CatalogTellsNoSecrets: of requests full of secrets, and of their refusals, no preset of the catalog
// brings one to Redis, into an error or an event.
func TestP14_CatalogTellsNoSecrets(t *testing.T) {
	const secret = "c4nary"
	client := redis.NewClient(redistest.Single(t).Options())
	t.Cleanup(func() { _ = client.Close() })
	var redisHeard listener
	client.AddHook(&redisHeard)

	var mu sync.Mutex
	var told strings.Builder
	tell := func(v any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&told, "%v\n%+v\n%q\n", v, v, fmt.Sprint(v))
	}
	refusing := answering(func(r *http.Request) (*http.Response, error) {
		resp := answerOf(r, http.StatusTooManyRequests, `{"code":"`+secret+`"}`)
		resp.Header.Set("Retry-After", "60")
		return resp, nil
	})

	for _, f := range catalogFiles(t) {
		o := policyfile.PresetOptions{}
		if f.Account != "" {
			o.Account = "account " + secret
		}
		rows, err := policyfile.Preset(f.Name, o)
		require.NoError(t, err)
		transport := throttle.Must(throttle.New(throttle.Config{
			MaxWait: throttle.Forever,
			Store:   redisstore.New(client, redisstore.Options{}), Policies: rows, Base: refusing,
			Observe: func(_ context.Context, e throttle.Event) { tell(e) },
		}))
		for _, p := range rows {
			for range 2 { // the second one is held
				r := requestTo(t, p.Match, secret)
				for _, c := range transport.Explain(r) {
					tell(c)
				}
				resp, err := transport.RoundTrip(r.WithContext(throttle.WithMaxWait(t.Context(), -1)))
				if err != nil { // it is held, or a busy Redis does not answer in time
					tell(err)
					for ; err != nil; err = errors.Unwrap(err) {
						tell(err)
					}
					continue
				}
				require.NoError(t, resp.Body.Close())
			}
		}
	}

	require.NotEmpty(t, told.String())
	require.Contains(t, redisHeard.heard.String(), "edgar-address", "premise: Redis has heard of the presets")
	require.NotContains(t, redisHeard.heard.String(), secret)
	require.NotContains(t, told.String(), secret)
}

// FuzzCatalog shows every policy of every preset of the catalog a request and its answer, whatever they hold: no
// function panics, nothing is out of bounds, and both bodies are as they were.
func FuzzCatalog(f *testing.F) {
	var rows []throttle.Policy
	for _, file := range catalogFiles(f) {
		rows = append(rows, file.File.Policies...)
		for _, test := range file.File.Tests {
			if test.Answer != nil {
				f.Add(test.Method, test.URL.String(), test.Body, test.Response().StatusCode, test.Answer.Header.Get("Retry-After"), test.Answer.Body)
			}
		}
	}

	f.Fuzz(func(t *testing.T, method, url, body string, status int, after, answer string) {
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			return
		}
		r.Header.Set("Content-Type", "application/json")
		resp := answerOf(r, status, answer)
		resp.Header = http.Header{"Content-Type": {"application/json"}}
		for _, name := range []string{
			"Retry-After", "X-RateLimit-Reset", "X-RateLimit-Type", "X-Bapi-Limit-Reset-Timestamp", "X-RateLimit-Requests-Remaining", "X-RateLimit-Requests-Reset",
		} {
			if after != "" {
				resp.Header.Set(name, after)
			}
		}

		for i := range rows {
			withinBounds(t, &rows[i], r, resp)
		}
		read, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, answer, string(read))
		read, err = io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Equal(t, body, string(read))
	})
}

// withinBounds requires what holds for the functions of every policy. A 429 with a Retry-After is never closed for
// less by a row that takes it for its own.
func withinBounds(t *testing.T, p *throttle.Policy, r *http.Request, resp *http.Response) {
	t.Helper()
	if p.Key != nil {
		require.Equal(t, p.Key(r), p.Key(r), p.Name)
	}
	if p.Answer == nil {
		return
	}

	a := p.Answer(resp)
	require.LessOrEqual(t, a.Close, throttle.MaxPenalty, p.Name)
	require.GreaterOrEqual(t, a.Close, time.Duration(0), p.Name)
	if q, ok := a.Left(); ok {
		require.GreaterOrEqual(t, q.Left, 0, p.Name)
		require.True(t, q.Reset >= 0 && q.Reset <= throttle.MaxPenalty, p.Name)
	}
}
