package throttle_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/choice"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// A site is the hosts between which a Choice chooses: a, b, c, and so on, one policy for each.
type site struct {
	t     *throttle.Transport
	store throttle.Store
	events
	begin time.Time
	then  base // what answers

	mu sync.Mutex
	at map[string][]time.Duration // by host: when each request came
}

// newSite returns hosts with limits, and the choice between them.
func newSite(t *testing.T, c throttle.Config, limits ...throttle.Limit) (*site, *choice.Choice) {
	t.Helper()
	s := &site{store: c.Store, begin: time.Now(), then: answer(http.StatusOK, ""), at: make(map[string][]time.Duration)}
	if s.store == nil {
		s.store = memstore.New()
	}
	c.MaxWait = cmp.Or(c.MaxWait, throttle.Forever)
	c.Store, c.Observe, c.Policies = s.store, s.observe, append(c.Policies, hostTable(limits...)...)
	if c.Base == nil {
		c.Base = s
	}
	s.t = must(throttle.New(c))
	return s, must(choice.New(s.t, hosts(len(limits))...))
}

// hostTable returns a policy without jitter for each host.
func hostTable(limits ...throttle.Limit) (all []throttle.Policy) {
	for i, l := range limits {
		host := string(rune('a' + i))
		all = append(all, throttle.Policy{Name: host, Match: host + "/", Limit: l, Jitter: -1})
	}
	return all
}

// hosts returns a variant for each of n hosts.
func hosts(n int, weights ...int) []choice.Variant {
	all := make([]choice.Variant, n)
	for i := range all {
		host := string(rune('a' + i))
		all[i] = choice.Variant{Name: host, Change: func(r *http.Request) error { r.URL.Host = host; return nil }}
		if weights != nil {
			all[i].Weight = weights[i]
		}
	}
	return all
}

func (s *site) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.at[r.URL.Host] = append(s.at[r.URL.Host], time.Since(s.begin))
	s.mu.Unlock()
	return s.then(r)
}

// seen returns when requests came to a host.
func (s *site) seen(host string) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.at[host])
}

// pause closes a host, or opens it if d is 0.
func (s *site) pause(t *testing.T, host string, d time.Duration) {
	t.Helper()
	l := must(s.t.Limiter(host))
	if d == 0 {
		require.NoError(t, l.Resume(t.Context(), ""))
		return
	}
	require.NoError(t, l.Pause(t.Context(), "", d))
}

// checkIdle fails the test if anybody waits for a host, or has a start that is to come.
func (s *site) checkIdle(t *testing.T, hosts ...string) {
	t.Helper()
	for _, h := range hosts {
		st := must(must(s.t.Limiter(h)).Status(t.Context(), ""))
		require.Zero(t, st.Waiting+st.Booked, h)
	}
}

// TestChoice_PrimaryThenOthers takes the first variant that has room, as they are listed.
func TestChoice_PrimaryThenOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newSite(t, throttle.Config{}, throttle.PerSecond(2), throttle.PerSecond(1), throttle.PerSecond(3))
		for range 6 {
			require.NoError(t, send(t, c, get(t, home)))
		}
		require.Equal(t, []time.Duration{0, 0}, s.seen("a"))
		require.Equal(t, []time.Duration{0}, s.seen("b"))
		require.Equal(t, []time.Duration{0, 0, 0}, s.seen("c"))
		require.Equal(t, slices.Repeat([]throttle.EventKind{throttle.EventStarted}, 6), s.kinds())
	})
}

// TestChoice_Weights takes variants that all have room as often as their weights say, and one
// without a weight only if no other has room.
func TestChoice_Weights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newSite(t, throttle.Config{}, throttle.PerHour(100_000), throttle.PerHour(100_000), throttle.PerHour(100_000))
		c := must(choice.New(s.t, hosts(3, 0, 3, 1)...))
		for range 4000 {
			require.NoError(t, send(t, c, get(t, home)))
		}
		require.Empty(t, s.seen("a"))
		require.InDelta(t, 3000, len(s.seen("b")), 5*28) // five standard deviations
		s.pause(t, "b", time.Minute)
		s.pause(t, "c", time.Minute)
		require.NoError(t, send(t, c, get(t, home)))
		require.Len(t, s.seen("a"), 1)
	})
}

