package throttle_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// An upstreamCount counts starts as an upstream does, whose clock has nanoseconds, and reports whether one fits.
type upstreamCount func(at time.Time) bool

// spacing counts starts that have at least per/n between them.
func spacing(n int, per time.Duration) upstreamCount {
	var last time.Time
	return func(at time.Time) bool {
		fits := last.IsZero() || int64(at.Sub(last))*int64(n) >= int64(per)
		last = at
		return fits
	}
}

// bucketOf counts starts that take a token each from a bucket of burst tokens, which is full at first.
func bucketOf(n int, per time.Duration, burst int) upstreamCount {
	var last time.Time
	full := int64(burst) * int64(per) // a token is as much as per
	level := full
	return func(at time.Time) bool {
		if !last.IsZero() {
			level = min(full, level+int64(at.Sub(last))*int64(n))
		}
		last = at
		level -= int64(per)
		return level >= 0
	}
}

// window counts starts of which no closed interval of length per holds more than n.
func window(n int, per time.Duration) upstreamCount {
	starts := make([]time.Time, n)
	i := 0
	return func(at time.Time) bool {
		fits := starts[i].IsZero() || at.Sub(starts[i]) > per
		starts[i] = at
		i = (i + 1) % n
		return fits
	}
}

// TestP1_NoJitterByTheNanosecond: stores count in microseconds, and an upstream may count more finely. Without Jitter no start is
// early by a part of a microsecond, whenever callers come.
func TestP1_NoJitterByTheNanosecond(t *testing.T) {
	tests := []struct {
		limit throttle.Limit
		count upstreamCount
	}{
		{throttle.LeakyBucket(5, time.Second), spacing(5, time.Second)},
		{throttle.LeakyBucket(3, time.Second), spacing(3, time.Second)},
		{throttle.LeakyBucket(7000, time.Second), spacing(7000, time.Second)},
		{throttle.LeakyBucket(7, 1234567*time.Nanosecond), spacing(7, 1234567*time.Nanosecond)},
		{throttle.TokenBucket(5, time.Second, 1), bucketOf(5, time.Second, 1)},
		{throttle.TokenBucket(3, time.Second, 4), bucketOf(3, time.Second, 4)},
		{throttle.TokenBucket(7000, time.Second, 2), bucketOf(7000, time.Second, 2)},
		{throttle.TokenBucket(7, 1234567*time.Nanosecond, 3), bucketOf(7, 1234567*time.Nanosecond, 3)},
		{throttle.SlidingWindow(5, time.Second), window(5, time.Second)},
		{throttle.SlidingWindow(3, 1234567*time.Nanosecond), window(3, 1234567*time.Nanosecond)},
	}
	for i, test := range tests {
		t.Run(test.limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, memstore.New(), throttle.Policy{Name: "p", Limit: test.limit, Jitter: -1})
				var mu sync.Mutex
				early, begun := 0, time.Now()
				var callers sync.WaitGroup
				for c := range 3 {
					r := rand.New(rand.NewPCG(uint64(i), uint64(c)))
					mean := 3 * test.limit.Per() / time.Duration(test.limit.N())
					callers.Go(func() {
						for range soak.Seeds(20_000, 3_000) {
							time.Sleep(time.Duration(r.Int64N(int64(2*mean))) + time.Duration(r.IntN(1000)))
							_, err := l.Acquire(t.Context(), "", 1)
							require.NoError(t, err)
							mu.Lock()
							if !test.count(time.Now()) {
								early++
							}
							mu.Unlock()
						}
					})
				}
				callers.Wait()
				require.Zero(t, early, "starts in %v that were early", time.Since(begun))
			})
		})
	}
}

var errRefused = errors.New("redis: refused")

// An absentStore is away at times. While somebody waits it asks, and tells them,
// every tenth of a second.
type absentStore struct {
	throttle.Store
	begin time.Time
	away  [][2]time.Duration // since begin
	told  int                // how often an observer was told
}

