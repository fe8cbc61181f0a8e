package throttle_test

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/store"
)

// mistakes returns the texts of all errors that were joined, in their order.
func mistakes(err error) []string {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []string
		for _, e := range joined.Unwrap() {
			all = append(all, mistakes(e)...)
		}
		return all
	}
	return []string{err.Error()}
}

func TestConfigReportsEveryMistakeAtOnce(t *testing.T) {
	tr, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Policies: []throttle.Policy{
		{Name: "good", Match: "/", Limit: throttle.PerSecond(1)},
		{Limit: throttle.PerSecond(1)},
		{Name: "pattern", Match: "GET example.com/a//b", Limit: throttle.PerSecond(1)},
		{Name: "none", Match: "/"},
		{Name: "good", Match: "example.com", Limit: throttle.PerSecond(0)},
		{Name: "short", Match: "/", Limit: throttle.FixedWindow(1, 20*time.Millisecond)},
	}})
	require.Nil(t, tr)
	require.Equal(t, []string{
		`throttle: Store: is required: memstore.New() for one process, redisstore.New(client, redisstore.Options{}) for a fleet`,
		`throttle: policy "#2": Name: is missing: it names the policy in the store, in errors and in events`,
		`throttle: policy "#2": Match: is missing: say which requests, such as "api.example.com/" for those to one host; "/" is every request`,
		`throttle: policy "pattern": Match: at offset 18: a segment "" matches nothing, because paths are cleaned first`,
		`throttle: policy "none": Limit: there is no limit: set one such as PerSecond(20), or read one with ParseLimit("20/s")`,
		`throttle: policy "good": Match: at offset 11: no path: end the host with a slash, "example.com/", to match all its paths`,
		`throttle: policy "good": Limit: 0 starts: allow at least 1`,
		`throttle: policy "good": Name: two policies have this name: give each its own`,
		`throttle: policy "short": Limit: a fixed window of 20ms has no room for a start that may arrive 35ms late: ` +
			`use a longer window, or set Policy.Jitter to less than the window (negative for none)`,
	}, mistakes(err))

	var first *throttle.ConfigError
	require.ErrorAs(t, err, &first)
	require.Empty(t, first.Policy)
	require.Equal(t, "Store", first.Field)
	require.NotErrorIs(t, err, throttle.ErrLimited)
}

func TestConfigErrorUnwraps(t *testing.T) {
	cause := errors.New("wrong")
	err := &throttle.ConfigError{Policy: "p", Field: "Match", Err: cause}
	require.ErrorIs(t, err, cause)
	require.EqualError(t, err, `throttle: policy "p": Match: wrong`)
}

func TestJitterOfAFixedWindow(t *testing.T) {
	short := throttle.FixedWindow(1, 20*time.Millisecond)
	for _, jitter := range []time.Duration{-1, 19 * time.Millisecond} {
		_, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: []throttle.Policy{
			{Name: "short", Match: "/", Limit: short, Jitter: jitter},
		}})
		require.NoError(t, err, jitter)
	}
}

func TestHeadroomAndScopeThatCannotBe(t *testing.T) {
	shares := func(p throttle.Priority, share float64) map[throttle.Priority]float64 {
		return map[throttle.Priority]float64{p: share}
	}
	for _, c := range []struct {
		policy throttle.Policy
		want   string
	}{
		{throttle.Policy{Headroom: shares(throttle.PriorityLow, 1)}, `Headroom: low must leave 1 free: use a share from 0 to below 1`},
		{throttle.Policy{Headroom: shares(throttle.PriorityHigh, -0.1)}, `Headroom: high must leave -0.1 free: use a share from 0 to below 1`},
		{throttle.Policy{Headroom: shares(throttle.PriorityNormal, math.NaN())}, `Headroom: normal must leave NaN free: use a share from 0 to below 1`},
		{throttle.Policy{Headroom: shares(2, 0.5)}, `Headroom: priority 2 is no priority: use PriorityLow, PriorityNormal or PriorityHigh`},
		{throttle.Policy{Headroom: shares(throttle.PriorityLow, 0.5), Limit: throttle.LeakyBucket(1, time.Second)},
			`Headroom: a leaky bucket spaces starts out and has no share to leave free: use a window or a token bucket`},
		{throttle.Policy{Scope: 2}, `Scope: 2 is no scope: use ScopeFleet or ScopeNode`},
	} {
		c.policy.Name = "p"
		if c.policy.Limit == (throttle.Limit{}) {
			c.policy.Limit = throttle.PerSecond(10)
		}
		_, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: everywhere(c.policy)})
		require.EqualError(t, err, `throttle: policy "p": `+c.want)
		_, err = throttle.NewLimiter(memstore.New(), c.policy)
		require.EqualError(t, err, `throttle: policy "p": `+c.want)
	}
}