// TestChoice_MovesToTheOneThatIsFreeFirst waits in the lines of both variants: the one that is opened
// early takes the caller, though the other one's guess was less.
func TestChoice_MovesToTheOneThatIsFreeFirst(t *testing.T) {
	for _, c := range []struct {
		name string
		free func(t *testing.T, s *site)
	}{
		{"resumed", func(t *testing.T, s *site) { s.pause(t, "b", 0) }},
		{"raised", func(t *testing.T, s *site) {
			require.NoError(t, s.t.SetPolicies(hostTable(throttle.PerMinute(1), throttle.PerMinute(2))))
		}},
		{"unlimited", func(t *testing.T, s *site) { require.NoError(t, s.t.SetPolicies(hostTable(throttle.PerMinute(1)))) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, choice := newSite(t, throttle.Config{}, throttle.PerMinute(1), throttle.PerMinute(1))
				require.NoError(t, send(t, choice, get(t, home)))
				if c.name == "resumed" {
					s.pause(t, "b", time.Hour)
				} else {
					require.NoError(t, send(t, choice, get(t, home)))
				}
				var all sync.WaitGroup
				all.Go(func() { require.NoError(t, send(t, choice, get(t, home))) })
				time.Sleep(10 * time.Second)
				c.free(t, s)
				all.Wait()
				require.Equal(t, 10*time.Second, slices.Max(s.seen("b")))
				require.Equal(t, []time.Duration{0}, s.seen("a"))
				s.checkIdle(t, "a")
			})
		})
	}
}

// TestChoice_ABannedVariantIsLeftAlone sends nothing to a variant that an answer closed until it is open
// again, and goes on with the other.
func TestChoice_ABannedVariantIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newSite(t, throttle.Config{}, throttle.PerSecond(10), throttle.PerSecond(2))
		s.then = func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "a" && time.Since(s.begin) < 5*time.Second {
				return answer(http.StatusTooManyRequests, "", "Retry-After", "5")(r)
			}
			return answer(http.StatusOK, "")(r)
		}
		for time.Since(s.begin) < 10*time.Second {
			require.NoError(t, send(t, c, get(t, home)))
		}
		require.Zero(t, s.seen("a")[0])
		require.Equal(t, 5*time.Second, s.seen("a")[1].Truncate(ms))
		require.Len(t, slices.DeleteFunc(s.seen("b"), func(at time.Duration) bool { return at >= 5*time.Second }), 10)
	})
}

// TestChoice_ABanAfterTheChoice closes the variant of a caller that waits for its start: it goes
// elsewhere, and not behind all that came later.
func TestChoice_ABanAfterTheChoice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newSite(t, throttle.Config{MaxWait: 10 * time.Second}, throttle.PerSecond(5), throttle.PerMinute(1))
		for range 6 {
			require.NoError(t, send(t, c, get(t, home)))
		}
		var all sync.WaitGroup
		all.Go(func() { require.NoError(t, send(t, c, get(t, home))) })
		time.Sleep(900 * ms) // it has a start at a, a second after the first ones
		s.pause(t, "a", time.Hour)
		require.NoError(t, s.t.SetPolicies(hostTable(throttle.PerSecond(5), throttle.PerMinute(2))))
		all.Wait()
		require.Equal(t, []time.Duration{0, 900 * ms}, s.seen("b"))
		s.checkIdle(t, "a", "b")
	})
}

// TestChoice_TooLate refuses at once what all lines together cannot serve in time, and nothing that
// they can serve though none of them could.
func TestChoice_TooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newSite(t, throttle.Config{MaxWait: 3500 * ms}, throttle.PerSecond(1), throttle.PerSecond(1))
		var all sync.WaitGroup
		for range 8 { // the last two start at 3 s
			all.Go(func() { require.NoError(t, send(t, c, get(t, home))) })
			synctest.Wait()
		}
		s.pause(t, "b", 20*time.Second)
		began := time.Now()
		err := send(t, c, get(t, home).WithContext(throttle.WithMaxWait(t.Context(), 2*time.Second)))
		require.Zero(t, time.Since(began))
		var limited *throttle.LimitError
		require.ErrorAs(t, err, &limited)
		require.Equal(t, "a", limited.Policy)
		require.ErrorIs(t, send(t, c, get(t, home).WithContext(throttle.WithMaxWait(t.Context(), -1))), throttle.ErrLimited)
		require.Zero(t, time.Since(began))
		s.pause(t, "b", 0)
		all.Wait()
		require.Equal(t, 3*time.Second, time.Since(s.begin).Truncate(ms))
		s.checkIdle(t, "a", "b")
	})
}