// absent returns a store that is away from each first time until the second.
func absent(away ...[2]time.Duration) *absentStore {
	return &absentStore{Store: memstore.New(), begin: time.Now(), away: away}
}

func (s *absentStore) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	if err := s.await(ctx, b.MaxWait); err != nil {
		return store.Grant{}, err
	}
	return s.Store.Book(ctx, b)
}

func (s *absentStore) Watch(b *store.Booking, g store.Grant, news chan<- struct{}) store.Watch {
	return absentWatch{s.Store.Watch(b, g, news), s}
}

type absentWatch struct {
	store.Watch
	store *absentStore
}

func (w absentWatch) Confirm(ctx context.Context, maxWait time.Duration) (bool, error) {
	if err := w.store.await(ctx, maxWait); err != nil {
		return false, err
	}
	return w.Watch.Confirm(ctx, maxWait)
}

func (s *absentStore) await(ctx context.Context, maxWait time.Duration) error {
	end := time.Now().Add(maxWait)
	_, bounded := ctx.Deadline()
	impatient := maxWait >= 0 && !bounded
	for slices.ContainsFunc(s.away, func(a [2]time.Duration) bool {
		now := time.Since(s.begin)
		return a[0] <= now && now < a[1]
	}) {
		if observer := outage.From(ctx); observer != nil {
			s.told++
			observer.StoreAway(errRefused)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", errRefused, context.Cause(ctx))
		case <-time.After(100 * ms):
			if impatient && !time.Now().Before(end) {
				return errRefused
			}
		}
	}
	return nil
}

// TestP12_NobodyAsks: a store need not explain what nobody wants to know.
func TestP12_NobodyAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := absent([2]time.Duration{0, time.Second})
		line(t, must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Base: answer(200, ""), Policies: everywhere(onePerSecond)})), 1, home)
		l := must(throttle.NewLimiter(absent([2]time.Duration{0, 2 * time.Second}), onePerSecond))
		_, err := l.Acquire(t.Context(), "", 1)
		require.NoError(t, err)
		require.Zero(t, store.told)
	})
}

var errShutdown = errors.New("shutting down")

// TestP12_LeavingInTimeBlamesNobody: the store knows only that the context has
// ended.
func TestP12_LeavingInTimeBlamesNobody(t *testing.T) {
	for _, says := range []error{errShutdown, context.Canceled} {
		synctest.Test(t, func(t *testing.T) {
			store := newSpy()
			ctx, cancel := context.WithCancelCause(t.Context())
			store.confirm = func(context.Context) (bool, error) {
				cancel(errShutdown)
				return false, says
			}
			tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Base: answer(200, ""), Policies: everywhere(onePerSecond)}))
			line(t, tr, 1, home)
			err := send(t, tr, get(t, home).WithContext(ctx))
			require.EqualError(t, err, `throttle: the caller gave up after waiting 1.04s for policy "p": shutting down`)
			_, blamed := errors.AsType[*throttle.StoreError](err)
			require.False(t, blamed)
		})
	}
}

// roomAfter returns how much room the next booking asks for when the store took
// so long for its answers, one after the other.
func roomAfter(t *testing.T, took ...time.Duration) time.Duration {
	s := newSpy()
	answers := append(took, 0)
	s.slow = answers[0]
	s.change = func(g *store.Grant) {
		g.Age = s.slow
		if answers = answers[1:]; len(answers) > 0 {
			s.slow = answers[0]
		}
	}
	tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: s, Base: newStarts(), Policies: []throttle.Policy{
		{Name: "p", Match: "/", Limit: throttle.PerSecond(1000)},
	}}))
	for len(answers) > 0 { // what is too old is taken anew at once
		require.NoError(t, send(t, tr, get(t, home)))
	}
	booked := s.booked()
	require.Len(t, booked, len(took)+1)
	return booked[len(took)].Spread
}