func TestHeadroomInUnitsOfTheLimit(t *testing.T) {
	for _, c := range []struct {
		limit throttle.Limit
		share float64
		want  int
	}{
		{throttle.PerSecond(10), 0, 0},
		{throttle.PerSecond(10), 0.2, 2},
		{throttle.PerSecond(10), 0.21, 3},  // rounded up
		{throttle.PerSecond(100), 0.07, 7}, // 0.07 * 100 is more than 7 in floating point
		{throttle.PerSecond(10), 0.99, 9},  // the last unit may be used
		{throttle.PerSecond(1), 0.5, 0},
		{throttle.TokenBucket(1, time.Minute, 20), 0.25, 5},
		{throttle.FixedWindow(4, time.Minute), 0.5, 2},
		{throttle.Concurrency(5), 0.5, 3},
		{throttle.LeakyBucket(5, time.Second), 0, 0},
	} {
		tr := newTransport(t, answer(200, ""), throttle.Policy{
			Name: "p", Limit: c.limit, Headroom: map[throttle.Priority]float64{throttle.PriorityLow: c.share},
		})
		r := get(t, home)
		for _, p := range []throttle.Priority{throttle.PriorityLow, -2, -128} { // what is below Low is Low
			low := r.WithContext(throttle.WithPriority(t.Context(), p))
			require.Equal(t, c.want, tr.Explain(low)[0].KeepFree, "%v of %v", c.share, c.limit)
		}
		for _, p := range []throttle.Priority{throttle.PriorityNormal, throttle.PriorityHigh, 2, 127} {
			other := r.WithContext(throttle.WithPriority(t.Context(), p))
			require.Zero(t, tr.Explain(other)[0].KeepFree, "%v", p)
		}
	}
}

func TestScopeOfACharge(t *testing.T) {
	tr := newTransport(t, answer(200, ""),
		throttle.Policy{Name: "fleet", Limit: throttle.PerSecond(1)},
		throttle.Policy{Name: "node", Limit: throttle.PerSecond(1), Scope: throttle.ScopeNode})
	charges := tr.Explain(get(t, home))
	require.False(t, charges[0].Node)
	require.True(t, charges[1].Node)
}

func TestZeroConfigNeedsOnlyAStore(t *testing.T) {
	tr, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New()})
	require.NoError(t, err)
	require.NotNil(t, tr.Unwrap())
}

// TestNoPolicies: a program that forgets its policies, or has an empty list, learns that by its first request, and nothing is sent.
// SetPolicies may bring them later, and may say that there are none.
func TestNoPolicies(t *testing.T) {
	const missing = "throttle: Policies: are missing, so nothing would hold the request: name them in Config, or call SetPolicies first"
	var seen events
	sent := 0
	c := throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{}, Observe: seen.observe}
	limiters := must(throttle.NewLimiters(c))
	c.Base = base(func(*http.Request) (*http.Response, error) {
		sent++
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	})
	transport := must(throttle.New(c))
	calls := map[string]func() error{
		"RoundTrip": func() error { return send(t, transport, get(t, home)) },
		"RoundTripFirst": func() error {
			_, err := transport.RoundTripFirst(get(t, home), 2, func(int) (*http.Request, error) { return get(t, home), nil })
			return err
		},
		"AcquireRequest": func() error { return acquired(limiters.AcquireRequest(get(t, home))) },
	}

	for name, call := range calls {
		require.ErrorContains(t, call(), missing, name)
	}
	require.Zero(t, sent)
	require.EqualError(t, seen.first(t, throttle.EventUnmatched).Err, missing)

	require.NoError(t, errors.Join(transport.SetPolicies(nil), limiters.SetPolicies(nil)))
	for name, call := range calls {
		require.NoError(t, call(), name)
	}
	require.Equal(t, 2, sent)
}

