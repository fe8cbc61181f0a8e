package throttle_test

import (
	"compress/gzip"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/memstore"
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

// A hostile upstream is one that says whatever makes a fleet stand still, read
// without end, or do without what has nothing to do with it. SECURITY.md says what
// it can do all the same.

// lies are fields of an answer that would stop a fleet if they were believed.
var lies = []http.Header{
	{"Retry-After": {"3153600000"}}, // a century
	{"Retry-After": {strings.Repeat("9", 4000)}},
	{"Retry-After": {strings.Repeat("9", 400) + "." + strings.Repeat("9", 400)}},
	{"Retry-After": {"1e300"}}, {"Retry-After": {"Inf"}}, {"Retry-After": {"NaN"}}, {"Retry-After": {"0x7fffffffffffffff"}},
	{"Retry-After": {"-1"}}, {"Retry-After": {"-99999999999999999999"}}, {"Retry-After": {""}}, {"Retry-After": {"\x00"}},
	{"Retry-After": {"Fri, 31 Dec 9999 23:59:59 GMT"}},
	{"Retry-After": {"Fri, 31 Dec 9999 23:59:59 GMT"}, "Date": {"Mon, 01 Jan 0001 00:00:00 GMT"}},
	{"Retry-After": {"Thu, 01 Jan 1970 00:00:00 GMT"}, "Date": {"Fri, 31 Dec 9999 23:59:59 GMT"}},
	{"Retry-After": {"1", "3153600000"}}, {"Retry-After": {"3153600000", "1"}}, {"Retry-After": {"1, 3153600000"}},
	{"Ratelimit": {`"a";r=0;t=3153600000`}, "Ratelimit-Policy": {`"a";q=9999999999;w=1`}},
	{"Ratelimit": {`"a";r=-1;t=-1`}}, {"Ratelimit": {strings.Repeat(`"a";r=0;t=999999999999999,`, 999) + `"b"`}},
	{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"9999999999999"}},
	{"X-Ratelimit-Remaining": {"-1"}, "X-Ratelimit-Reset": {"1"}},
	{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"Fri, 31 Dec 9999 23:59:59 GMT"}},
}

// TestP11_NoLieLastsLongerThanItsCap sends each lie with each status, to the
// default penalty and to one that believes all it reads.
func TestP11_NoLieLastsLongerThanItsCap(t *testing.T) {
	believes := feedback.Headers{Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset", Status: []int{200, 302, 400, 403, 429, 500, 503}}
	for _, c := range []struct {
		name   string
		policy throttle.Policy
		most   time.Duration
	}{
		{"default", throttle.Policy{}, time.Hour},
		{"headers", throttle.Policy{Answer: believes.Answer}, throttle.MaxPenalty},
		{"rate limit", throttle.Policy{Answer: feedback.RateLimit{}.Answer}, throttle.MaxPenalty},
		{"a century", throttle.Policy{Answer: feedback.For(100 * 365 * 24 * time.Hour)}, throttle.MaxPenalty},
		{"forever", throttle.Policy{
			Answer: func(*http.Response) throttle.Answer {
				return throttle.Refused(math.MaxInt64).WithLeft(throttle.Quota{Left: math.MinInt, Reset: math.MaxInt64})
			},
		}, throttle.MaxPenalty},
		{"negative", throttle.Policy{
			Answer: func(*http.Response) throttle.Answer {
				return throttle.Refused(math.MinInt64).WithCost(math.MinInt).WithLeft(throttle.Quota{Left: math.MaxInt, Reset: math.MinInt64})
			},
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, lie := range lies {
					for _, code := range []int{200, 302, 400, 403, 429, 500, 503} {
						store := memstore.New()
						p := c.policy
						p.Name, p.Limit = "one", throttle.PerSecond(9)
						tr := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: everywhere(p), Base: lying(code, lie)}))
						require.NoError(t, send(t, tr, get(t, home)))
						st := status(t, store, tr, get(t, home))
						require.LessOrEqual(t, st.Paused, c.most, "%d %v", code, lie)
						require.LessOrEqual(t, st.Wait, c.most+time.Second, "%d %v", code, lie)
						if code == 200 && c.name == "default" {
							require.Zero(t, st.Paused, "a success closes nothing")
						}
					}
				}
			})
		})
	}
}

// lying answers with that header.
func lying(code int, h http.Header) base {
	return func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: h.Clone(), Body: io.NopCloser(strings.NewReader("{}")), ContentLength: 2, Request: r}, nil
	}
}