// TestP3_RoomForASlowStore: room is asked for when all answers take long. A
// hiccup is no reason, and the first fast answer ends it.
func TestP3_RoomForASlowStore(t *testing.T) {
	const slow, fast = 1500 * ms, ms
	const little = 5 * acquire.DefaultJitter / 4 // never less than that is believed of a mean
	for _, c := range []struct {
		name        string
		took        []time.Duration
		least, most time.Duration
	}{
		{"fast", slices.Repeat([]time.Duration{fast}, 9), 0, 0},
		{"far away", slices.Repeat([]time.Duration{100 * ms}, 40), 95 * ms, 96 * ms}, // less 5 ms; it may be used 10 ms late
		{"now near, now not so near", slices.Repeat([]time.Duration{10 * ms, 35 * ms, 20 * ms}, 9), 20 * ms, 25 * ms},
		{"slow from the beginning", slices.Repeat([]time.Duration{slow}, 6), slow, 5 * slow / 4},
		{"a hiccup", []time.Duration{fast, fast, slow}, 0, little},
		{"forgotten", append([]time.Duration{fast, fast, slow}, slices.Repeat([]time.Duration{fast}, 9)...), 0, 0},
		{"five hiccups", append(slices.Repeat([]time.Duration{fast}, 9), slices.Repeat([]time.Duration{slow}, 5)...), 0, little},
		{"six are none", append(slices.Repeat([]time.Duration{fast}, 9), slices.Repeat([]time.Duration{slow}, 6)...), slow, 5 * slow / 4},
		{"fast again", append(slices.Repeat([]time.Duration{slow}, 40), fast), 0, little},
		{"fast again and far again", append(slices.Repeat([]time.Duration{slow}, 40), fast, 40*ms), 0, little},
		{"once fast, then slow for long", append([]time.Duration{fast}, slices.Repeat([]time.Duration{slow}, 40)...), slow - 5*ms, slow},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				room := roomAfter(t, c.took...)
				require.GreaterOrEqual(t, room, c.least)
				require.LessOrEqual(t, room, c.most)
			})
		})
	}
}

// TestP3_CallersShareAHiccup: what many callers hear at once is one answer.
func TestP3_CallersShareAHiccup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 20
		s := newSpy()
		s.slow = 400 * ms
		s.change = func(g *store.Grant) { g.Age = 400 * ms }
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: s, Base: newStarts(), Policies: []throttle.Policy{
			{Name: "p", Match: "/", Limit: throttle.PerSecond(1000)},
		}}))
		ctx, cancel := context.WithCancel(t.Context())
		var crowd sync.WaitGroup
		for range callers {
			crowd.Go(func() { _ = send(t, tr, get(t, home).WithContext(ctx)) })
		}
		time.Sleep(401 * ms) // all have booked anew
		cancel()
		crowd.Wait()
		booked := s.booked()
		require.Len(t, booked, 2*callers)
		for _, b := range booked[callers:] {
			require.Equal(t, 120*ms, b.Spread, "a quarter of it, and a quarter of that, less 5 ms")
		}
	})
}

// TestP3_ABudgetThatIsFarAway: the answers of one budget take long, all others
// are fast, as in a cluster with a node that is ill. Its caller gets through.
func TestP3_ABudgetThatIsFarAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spy := newSpy()
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: farStore{spy}, Base: newStarts(), Policies: []throttle.Policy{
			{Name: "far", Match: "/far", Limit: throttle.PerSecond(1000)},
			{Name: "near", Match: "/near", Limit: throttle.PerSecond(1000)},
		}}))
		ctx, cancel := context.WithCancel(t.Context())
		var near sync.WaitGroup
		near.Go(func() {
			for ctx.Err() == nil {
				_ = send(t, tr, get(t, home+"near").WithContext(ctx))
			}
		})
		time.Sleep(100 * ms)
		begin := time.Now()
		patient, over := context.WithTimeout(t.Context(), 10*time.Second)
		defer over()
		require.NoError(t, send(t, tr, get(t, home+"far").WithContext(patient)))
		require.Equal(t, 700*ms, time.Since(begin), "the seventh booking asks for enough room")
		booked := slices.DeleteFunc(spy.booked(), func(b store.Booking) bool { return b.Charges[0].Budget.Policy != "far" })
		require.Len(t, booked, 7)
		require.NotZero(t, booked[5].Instead)
		require.Zero(t, booked[6].Instead, "it was given back by then")
		require.Equal(t, 1, spy.cancelled())
		cancel()
		near.Wait()
	})
}