// TestNoDemands: a list of demands that is empty by mistake takes no limit's work past it.
func TestNoDemands(t *testing.T) {
	l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: everywhere(throttle.Policy{Name: "p", Limit: throttle.PerHour(1)})}))
	const missing = "throttle: demands: are missing: name what the work takes"
	require.EqualError(t, acquired(l.Acquire(t.Context())), missing)
	_, _, err := l.AcquireFirst(t.Context(), throttle.Alternative{})
	require.EqualError(t, err, missing)
	require.NoError(t, acquired(l.Acquire(t.Context(), throttle.Demand{Policy: "p", Cost: throttle.Free})))
}

// TestDefaultBase: the default base is a copy of http.DefaultTransport, with room for the connections of
// many workers, unless the program has decided itself.
func TestDefaultBase(t *testing.T) {
	usual := http.DefaultTransport
	defer func() { http.DefaultTransport = usual }()
	made := func(standard http.RoundTripper) http.RoundTripper {
		http.DefaultTransport = standard
		return must(throttle.New(throttle.Config{Store: memstore.New()})).Unwrap()
	}

	standard := usual.(*http.Transport).Clone()
	standard.ResponseHeaderTimeout = 7 * time.Second
	base := made(standard).(*http.Transport)
	require.NotSame(t, standard, base)
	require.NotSame(t, base, made(standard), "each transport has connections of its own")
	require.Equal(t, 7*time.Second, base.ResponseHeaderTimeout)
	require.Equal(t, []int{256, 0}, []int{base.MaxIdleConnsPerHost, base.MaxIdleConns})
	require.Zero(t, standard.MaxIdleConnsPerHost, "the program's transport stays as it was")

	for _, own := range []int{-1, 1, 64, 1000} {
		standard.MaxIdleConnsPerHost = own
		base = made(standard).(*http.Transport)
		require.Equal(t, []int{own, standard.MaxIdleConns}, []int{base.MaxIdleConnsPerHost, base.MaxIdleConns})
	}

	replaced := roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.ErrUnsupported })
	_, err := made(replaced).RoundTrip(nil)
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

func TestMust(t *testing.T) {
	require.PanicsWithError(t, "throttle: Store: is required: memstore.New() for one process, redisstore.New(client, redisstore.Options{}) for a fleet", func() {
		throttle.Must(throttle.New(throttle.Config{}))
	})
	require.NotNil(t, throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New()})))
}

func TestNewLimiterReportsEveryMistakeAtOnce(t *testing.T) {
	l, err := throttle.NewLimiter(nil, throttle.Policy{})
	require.Nil(t, l)
	require.Equal(t, []string{
		`throttle: Store: is required: memstore.New() for one process, redisstore.New(client, redisstore.Options{}) for a fleet`,
		`throttle: policy "#1": Name: is missing: it names the policy in the store, in errors and in events`,
		`throttle: policy "#1": Limit: there is no limit: set one such as PerSecond(20), or read one with ParseLimit("20/s")`,
	}, mistakes(err))
}