// A counting body has no end, and counts how much of it was read.
type countingBody struct {
	read  atomic.Int64
	delay time.Duration // before each read
}

func (b *countingBody) Read(p []byte) (int, error) {
	time.Sleep(b.delay)
	b.read.Add(int64(len(p)))
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func (b *countingBody) Close() error { return nil }

// TestP11_NoBodyIsReadWithoutEnd: a body that never ends is looked at so far, and
// one that comes slowly for so long.
func TestP11_NoBodyIsReadWithoutEnd(t *testing.T) {
	code := feedback.Codes{Fields: []string{"errcode"}, Lasts: map[string]time.Duration{"88": time.Minute}}
	for _, c := range []struct {
		name string
		body *countingBody
		most time.Duration
	}{
		{"endless", &countingBody{}, 0},
		{"slow", &countingBody{delay: 300 * ms}, time.Second},
		{"stalled", &countingBody{delay: time.Hour}, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := newTransport(t, base(func(r *http.Request) (*http.Response, error) {
					h := http.Header{"Content-Type": {"application/json"}}
					return &http.Response{StatusCode: 200, Header: h, Body: c.body, ContentLength: -1, Request: r}, nil
				}), throttle.Policy{Name: "one", Limit: throttle.PerSecond(9), Answer: code.Answer})
				began := time.Now()
				resp, err := tr.RoundTrip(get(t, home))
				require.NoError(t, err)
				require.LessOrEqual(t, time.Since(began), c.most)
				require.NoError(t, resp.Body.Close())
				time.Sleep(2 * time.Hour) // a read that is on its way cannot be called off
				require.LessOrEqual(t, c.body.read.Load(), int64(64<<10+4<<10))
			})
		})
	}
}

// TestP11_GzipBombs: what the base unpacks by itself, and what it leaves packed, is
// looked at so far and no further.
func TestP11_GzipBombs(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Type", "application/json")
		bomb := gzip.NewWriter(w)
		zeros := make([]byte, 1<<20)
		for range 4 {
			if _, err := bomb.Write(zeros); err != nil {
				return // nobody reads any more
			}
		}
		_ = bomb.Close() // nor need anybody
	}))
	defer upstream.Close()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	for _, coding := range []string{"", "gzip"} {
		seen := -1
		tr := newTransport(t, base, throttle.Policy{Name: "one", Limit: throttle.PerSecond(9), Answer: func(resp *http.Response) throttle.Answer {
			b, err := feedback.PeekBody(resp, 64<<10)
			require.NoError(t, err)
			seen = len(b)
			return throttle.Answer{}
		}})
		r := get(t, upstream.URL)
		if coding != "" {
			r.Header.Set("Accept-Encoding", coding) // so net/http leaves it packed
		}
		require.NoError(t, send(t, tr, r))
		require.Equal(t, 64<<10, seen)
	}
}

// A windowed upstream counts in fixed windows of a minute, says what is left when it
// has counted, and takes long to answer.
type windowed struct {
	mu      sync.Mutex
	n, used int
	window  int64
	slow    time.Duration
	refused int
}

func (u *windowed) take() (left int, reset time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if w := now.Unix() / 60; w != u.window {
		u.window, u.used = w, 0
	}
	u.used++
	return u.n - u.used, time.Duration(60-now.Unix()%60) * time.Second
}

func (u *windowed) RoundTrip(r *http.Request) (*http.Response, error) {
	left, reset := u.take()
	status := http.StatusOK
	if left < 0 {
		status = http.StatusTooManyRequests
		u.mu.Lock()
		u.refused++
		u.mu.Unlock()
	}
	date := time.Now().UTC().Format(http.TimeFormat)
	time.Sleep(u.slow)
	return answer(status, "", "Date", date, "X-RateLimit-Remaining", strconv.Itoa(max(0, left)),
		"X-RateLimit-Reset", strconv.Itoa(int(reset/time.Second)))(r)
}