// A farStore takes long to answer for the policy "far".
type farStore struct{ throttle.Store }

func (s farStore) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	takes := ms
	if b.Charges[0].Budget.Policy == "far" {
		takes = 100 * ms
	}
	time.Sleep(takes)
	g, err := s.Store.Book(ctx, b)
	g.Age = takes
	return g, err
}

// TestP6_SettleThatMayHaveFailed: nobody knows what is booked, so the next
// settlement takes the lesser cost for booked: nothing of another's is given back.
func TestP6_SettleThatMayHaveFailed(t *testing.T) {
	down := errors.New("down")
	for _, c := range []struct {
		name               string
		lost, again, asked int // the settlements, and how many the store hears of
		takenBack          int // by the second
	}{
		{"more, then less", 8, 2, 2, 4},
		{"more, then the same", 8, 8, 2, 4},
		{"less, then more", 1, 3, 2, 1},
		{"less, then the same", 1, 1, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := newSpy()
			took := &settleStore{spyStore: store}
			p, err := newLimiter(t, took, throttle.Policy{Name: "p", Limit: throttle.PerHour(10)}).Acquire(t.Context(), "", 4)
			require.NoError(t, err)
			store.settle = func(context.Context) error { return down }
			err = p.Tell(t.Context(), throttle.Answer{}.WithCost(c.lost))
			require.ErrorIs(t, err, down)
			var failed *throttle.StoreError
			require.ErrorAs(t, err, &failed)
			store.settle, took.old = nil, 0
			require.NoError(t, p.Tell(t.Context(), throttle.Answer{}.WithCost(c.again)))
			require.Len(t, store.settlements(), c.asked)
			require.Equal(t, c.takenBack, took.old)
		})
	}
}

// A settleStore notes the cost in whose place another one is put.
type settleStore struct {
	*spyStore
	old int
}

func (s *settleStore) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	s.old = b.Charges[0].Cost
	return s.spyStore.Settle(ctx, b, g, costs)
}

// tokens reads the usage that a model's answer ends with.
func tokens(resp *http.Response) throttle.Answer {
	body, err := feedback.PeekBody(resp, 1<<20)
	usage := struct{ Tokens *int }{}
	if err != nil || json.Unmarshal(body, &usage) != nil || usage.Tokens == nil {
		return throttle.Answer{}
	}
	return throttle.Answer{}.WithCost(*usage.Tokens)
}

// TestMaxWaitAsLongAsCanBe is not in a bubble, where the process began in the future
// and nothing overflows.
func TestMaxWaitAsLongAsCanBe(t *testing.T) {
	tr := must(throttle.New(throttle.Config{
		Store: memstore.New(), Base: newStarts(), MaxWait: math.MaxInt64,
		Policies: []throttle.Policy{{Name: "p", Match: "/", Limit: throttle.SlidingWindow(1, 20*ms)}},
	}))
	for range 2 {
		require.NoError(t, send(t, tr, get(t, home)))
	}
}

// tenants is a policy with a budget for each tenant.
var tenants = throttle.Policy{Name: "tenants", Limit: throttle.PerHour(5), Key: throttle.Header("X-Tenant")}