// TestNamesAreText: a policy's name reaches Redis, JSON, metrics and terminals, so wherever
// policies are made it must be text that all of these can show.
func TestNamesAreText(t *testing.T) {
	ways := map[string]func(throttle.Policy) error{
		"New": func(p throttle.Policy) error {
			_, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: everywhere(p)})
			return err
		},
		"NewLimiter": func(p throttle.Policy) error {
			_, err := throttle.NewLimiter(memstore.New(), p)
			return err
		},
		"NewLimiters": func(p throttle.Policy) error {
			_, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: []throttle.Policy{p}})
			return err
		},
		"SetPolicies": func(p throttle.Policy) error {
			return must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New()})).SetPolicies(everywhere(p))
		},
	}
	wrong := map[string]string{
		"caf\xe9":                `throttle: policy "caf\xe9": Name: is not UTF-8`,
		"a\x00b":                 `throttle: policy "a\x00b": Name: holds U+0000, which cannot be printed`,
		"a\x1b[2Jb":              `throttle: policy "a\x1b[2Jb": Name: holds U+001B, which cannot be printed`,
		"a\nb":                   `throttle: policy "a\nb": Name: holds U+000A, which cannot be printed`,
		"a\u202eb":               `throttle: policy "a\u202eb": Name: holds U+202E, which cannot be printed`,
		strings.Repeat("é", 201): `throttle: policy "` + strings.Repeat("é", 200) + `…": Name: has 201 characters: use 200 at the most`,
	}
	for way, try := range ways {
		for name, says := range wrong {
			err := try(throttle.Policy{Name: name, Limit: throttle.PerSecond(1)})
			require.EqualError(t, err, says, way)
			mistake, ok := errors.AsType[*throttle.ConfigError](err)
			require.True(t, ok)
			require.Equal(t, "Name", mistake.Field)
		}
		for _, name := range []string{"café", "短信 / 发送", "a b-c_{x}:%", strings.Repeat("é", 200)} {
			require.NoError(t, try(throttle.Policy{Name: name, Limit: throttle.PerSecond(1)}), way)
		}
	}
}

// cost reads a request's cost from its URL.
func cost(r *http.Request) int {
	n, _ := strconv.Atoi(r.URL.Query().Get("cost"))
	return n
}

func TestExplain(t *testing.T) {
	s := newSpy()
	sent := base(func(*http.Request) (*http.Response, error) {
		t.Error("Explain sends nothing")
		return nil, http.ErrAbortHandler
	})
	tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: s, Base: sent, Policies: []throttle.Policy{
		{Name: "all", Match: "/", Limit: throttle.PerSecond(5)},
		{Name: "elsewhere", Match: "example.org/", Limit: throttle.PerSecond(5)},
		{Name: "by path", Match: "example.com/", Key: throttle.RawPath, Limit: throttle.LeakyBucket(5, time.Second), Jitter: -1, Shadow: true},
		{Name: "by cost", Match: "example.com/", Cost: cost, Limit: throttle.PerMinute(100), Jitter: ms},
	}}))

	charges := tr.Explain(get(t, home+"a?cost=7"))
	group := charges[0].Budget.Group
	for i := range charges {
		require.NotZero(t, charges[i].Budget.Key)
		require.Equal(t, group, charges[i].Budget.Group, "budgets of one booking share it")
		charges[i].Budget = throttle.Budget{Policy: charges[i].Budget.Policy}
	}
	require.Equal(t, []store.Charge{
		{Budget: throttle.Budget{Policy: "all"}, Limit: throttle.PerSecond(5), Cost: 1, Jitter: acquire.DefaultJitter, Pace: 180 * ms},
		{Budget: throttle.Budget{Policy: "by path"}, Limit: throttle.LeakyBucket(5, time.Second), Cost: 1, Jitter: us, Shadow: true},
		{Budget: throttle.Budget{Policy: "by cost"}, Limit: throttle.PerMinute(100), Cost: 7, Jitter: ms, Pace: 2500 * us},
	}, charges)

	key := func(url string) [16]byte { return tr.Explain(get(t, url))[1].Budget.Key }
	require.Equal(t, key(home+"a"), key(home+"a?x=1"))
	require.NotEqual(t, key(home+"a"), key(home+"b"))

	require.Len(t, tr.Explain(get(t, home+"a?cost=0")), 2, "what is free is left out")
	require.Len(t, tr.Explain(get(t, "https://example.net/")), 1)
	require.Empty(t, s.booked())
}