// TestP5_AChoiceStandsInLine starts a caller with a choice where it came in the lines of callers without one.
func TestP5_AChoiceStandsInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newSite(t, throttle.Config{}, throttle.PerSecond(1), throttle.PerSecond(1))
		line(t, c, 2, home)
		s.pause(t, "b", time.Minute)
		var order []string
		var mu sync.Mutex
		var all sync.WaitGroup
		come := func(name string, tr http.RoundTripper, url string) {
			all.Go(func() {
				require.NoError(t, send(t, tr, get(t, url)))
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
			})
			time.Sleep(ms)
		}
		come("1", s.t, "http://a/")
		come("2", s.t, "http://a/")
		come("choice", c, home)
		come("4", s.t, "http://a/")
		come("choice", c, home)
		all.Wait()
		require.Equal(t, []string{"1", "2", "choice", "4", "choice"}, order)
	})
}

// TestChoice_BehindOthers asks for no start now where others of the program stand in line.
func TestChoice_BehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spy := newSpy()
		_, c := newSite(t, throttle.Config{MaxWait: throttle.Forever, Store: spy}, throttle.PerMinute(1), throttle.PerMinute(1))
		line(t, c, 2, home)
		var all sync.WaitGroup
		asked := func(p throttle.Priority) (now, inLine int) {
			before := len(spy.booked())
			all.Go(func() {
				require.NoError(t, send(t, c, get(t, home).WithContext(throttle.WithPriority(t.Context(), p))))
			})
			time.Sleep(time.Second)
			for _, b := range spy.booked()[before:] {
				if b.MaxWait == 0 {
					now++
				} else {
					inLine++
				}
			}
			return now, inLine
		}
		now, inLine := asked(throttle.PriorityNormal)
		require.Equal(t, [2]int{2, 2}, [2]int{now, inLine})
		now, inLine = asked(throttle.PriorityLow)
		require.Equal(t, [2]int{0, 2}, [2]int{now, inLine})
		now, inLine = asked(throttle.PriorityHigh)
		require.Equal(t, [2]int{2, 2}, [2]int{now, inLine})
		all.Wait()
	})
}

// TestChoice_MaxWaitEnds refuses a caller whose variants are closed while it waits, when MaxWait is over.
func TestChoice_MaxWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newSite(t, throttle.Config{MaxWait: 5 * time.Second}, throttle.PerSecond(1), throttle.PerSecond(1))
		line(t, c, 2, home)
		var all sync.WaitGroup
		all.Go(func() {
			err := send(t, c, get(t, home))
			require.ErrorIs(t, err, throttle.ErrLimited)
			require.Contains(t, err.Error(), `policy "b"`)
			require.Equal(t, 5*time.Second, time.Since(s.begin).Truncate(200*ms))
		})
		synctest.Wait()
		s.pause(t, "a", time.Hour)
		s.pause(t, "b", time.Minute)
		all.Wait()
		s.checkIdle(t, "a", "b")
	})
}

// TestP7_AChoiceThatIsCancelled leaves nothing in any line, and no goroutine.
func TestP7_AChoiceThatIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newSite(t, throttle.Config{}, throttle.PerMinute(1), throttle.PerMinute(2), throttle.Concurrency(1))
		s.then = func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "c" {
				time.Sleep(time.Minute)
			}
			return answer(http.StatusOK, "")(r)
		}
		var slot sync.WaitGroup
		for range 3 {
			require.NoError(t, send(t, c, get(t, home)))
		}
		slot.Go(func() { require.NoError(t, send(t, c, get(t, home))) })
		synctest.Wait()
		before := inBubble()
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("the shop is closed")
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				err := send(t, c, get(t, home).WithContext(ctx))
				require.ErrorIs(t, err, why)
				require.ErrorIs(t, err, context.Canceled)
			})
		}
		time.Sleep(time.Second)
		cancel(why)
		all.Wait()
		synctest.Wait()
		require.LessOrEqual(t, inBubble(), before)
		s.checkIdle(t, "a", "b", "c")
		slot.Wait()
		require.Len(t, s.seen("c"), 1)
	})
}