// sendAs sends a request of a tenant.
func sendAs(t *testing.T, tr *throttle.Transport, tenant string) {
	t.Helper()
	r := get(t, home)
	r.Header.Set("X-Tenant", tenant)
	require.NoError(t, send(t, tr, r))
}

// TestStatuses: of each budget that is used it is said once what it is like, also to limiters, and the
// demands of one with another key count.
func TestStatuses(t *testing.T) {
	l := must(throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: []throttle.Policy{
		{Name: "tenants", Limit: throttle.PerHour(5), Keyed: true}, {Name: "all", Limit: throttle.PerHour(9)},
	}}))
	all, err := l.Statuses(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	for _, d := range []throttle.Demand{{Policy: "tenants", Key: "a", Cost: 3}, {Policy: "tenants", Key: "a"}, {Policy: "tenants", Key: "b"}, {Policy: "all"}} {
		must(l.Acquire(t.Context(), d))
	}
	must(must(l.Limiter("tenants")).Acquire(t.Context(), "d", 2))
	all, err = l.Statuses(t.Context())
	require.NoError(t, err)
	used := make(map[string]int)
	for budget, b := range all {
		used[fmt.Sprintf("%s %d", budget.Policy, b.Used)]++
	}
	require.Equal(t, map[string]int{"tenants 4": 1, "tenants 1": 1, "tenants 2": 1, "all 1": 1}, used)
}

// A countingStore counts what it is asked at a time, and answers after a while.
type countingStore struct {
	throttle.Store
	now, most, all atomic.Int64
}

func (s *countingStore) Status(ctx context.Context, c store.Charge) (throttle.Status, error) {
	s.all.Add(1)
	n := s.now.Add(1)
	defer s.now.Add(-1)
	for most := s.most.Load(); n > most && !s.most.CompareAndSwap(most, n); most = s.most.Load() {
	}
	select {
	case <-time.After(100 * ms):
		return s.Store.Status(ctx, c)
	case <-ctx.Done():
		return throttle.Status{}, ctx.Err()
	}
}

// TestStatusesAreBounded: however many policies there are, the store is asked little at a time, and
// nothing more when the time is over.
func TestStatusesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policies := make([]throttle.Policy, 100)
		for i := range policies {
			policies[i] = throttle.Policy{Name: fmt.Sprint(i), Limit: throttle.PerHour(5)}
		}
		store := &countingStore{Store: memstore.New()}
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: everywhere(policies...)}))
		all, err := tr.Statuses(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 100)
		require.Equal(t, int64(16), store.most.Load())

		store.all.Store(0)
		ctx, stop := context.WithTimeout(t.Context(), 250*ms)
		defer stop()
		all, err = tr.Statuses(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorAs(t, err, new(*throttle.StoreError))
		require.Len(t, all, 32)
		require.Equal(t, int64(48), store.all.Load())
	})
}

// TestNobodyAsksForStatuses: what is not asked for within an hour is not noted any more.
func TestNobodyAsksForStatuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Base: answer(200, ""), Policies: everywhere(tenants)}))
		known := func() int { return len(must(tr.Statuses(t.Context()))) }
		sendAs(t, tr, "a")
		require.Zero(t, known(), "nobody had asked before")
		sendAs(t, tr, "a")
		require.Equal(t, 1, known())
		time.Sleep(time.Hour)
		sendAs(t, tr, "b") // and all is forgotten
		sendAs(t, tr, "c")
		require.Zero(t, known())
	})
}