// exact is exactly's policy under another name.
func exact(name string, l throttle.Limit) throttle.Policy {
	p := exactly(l)
	p.Name = name
	return p
}

// used returns how much of a budget counts now.
func used(t *testing.T, l *throttle.Limiters, policy, key string) int {
	t.Helper()
	st, err := must(l.Limiter(policy)).Status(t.Context(), key)
	require.NoError(t, err)
	return st.Used
}

func TestLimitersReportEveryMistakeAtOnce(t *testing.T) {
	l, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Base: http.DefaultTransport, Policies: []throttle.Policy{{Name: "p"}}})
	require.Nil(t, l)
	require.Equal(t, []string{
		`throttle: Store: is required: memstore.New() for one process, redisstore.New(client, redisstore.Options{}) for a fleet`,
		`throttle: Base: is for a Transport: limiters send nothing`,
		`throttle: policy "p": Limit: there is no limit: set one such as PerSecond(20), or read one with ParseLimit("20/s")`,
	}, mistakes(err))
}

func TestALimiterThatIsNotThere(t *testing.T) {
	_, err := newTransport(t, answer(200, "")).Limiter("paths")
	require.EqualError(t, err, `throttle: policy "paths": Name: the transport has no policy of this name`)
	_, err = must(throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New()})).Limiter("b")
	require.EqualError(t, err, `throttle: policy "b": Name: the limiters have no policy of this name`)
}

// TestAZeroPermit does nothing, and nothing that panics.
func TestAZeroPermit(t *testing.T) {
	var p throttle.Permit
	require.NoError(t, p.Tell(t.Context(), throttle.Answer{}.WithCost(1)))
	require.NoError(t, p.Tell(t.Context(), throttle.Refused(time.Minute)))
	require.NoError(t, p.Renew(t.Context()))
	p.Release()
}

// TestAcquireRequest: policies match work that is described as a request.
func TestAcquireRequest(t *testing.T) {
	tenants := exact("tenant", throttle.PerHour(1))
	tenants.Match, tenants.Key = "queue.example/orders/{tenant}", throttle.PathValue("tenant")
	all := exact("all", throttle.PerHour(9))
	all.Match, all.Cost = "queue.example/", cost
	l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), MaxWait: -1, Policies: []throttle.Policy{tenants, all}}))
	require.NoError(t, acquired(l.AcquireRequest(get(t, "https://queue.example/orders/a?cost=3"))))
	require.Equal(t, 3, used(t, l, "all", ""))
	require.Equal(t, 1, used(t, l, "tenant", "a"))
	require.ErrorIs(t, acquired(l.AcquireRequest(get(t, "https://queue.example/orders/a?cost=3"))), throttle.ErrLimited)
	require.NoError(t, acquired(l.AcquireRequest(get(t, "https://elsewhere.example/orders/a"))), "no policy matches")
}

func newLimiter(t *testing.T, s throttle.Store, p throttle.Policy) *throttle.Limiter {
	t.Helper()
	l, err := throttle.NewLimiter(s, p)
	require.NoError(t, err)
	return l
}

// acquired is the error of an Acquire whose permit is of no interest.
func acquired(_ *throttle.Permit, err error) error { return err }

func TestLimiterOfABrokenStore(t *testing.T) {
	down := errors.New("down")
	l := newLimiter(t, brokenStore{err: down}, onePerHour)
	_, status := l.Status(t.Context(), "")
	for _, err := range []error{
		acquired(l.Acquire(t.Context(), "", 1)), acquired(l.Acquire(throttle.WithMaxWait(t.Context(), throttle.NoWait), "", 1)), l.Pause(t.Context(), "", time.Second), status,
	} {
		require.ErrorIs(t, err, down)
		var failed *throttle.StoreError
		require.ErrorAs(t, err, &failed)
	}
}