// TestChoice_Events tells once that a caller waits, by the variant that it expects first, and says to which
// variant an event belongs.
func TestChoice_Events(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var names []string
		s, _ := newSite(t, throttle.Config{MaxWait: throttle.Forever, LongWait: 20 * time.Second}, throttle.PerMinute(1), throttle.PerMinute(1))
		observe := func(ctx context.Context, e throttle.Event) {
			s.observe(ctx, e)
			names = append(names, e.Kind.String()+" "+choice.Of(ctx)+" "+e.Policy)
		}
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: s.store, Base: s, Observe: observe, LongWait: 20 * time.Second, Policies: hostTable(throttle.PerMinute(1), throttle.PerMinute(1))}))
		c := must(choice.New(tr, hosts(2)...))
		line(t, c, 1, home)
		time.Sleep(time.Second)
		line(t, c, 1, home)
		resp := must(c.RoundTrip(get(t, home)))
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "a", resp.Request.URL.Host)
		require.Equal(t, "a", choice.Of(resp.Request.Context()))
		require.Equal(t, []string{"started a ", "started b ", "waiting a a", "still waiting a a", "still waiting a a", "started a a"}, names)
	})
}

// TestChoice_AServerThatIsAway does not keep callers from the variants of another server.
func TestChoice_AServerThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := &awayStore{Store: memstore.New(), policy: "a"}
		s, c := newSite(t, throttle.Config{MaxWait: throttle.Forever, Store: away}, throttle.PerSecond(5), throttle.PerSecond(2))
		for range 5 {
			require.NoError(t, send(t, c, get(t, home)))
		}
		require.Len(t, s.seen("b"), 5)
		require.LessOrEqual(t, time.Since(s.begin), 2*time.Second+200*ms)
		s.checkIdle(t, "b")
	})
}

// An awayStore does not answer for one policy.
type awayStore struct {
	throttle.Store
	policy string
}

func (s *awayStore) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	if b.Charges[0].Budget.Policy == s.policy {
		<-ctx.Done()
		return store.Grant{HeldBy: store.NotHeld}, context.Cause(ctx)
	}
	return s.Store.Book(ctx, b)
}

// TestChoice_NoVariantOfTheRequest leaves out variants that cannot be made.
func TestChoice_NoVariantOfTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newSite(t, throttle.Config{}, throttle.PerSecond(5), throttle.PerSecond(5))
		all := hosts(2)
		all[0].Change = func(*http.Request) error { return errors.New("has no such model") }
		require.NoError(t, send(t, must(choice.New(s.t, all...)), get(t, home)))
		require.Len(t, s.seen("b"), 1)
		all[1].Change = func(*http.Request) error { panic("oh") }
		body := &responseBody{t: t}
		r := must(http.NewRequestWithContext(t.Context(), http.MethodPost, home, body))
		err := send(t, must(choice.New(s.t, all...)), r)
		require.ErrorContains(t, err, `variant "a": has no such model`)
		require.ErrorContains(t, err, `variant "b"`)
		require.EqualValues(t, 1, body.closed.Load())
	})
}

// TestRoundTripFirst_Mistakes: a request without variants, or with too many, is not sent, and its body is closed.
func TestRoundTripFirst_Mistakes(t *testing.T) {
	tr := newTransport(t, answer(http.StatusOK, ""))
	for _, n := range []int{-1, 0, 17} {
		body := &responseBody{t: t}
		r := must(http.NewRequestWithContext(t.Context(), http.MethodPost, home, body))
		_, err := tr.RoundTripFirst(r, n, nil)
		require.ErrorContains(t, err, "use 1 to 16")
		require.EqualValues(t, 1, body.closed.Load())
	}
}