// TestAFailureCanBeAskedAbout: the context of an event that says that the store failed lets an
// observer ask whether that is so still. A store that answers the question and not the callers is
// away.
func TestAFailureCanBeAskedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q outage.Question
		store := absent([2]time.Duration{0, time.Second}) // whose Status always answers
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Base: answer(200, ""), Policies: []throttle.Policy{
			{Name: "own", Match: "/", Limit: throttle.PerHour(9), Scope: throttle.ScopeNode}, everywhere(onePerSecond)[0],
		}, Observe: func(ctx context.Context, e throttle.Event) {
			if e.Kind == throttle.EventStarted {
				require.Nil(t, outage.QuestionOf(ctx))
				return
			}
			q = outage.QuestionOf(ctx)
			require.NotNil(t, q, e.Kind)
			require.Error(t, q.Ask(ctx), e.Kind)
		}}))
		go func() { line(t, tr, 1, home) }()
		time.Sleep(500 * ms)
		synctest.Wait()
		require.Error(t, q.Ask(t.Context()))
		_, err := tr.Statuses(t.Context())
		require.Error(t, err)
		time.Sleep(time.Second)
		require.NoError(t, q.Ask(t.Context()))
		_, err = tr.Statuses(t.Context())
		require.NoError(t, err)
	})
}

// TestStatusesDoNotAllocate: that budgets are noted costs callers no memory.
func TestStatusesDoNotAllocate(t *testing.T) {
	resp := &http.Response{StatusCode: 200, Body: http.NoBody}
	own := tenants
	own.Limit = throttle.PerSecond(1 << 30)
	tr := must(throttle.New(throttle.Config{
		Store: memstore.New(), MaxWait: -1, Policies: everywhere(own),
		Base: base(func(*http.Request) (*http.Response, error) { return resp, nil }),
	}))
	req := get(t, home)
	allocs := func() float64 {
		return testing.AllocsPerRun(1000, func() {
			if _, err := tr.RoundTrip(req); err != nil {
				t.Fatal(err)
			}
		})
	}
	before := allocs()
	must(tr.Statuses(t.Context()))
	require.Equal(t, before, allocs())
	require.Len(t, must(tr.Statuses(t.Context())), 1)
}

// byTenant is a policy whose shares are tenants.
func byTenant(l throttle.Limit) throttle.Policy {
	return throttle.Policy{Name: "api", Limit: l, Share: throttle.Header("X-Tenant")}
}

// TestP5_SharesOfRequests: a charge names the share, and not its name; the weight is what the request says.
func TestP5_SharesOfRequests(t *testing.T) {
	p := byTenant(throttle.PerSecond(10))
	p.Weight = func(r *http.Request) int { n, _ := strconv.Atoi(r.Header.Get("X-Weight")); return n }
	tr := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: everywhere(p)}))
	request := func(tenant, weight string) *http.Request {
		r := must(http.NewRequest(http.MethodGet, "https://api.example.com/", nil))
		r.Header.Set("X-Tenant", tenant)
		r.Header.Set("X-Weight", weight)
		return r
	}
	require.Equal(t, store.Share{ID: store.ShareOf("api", "acme"), Weight: 4}, tr.Explain(request("acme", "4"))[0].Share)
	require.Equal(t, store.Share{ID: store.ShareOf("api", "other")}, tr.Explain(request("other", ""))[0].Share)
	require.Equal(t, store.Share{}, tr.Explain(request("", "9"))[0].Share)
	for _, id := range []uint64{store.ShareOf("api", "acme"), store.ShareOf("api", "other"), store.ShareOf("b", "acme")} {
		require.Greater(t, id, uint64(1))
		require.Less(t, id, uint64(1)<<53)
	}
	require.NotEqual(t, store.ShareOf("api", "acme"), store.ShareOf("b", "acme"))
	for _, weight := range []string{"-1", "1001"} {
		_, err := tr.RoundTrip(request("acme", weight))
		var mistake *throttle.ConfigError
		require.ErrorAs(t, err, &mistake)
		require.Equal(t, "Weight", mistake.Field)
	}
}