// TestUnlimitedTakesNoNumbers reports all that makes no sense at once, and nothing that
// does.
func TestUnlimitedTakesNoNumbers(t *testing.T) {
	p := throttle.Policy{Name: "row", Limit: throttle.Unlimited()}
	p.Headroom = map[throttle.Priority]float64{throttle.PriorityLow: 0.5}
	_, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: everywhere(p)})
	require.EqualError(t, err, `throttle: policy "row": Headroom: an unlimited policy has nothing to share out: leave Headroom out, or set a limit with a number`)

	p = throttle.Policy{Name: "row", Limit: throttle.Unlimited()}
	p.Headroom = map[throttle.Priority]float64{throttle.PriorityHigh: 0}
	p.Cost = func(*http.Request) int { return throttle.Unlimited().Capacity() }
	p.Answer = func(*http.Response) throttle.Answer { return throttle.Answer{}.WithCost(3) }
	p.Jitter, p.Shadow, p.Scope = time.Second, true, throttle.ScopeNode
	_, err = throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: everywhere(p)})
	require.NoError(t, err)
}

// TestStoreThatIsNone: the nil pointer that a constructor returns beside its error is no store.
func TestStoreThatIsNone(t *testing.T) {
	var none *memstore.Store
	_, transport := throttle.New(throttle.Config{Store: none})
	_, limiters := throttle.NewLimiters(throttle.Config{Store: none})
	_, limiter := throttle.NewLimiter(none, throttle.Policy{Name: "p", Limit: throttle.PerSecond(1)})
	for _, err := range []error{transport, limiters, limiter} {
		require.ErrorAs(t, err, new(*throttle.ConfigError))
		require.ErrorContains(t, err, "Store: a nil *memstore.Store: check the error of its constructor")
	}
}

// TestWhatWouldHaveNoEffect: what a constructor or a call would accept and ignore is refused, by its field.
func TestWhatWouldHaveNoEffect(t *testing.T) {
	meter := func(*http.Response) throttle.Meter { return nil }
	for want, p := range map[string]throttle.Policy{
		"Meter: is never asked, because what is in flight keeps its cost": {Name: "p", Match: "/", Limit: throttle.Concurrency(1), Meter: meter},
		"Name: begins or ends with a space":                               {Name: "crm ", Match: "/", Limit: throttle.PerSecond(1)},
		"Name: begins or ends with a space: take it out":                  {Name: " crm", Match: "/", Limit: throttle.PerSecond(1)},
	} {
		_, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{p}})
		require.ErrorContains(t, err, want)
	}

	l := must(throttle.NewLimiter(memstore.New(), throttle.Policy{Name: "p", Limit: throttle.PerSecond(1)}))
	for _, d := range []time.Duration{0, -1, -time.Hour} {
		wrong, ok := errors.AsType[*throttle.ConfigError](l.Pause(t.Context(), "", d))
		require.True(t, ok, d)
		require.ErrorContains(t, wrong, `policy "p": Pause: `+d.String()+" closes nothing")
	}
}

// TestPresetsInLimiters: the functions of a preset that look at answers would never run in limiters, so NewLimiters refuses each
// by its row and field. WithoutAnswers takes them out, and nothing else.
func TestPresetsInLimiters(t *testing.T) {
	table := dingtalk.Policies(dingtalk.Options{App: "dingabc"})
	_, err := throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: table})
	answers := 0
	for _, p := range table {
		if p.Answer != nil {
			answers++
			require.ErrorContains(t, err, fmt.Sprintf("policy %q: Answer: is never called, because no answer comes here: leave it out, or pass WithoutAnswers(policies)", p.Name))
		}
	}
	require.Positive(t, answers)
	require.Len(t, strings.Split(err.Error(), "\n"), answers)

	without := throttle.WithoutAnswers(table)
	l, err := throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: without})
	require.NoError(t, err)
	require.ErrorContains(t, l.SetPolicies(table), "is never called")
	require.NoError(t, l.SetPolicies(without))
	for i := range table {
		require.Nil(t, without[i].Answer)
		require.Nil(t, without[i].Meter)
		require.Equal(t, table[i].Limit, without[i].Limit)
		require.Equal(t, table[i].Key == nil, without[i].Key == nil)
	}

	// The row has its budget under the same key as the transport's.
	permit, err := l.AcquireRequest(get(t, "https://oapi.dingtalk.com/user/get"))
	require.NoError(t, err)
	require.NoError(t, permit.Tell(t.Context(), throttle.Refused(time.Minute)))
}