// TestLimiters_AcquireFirst takes the first alternative that has room, and nothing of the others.
func TestLimiters_AcquireFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: []throttle.Policy{
			{Name: "a", Limit: throttle.PerMinute(10), Jitter: -1}, {Name: "b", Limit: throttle.Concurrency(1)}, {Name: "all", Limit: throttle.PerHour(100), Jitter: -1},
		}}))
		both := []throttle.Alternative{
			{Demands: []throttle.Demand{{Policy: "a", Cost: 6}, {Policy: "all"}}},
			{Demands: []throttle.Demand{{Policy: "b"}, {Policy: "all"}}},
		}
		began := time.Now()
		take := func(want int) *throttle.Permit {
			t.Helper()
			p, i, err := l.AcquireFirst(t.Context(), both...)
			require.NoError(t, err)
			require.Equal(t, want, i)
			return p
		}
		used := func(policy string) int {
			st := must(must(l.Limiter(policy)).Status(t.Context(), ""))
			require.Zero(t, st.Waiting)
			return st.Used
		}
		take(0)
		slot := take(1)
		require.Equal(t, []int{6, 1, 2}, []int{used("a"), used("b"), used("all")})
		time.AfterFunc(5*time.Second, slot.Release)
		slot = take(1)
		require.Equal(t, 5*time.Second, time.Since(began))
		require.Equal(t, "b", slot.Held().Policy)
		take(0)
		require.Equal(t, time.Minute, time.Since(began).Truncate(time.Second))
		slot.Release()
		require.Equal(t, []int{6, 0, 4}, []int{used("a"), used("b"), used("all")})
		_, i, err := l.AcquireFirst(throttle.WithMaxWait(t.Context(), -1), both[0], throttle.Alternative{Demands: []throttle.Demand{{Policy: "a", Cost: 11}}})
		require.ErrorIs(t, err, throttle.ErrLimited)
		require.Equal(t, -1, i)
		_, _, err = l.AcquireFirst(t.Context())
		require.Error(t, err)
		_, i, err = l.AcquireFirst(t.Context(), throttle.Alternative{Demands: []throttle.Demand{{Policy: "x"}}},
			throttle.Alternative{}, throttle.Alternative{Demands: []throttle.Demand{{Policy: "a", Cost: throttle.Free}}})
		require.NoError(t, err)
		require.Equal(t, 2, i)
	})
}

// TestChoice_Unmatched: a variant that no policy matches is told, and refused if the program wants that.
func TestChoice_Unmatched(t *testing.T) {
	for mode, sent := range map[throttle.Unmatched]int{throttle.UnmatchedPass: 1, throttle.UnmatchedRefuse: 0} {
		var seen events
		base := newStarts()
		tr := must(throttle.New(throttle.Config{
			Store: memstore.New(), Unmatched: mode, Observe: seen.observe, Base: base,
			Policies: []throttle.Policy{{Name: "api", Match: "api.example.net/", Limit: throttle.PerSecond(5)}},
		}))
		_, err := must(choice.New(tr, hosts(2)...)).RoundTrip(get(t, home))

		require.Equal(t, sent == 0, errors.As(err, new(*throttle.UnmatchedError)), "%v", err)
		require.Len(t, base.seen(), sent)
		require.NotEmpty(t, seen.first(t, throttle.EventUnmatched).Host)
	}
}

// A countedBody counts how often it is closed.
type countedBody struct {
	io.Reader
	closed *atomic.Int32
}

func (b countedBody) Close() error {
	b.closed.Add(1)
	return nil
}

// bodies makes bodies, and counts those that were made and those that were closed.
type bodies struct{ made, closed atomic.Int32 }

func (b *bodies) new(text string) io.ReadCloser {
	b.made.Add(1)
	return countedBody{strings.NewReader(text), &b.closed}
}

// A reader is a base that reads the body of each request and notes where it came.
type reader struct {
	dialer
	early bool // it reads before it has a connection
	got   []string
}

func (d *reader) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	var text []byte
	if d.early {
		text = must(io.ReadAll(r.Body))
	}
	if err := d.connect(r); err != nil {
		return nil, err
	}
	if !d.early {
		text = must(io.ReadAll(r.Body))
	}
	d.got = append(d.got, r.URL.Host+": "+string(text))
	return d.write(r)
}