// TestP5_MistakesInShares: each has an error that names its field.
func TestP5_MistakesInShares(t *testing.T) {
	one := func(*http.Request) int { return 1 }
	panics := func(*http.Request) string { panic("secret") }
	for _, p := range []throttle.Policy{
		{Name: "a", Limit: throttle.PerSecond(1), Weight: one},
		{Name: "a", Limit: throttle.Concurrency(1), Share: throttle.Host},
		{Name: "a", Limit: throttle.Unlimited(), Share: throttle.Host},
	} {
		_, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: everywhere(p)})
		require.ErrorContains(t, err, "Share")
	}
	tr := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: []throttle.Policy{{Name: "a", Match: "/", Limit: throttle.PerSecond(1), Share: panics}}}))
	_, err := tr.RoundTrip(must(http.NewRequest(http.MethodGet, "https://api.example.com/", nil)))
	require.ErrorContains(t, err, `"a"`)
	require.ErrorContains(t, err, "Share")
	require.NotContains(t, err.Error(), "secret")

	l := must(throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: []throttle.Policy{
		{Name: "a", Limit: throttle.PerSecond(1)}, {Name: "flight", Limit: throttle.Concurrency(1)},
	}}))
	for _, d := range []throttle.Demand{
		{Policy: "a", Weight: 2}, {Policy: "a", Share: "x", Weight: -1}, {Policy: "a", Share: "x", Weight: 1001}, {Policy: "flight", Share: "x"},
	} {
		_, err := l.Acquire(t.Context(), d)
		require.ErrorAs(t, err, new(*throttle.ConfigError), "%+v", d)
	}
}

// TestP5_AShareDoesNotWaitForTheHeapOfAnother: it starts within the horizon and its own turn, and is told so: a
// MaxWait of half a second is enough, though a thousand of another share wait for 50 seconds.
func TestP5_AShareDoesNotWaitForTheHeapOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(throttle.NewLimiters(throttle.Config{
			MaxWait: throttle.Forever,
			Store:   memstore.New(), Policies: []throttle.Policy{{Name: "api", Limit: throttle.PerSecond(20)}},
		}))
		heap, over := context.WithCancel(t.Context())
		for range 1000 {
			go func() { _, _ = l.Acquire(heap, throttle.Demand{Policy: "api", Share: "heap"}) }()
		}
		time.Sleep(3 * time.Second)
		for i := range 20 {
			begin := time.Now()
			_, err := l.Acquire(throttle.WithMaxWait(t.Context(), 500*time.Millisecond), throttle.Demand{Policy: "api", Share: "light"})
			require.NoError(t, err, i)
			require.Less(t, time.Since(begin), 400*time.Millisecond)
			time.Sleep(time.Second)
		}
		_, err := l.Acquire(throttle.WithMaxWait(t.Context(), 5*time.Second), throttle.Demand{Policy: "api", Share: "heap"})
		var refused *throttle.LimitError
		require.ErrorAs(t, err, &refused)
		require.Greater(t, refused.RetryAfter, 20*time.Second, "one more of the heap waits for the heap")
		over()
		synctest.Wait()
	})
}

// TestP5_SharesHaveTheirWeights: two shares that always ask for more get twice and once.
func TestP5_SharesHaveTheirWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(throttle.NewLimiters(throttle.Config{
			MaxWait: throttle.Forever,
			Store:   memstore.New(), Policies: []throttle.Policy{{Name: "api", Limit: throttle.PerSecond(60)}},
		}))
		ctx, over := context.WithCancel(t.Context())
		var got [2]atomic.Int64
		for share := range got {
			for range 200 * (2 - share) {
				go func() {
					for {
						d := throttle.Demand{Policy: "api", Share: fmt.Sprint(share), Weight: 1 + share}
						if _, err := l.Acquire(ctx, d); err != nil {
							return
						}
						got[share].Add(1)
					}
				}()
			}
		}
		time.Sleep(2 * time.Second) // an idle budget lets those start at once that come first
		one, two := got[0].Load(), got[1].Load()
		time.Sleep(20 * time.Second)
		one, two = got[0].Load()-one, got[1].Load()-two
		over()
		synctest.Wait()
		require.InDelta(t, 2, float64(two)/float64(one), 0.1, "%d and %d", one, two)
	})
}