// TestP11_WhatIsLeftOfSlowAnswers has another program use half of a limit whose
// answers take five seconds. What it used in the last five seconds nobody knows; if
// our own starts of that time counted as known to the upstream, it would refuse five
// times as many.
func TestP11_WhatIsLeftOfSlowAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &windowed{n: 600, slow: 5 * time.Second}
		p := throttle.Policy{Name: "p", Limit: throttle.PerMinute(600),
			Answer: feedback.Headers{Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset"}.Left}
		tr := newTransport(t, up, p)
		end := time.Now().Add(10 * time.Minute)
		var all sync.WaitGroup
		for range 80 {
			all.Go(func() {
				for time.Now().Before(end) {
					if err := send(t, tr, get(t, home)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Go(func() { // a program that was not told of throttle
			for time.Now().Before(end) {
				time.Sleep(200 * time.Millisecond)
				up.take()
			}
		})
		all.Wait()

		// Unseen in each window is what the other program sends while an answer is on its way, and within the part of the window
		// in which starts are not told apart.
		unseen := (up.slow + time.Minute/128) / (200 * time.Millisecond)
		require.LessOrEqual(t, up.refused, 10*int(unseen))
	})
}

const module = "github.com/fleetthrottle/throttle"

// goList returns the lines that go list prints.
func goList(t *testing.T, args ...string) []string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

// TestP15_OnlyTheStandardLibrary: a user of these packages links nothing else.
func TestP15_OnlyTheStandardLibrary(t *testing.T) {
	contract := module + "/store"
	acquire := []string{module + "/internal/outage", contract, module + "/internal/acquire"}
	ledger := []string{contract, module + "/internal/ledger", module + "/internal/linger", module + "/internal/outage", module + "/internal/node", module + "/internal/virtual", module + "/memstore"}
	for pkg, want := range map[string][]string{
		".": append(slices.Clone(acquire),
			module+"/internal/dialect", module+"/internal/match", module+"/internal/panics", module+"/internal/peek",
			module+"/internal/jsonscan", module+"/internal/reqbody", module,
		),
		"./store":            {contract},
		"./internal/acquire": acquire,
		"./memstore":         ledger,
		"./stores/storetest": {module + "/internal/lab/bubble", contract, module + "/stores/storetest"},
	} {
		require.Equal(t, want, goList(t, "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", pkg))
	}
}

// TestP15_AcquireKnowsNoHTTP: a caller's way to its start is the same for requests and for other work.
func TestP15_AcquireKnowsNoHTTP(t *testing.T) {
	deps := goList(t, "-deps", "./internal/acquire")
	require.Contains(t, deps, "context")
	require.NotContains(t, deps, "net/http")
}

func TestP15_NothingThatLogsIsImported(t *testing.T) {
	imports := goList(t, "-f", `{{join .Imports "\n"}}`, ".", "./memstore")
	require.Contains(t, imports, "net/http")
	require.NotContains(t, imports, "log")
	require.NotContains(t, imports, "log/slog")
	require.NotContains(t, imports, "os")
}

// TestP15_NothingIsLogged goes through everything that could be worth a line,
// in a process of its own, so that whatever way out is found is seen.
func TestP15_NothingIsLogged(t *testing.T) {
	const inside = "THROTTLE_TEST_NOTHING_IS_LOGGED"
	if os.Getenv(inside) != "" {
		synctest.Test(t, muchHappens)
		return
	}
	var stderr strings.Builder
	c := exec.CommandContext(t.Context(), must(os.Executable()), "-test.run=^TestP15_NothingIsLogged$")
	c.Env = append(os.Environ(), inside+"=1")
	c.Stderr = &stderr
	stdout, err := c.Output()
	require.NoError(t, err)
	require.Equal(t, "PASS", strings.Fields(string(stdout))[0], "the test's own word comes first")
	require.Empty(t, stderr.String())
}

func muchHappens(t *testing.T) {
	store := newSpy()
	store.pause = func(context.Context) error { return errors.New("down") }
	d := newDialer(always(100 * ms))
	d.written.then = answer(429, "")
	tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Base: d, Policies: everywhere(onePerSecond)}))
	line(t, tr, 3, home)
	r := get(t, home)
	require.ErrorIs(t, send(t, tr, r.WithContext(throttle.WithMaxWait(r.Context(), -1))), throttle.ErrLimited)
	require.Error(t, tr.SetPolicies([]throttle.Policy{{}}))
	require.NoError(t, tr.SetPolicies(nil))
	tr = must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: brokenStore{err: errors.New("down")}, Base: d, Policies: everywhere(onePerSecond)}))
	require.Error(t, send(t, tr, get(t, home)))
}

// TestP15_IdleWithTheStore: when the work is done nothing is left running, and
// no timer is set: a bubble with a goroutine in it would not end.
func TestP15_IdleWithTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(t, base(func(r *http.Request) (*http.Response, error) {
			return answer(429, "", "Retry-After", "3600")(r)
		}), onePerSecond)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		require.NoError(t, send(t, tr, get(t, home)))
		require.NoError(t, send(t, tr, get(t, home).WithContext(ctx)))
		require.ErrorIs(t, send(t, tr, get(t, home).WithContext(throttle.WithMaxWait(t.Context(), -1))), throttle.ErrLimited)
	})
}