// TestP13_AChoiceSendsABodyOnce bans the first variant while its connection is dialled. The request goes to the
// second one with its body, if that can be had again; and stays with the first if not.
func TestP13_AChoiceSendsABodyOnce(t *testing.T) {
	for _, c := range []struct {
		name    string
		getBody bool
		early   bool
		own     bool // the second variant has a body of its own
		closed  bool // both variants are closed at first, the second one for longer
		ban     time.Duration
		maxWait time.Duration
		want    string
	}{
		{name: "no ban", want: "a: text"},
		{name: "no ban, other body", own: true, want: "a: text"},
		{name: "both made, other body", own: true, closed: true, want: "a: text"},
		{name: "not read", ban: time.Minute, want: "b: text"},
		{name: "can be read again", getBody: true, early: true, ban: time.Minute, want: "b: text"},
		{name: "other body", getBody: true, own: true, early: true, ban: time.Minute, want: "b: TEXT"},
		{name: "cannot be read again", early: true, ban: time.Minute, want: "a: text"},
		{name: "a ban of seconds", getBody: true, ban: 3 * time.Second, want: "b: text"},
		{name: "no time to wait", getBody: true, ban: time.Minute, maxWait: 1200 * ms, want: "b: text"},
		{name: "short ban", getBody: true, ban: 1200 * ms, want: "a: text"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var all bodies
				d := &reader{dialer: *newDialer(always(time.Second)), early: c.early}
				s, _ := newSite(t, throttle.Config{Base: d, MaxWait: c.maxWait}, throttle.PerSecond(5), throttle.PerSecond(5))
				variants := hosts(2)
				if c.own {
					variants[1].Change = func(r *http.Request) error {
						r.URL.Host, r.Body = "b", all.new("TEXT")
						r.GetBody = func() (io.ReadCloser, error) { return all.new("TEXT"), nil }
						return nil
					}
				}
				r := must(http.NewRequestWithContext(t.Context(), http.MethodPost, home, nil))
				r.Body = all.new("text")
				if c.getBody {
					r.GetBody = func() (io.ReadCloser, error) { return all.new("text"), nil }
				}
				if c.closed {
					s.pause(t, "a", 300*ms)
					s.pause(t, "b", 10*time.Second)
				}
				if c.ban > 0 {
					time.AfterFunc(500*ms, func() { s.pause(t, "a", c.ban-500*ms) })
				}
				require.NoError(t, send(t, must(choice.New(s.t, variants...)), r))
				require.Equal(t, []string{c.want}, d.got)
				require.Equal(t, all.made.Load(), all.closed.Load())
				s.checkIdle(t, "a", "b")
				if c.want[0] == 'b' {
					require.Equal(t, 2*time.Second, time.Since(s.begin))
				}
			})
		})
	}
}

// A rewoundBody is the one body of a request whose GetBody rewinds it, as that of some SDKs does.
type rewoundBody struct{ *strings.Reader }

func (b *rewoundBody) Read(p []byte) (int, error) {
	runtime.Gosched() // another variant would come in between
	return b.Reader.Read(p[:1])
}

func (b *rewoundBody) Close() error { return nil }

// readersOf is the context key of how many variants read the body of a request.
type readersOf struct{}

// TestP13_AChoiceReadsABodyOnceAtATime replaces the policies while requests wait in four variants, whose costs are
// the lengths of their bodies. Each body is read by one variant at a time, from its beginning to its end.
func TestP13_AChoiceReadsABodyOnceAtATime(t *testing.T) {
	const text = "sixteen bytes..."
	synctest.Test(t, func(t *testing.T) {
		var priced, half, together atomic.Int32
		limits := slices.Repeat([]throttle.Limit{throttle.PerMinute(1)}, 4)
		policies := hostTable(limits...)
		for i := range policies {
			policies[i].Cost = func(r *http.Request) int {
				priced.Add(1)
				readers := r.Context().Value(readersOf{}).(*atomic.Int32)
				if readers.Add(1) > 1 {
					together.Add(1)
				}
				defer readers.Add(-1)
				if len(must(io.ReadAll(must(r.GetBody())))) != len(text) {
					half.Add(1)
				}
				return 1
			}
		}
		s, c := newSite(t, throttle.Config{}, limits...)
		require.NoError(t, s.t.SetPolicies(policies))
		ctx, stop := context.WithCancel(t.Context())
		var requests sync.WaitGroup
		for range 44 {
			body := &rewoundBody{strings.NewReader(text)}
			r := must(http.NewRequestWithContext(context.WithValue(ctx, readersOf{}, new(atomic.Int32)), http.MethodPost, home, body))
			r.GetBody = func() (io.ReadCloser, error) {
				_, err := body.Seek(0, io.SeekStart)
				return body, err
			}
			requests.Go(func() {
				if resp, err := c.RoundTrip(r); err == nil {
					resp.Body.Close()
				}
			})
		}
		for range 20 {
			time.Sleep(100 * ms)
			synctest.Wait()
			require.NoError(t, s.t.SetPolicies(policies))
		}
		synctest.Wait()
		require.Greater(t, priced.Load(), int32(40*4*20), "all variants were priced again each time")
		stop()
		requests.Wait()
		require.Zero(t, together.Load(), "variants that read a body while another variant does")
		require.Zero(t, half.Load(), "costs of half a body")
	})
}