// TestZeroValues: what no constructor has made says so, and neither panics nor lets anything pass.
func TestZeroValues(t *testing.T) {
	ctx, table := t.Context(), []throttle.Policy{{Name: "p", Match: "/", Limit: throttle.PerSecond(1)}}
	transport, limiters, limiter := new(throttle.Transport), new(throttle.Limiters), new(throttle.Limiter)
	for name, call := range map[string]func() error{
		"Transport.RoundTrip":                func() error { return send(t, transport, get(t, home)) },
		"Transport.RoundTrip, without a URL": func() error { _, err := transport.RoundTrip(new(http.Request)); return err },
		"Transport.RoundTripFirst": func() error {
			r := get(t, home)
			_, err := transport.RoundTripFirst(r, 1, func(int) (*http.Request, error) { return r, nil })
			return err
		},
		"Transport.SetPolicies":   func() error { return transport.SetPolicies(table) },
		"Transport.Statuses":      func() error { _, err := transport.Statuses(ctx); return err },
		"Transport.Limiter":       func() error { _, err := transport.Limiter("p"); return err },
		"Limiters.Acquire":        func() error { _, err := limiters.Acquire(ctx, throttle.Demand{Policy: "p"}); return err },
		"Limiters.AcquireRequest": func() error { _, err := limiters.AcquireRequest(get(t, home)); return err },
		"Limiters.SetPolicies":    func() error { return limiters.SetPolicies(table) },
		"Limiter.Acquire":         func() error { _, err := limiter.Acquire(ctx, "", 1); return err },
		"Limiter.Acquire, free":   func() error { _, err := limiter.Acquire(ctx, "", throttle.Free); return err },
		"Limiter.Pause":           func() error { return limiter.Pause(ctx, "", time.Second) },
		"Limiter.Resume":          func() error { return limiter.Resume(ctx, "") },
		"Limiter.Status":          func() error { _, err := limiter.Status(ctx, ""); return err },
	} {
		_, ok := errors.AsType[*throttle.ConfigError](call())
		require.True(t, ok, name)
	}
	require.Empty(t, transport.Explain(get(t, home)))
	require.Empty(t, transport.Policies())
	transport.CloseIdleConnections()
}

// TestLimitersRefuseWrongKeys: a key for a policy without keys, and none for one with keys, is a mistake of each call.
func TestLimitersRefuseWrongKeys(t *testing.T) {
	l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{
		{Name: "all", Limit: throttle.PerHour(9)}, {Name: "each", Limit: throttle.PerHour(9), Keyed: true},
		{Name: "requests", Match: "/", Limit: throttle.PerHour(9), Key: throttle.Host},
	}}))
	for _, c := range []struct{ policy, right, wrong, says string }{
		{"all", "", "k", "is named, but the policy has one budget for all"},
		{"each", "k", "", "is missing: the policy has a budget for each key"},
		{"requests", "k", "", "is missing: the policy has a budget for each key"},
	} {
		one := must(l.Limiter(c.policy))
		for name, call := range map[string]func(key string) error{
			"Acquire": func(key string) error {
				_, err := l.Acquire(t.Context(), throttle.Demand{Policy: c.policy, Key: key})
				return err
			},
			"Acquire, free": func(key string) error {
				_, err := l.Acquire(t.Context(), throttle.Demand{Policy: c.policy, Key: key, Cost: throttle.Free})
				return err
			},
			"Limiter": func(key string) error { _, err := one.Acquire(t.Context(), key, 1); return err },
			"Status":  func(key string) error { _, err := one.Status(t.Context(), key); return err },
			"Resume":  func(key string) error { return one.Resume(t.Context(), key) },
		} {
			require.NoError(t, call(c.right), c.policy+name)
			require.ErrorContains(t, call(c.wrong), fmt.Sprintf("policy %q: Key: %s", c.policy, c.says), name)
		}
	}
}