// TestP15_TheAnswersContextIsReleased: whatever the caller does with the body,
// nothing of the request is kept.
func TestP15_TheAnswersContextIsReleased(t *testing.T) {
	var inner context.Context
	tr := newTransport(t, base(func(r *http.Request) (*http.Response, error) {
		inner = r.Context()
		return answer(200, "body")(r)
	}), throttle.Policy{Name: "p", Limit: throttle.PerHour(100)})
	for name, end := range map[string]func(*http.Response) error{
		"closed": func(resp *http.Response) error { return resp.Body.Close() },
		"read": func(resp *http.Response) error {
			_, err := resp.Body.Read(make([]byte, 10))
			require.NoError(t, err)
			require.NoError(t, inner.Err(), "there may be more")
			_, err = resp.Body.Read(make([]byte, 10))
			require.Error(t, err)
			return nil
		},
	} {
		resp, err := tr.RoundTrip(get(t, home))
		require.NoError(t, err)
		require.NoError(t, inner.Err(), name)
		require.NoError(t, end(resp))
		require.ErrorIs(t, inner.Err(), context.Canceled, name)
	}
}

// dependencies are all that this module may need, with their licences. A change that
// adds one adds it here, and its commit says why.
var dependencies = map[string]string{
	"github.com/redis/go-redis/v9":          "BSD-2-Clause", // redisstore
	"github.com/hashicorp/go-retryablehttp": "MPL-2.0",      // retry
	"github.com/stretchr/testify":           "MIT",          // tests

	// What those need.
	"github.com/cespare/xxhash/v2":      "MIT",
	"github.com/hashicorp/go-cleanhttp": "MPL-2.0",
	"go.uber.org/atomic":                "MIT",
	"go.yaml.in/yaml/v3":                "MIT and Apache-2.0",
	"golang.org/x/sys":                  "BSD-3-Clause",
}

// phrases are what licences are known by.
var phrases = map[string][]string{
	"MIT":                {"Permission is hereby granted, free of charge"},
	"MIT and Apache-2.0": {"covered by two different licenses: MIT and Apache"},
	"BSD-2-Clause":       {"Redistribution and use in source and binary forms", "this list of conditions and the following disclaimer"},
	"BSD-3-Clause":       {"Redistribution and use in source and binary forms", "used to endorse or promote products"},
	"MPL-2.0":            {"Mozilla Public License, version 2.0"},
}

// TestDependencies compares go.mod with the list: three direct requirements, each a
// released version, and nothing replaced.
func TestDependencies(t *testing.T) {
	mod := read(t, "go.mod")
	for _, word := range []string{"replace", "exclude", "toolchain", "tool", "ignore", "godebug", "// indirect; "} {
		require.NotRegexp(t, `(?m)^`+word+`\b`, mod)
	}
	direct, sum := 0, read(t, "go.sum")
	all := regexp.MustCompile(`(?m)^\t(\S+) (v\S+)( // indirect)?$`).FindAllStringSubmatch(mod, -1)
	require.Len(t, all, len(dependencies))
	for _, m := range all {
		path, version, indirect := m[1], m[2], m[3] != ""
		require.Contains(t, dependencies, path)
		require.Regexp(t, `^v\d+\.\d+\.\d+$`, version, path)
		require.Contains(t, sum, path+" "+version+" h1:")
		if !indirect {
			direct++
		}
	}
	require.Equal(t, 3, direct)
}

// TestLicences reads the licence of every module that is linked, as it lies in the
// module cache. It asks nobody.
func TestLicences(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-test",
		"-f", "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Dir}}{{end}}{{end}}", "./...")
	cmd.Env = append(cmd.Environ(), "GOFLAGS=-mod=readonly")
	out, err := cmd.Output()
	require.NoError(t, err)
	seen := make(map[string]bool)
	for line := range strings.Lines(string(out)) {
		path, dir, found := strings.Cut(strings.TrimSpace(line), "\t")
		if !found || seen[path] {
			continue
		}
		seen[path] = true
		require.Contains(t, dependencies, path)
		files, err := filepath.Glob(filepath.Join(dir, "LICENSE*"))
		require.NoError(t, err)
		require.NotEmpty(t, files, path)
		for _, phrase := range phrases[dependencies[path]] {
			require.Contains(t, strings.Join(strings.Fields(read(t, files[0])), " "), phrase, path)
		}
	}
	require.Len(t, seen, len(dependencies), "one of the list is not needed any more")
}
