package slogthrottle_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/slogthrottle"
	"github.com/fleetthrottle/throttle/adapters/telemetry"
	"github.com/fleetthrottle/throttle/choice"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// A journal has the lines that a logger wrote.
type journal struct {
	mu    sync.Mutex
	lines []string
}

// Write implements [io.Writer].
func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}

// take returns the lines since the last call.
func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

// newLogger returns a logger of events from a level on, and its lines without their time.
func newLogger(level slog.Level, o slogthrottle.Options) (*slogthrottle.Logger, *journal) {
	j := new(journal)
	return slogthrottle.New(slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: level, ReplaceAttr: timeless})), o), j
}

func timeless(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// A base answers without a network: 200, or 429 to the path /refused.
type base struct{}

func (base) RoundTrip(r *http.Request) (*http.Response, error) {
	resp := &http.Response{StatusCode: http.StatusOK, Header: make(http.Header), Body: http.NoBody, Request: r}
	if r.URL.Path == "/refused" {
		resp.StatusCode = http.StatusTooManyRequests
		resp.Header.Set("Retry-After", "30")
	}
	return resp, nil
}

// get sends a request.
func get(t *testing.T, ctx context.Context, through http.RoundTripper, url string) error {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := through.RoundTrip(r)
	if err == nil {
		require.NoError(t, resp.Body.Close())
	}
	return err
}

// TestLines: what a line says of each kind of event, and that it says nothing that has no value.
func TestLines(t *testing.T) {
	limit := throttle.PerSecond(40)
	secret := errors.New("tok-SECRET")
	left, cancel := context.WithCancelCause(t.Context())
	cancel(secret)
	for _, c := range []struct {
		event throttle.Event
		want  string
	}{
		{throttle.Event{Kind: throttle.EventStarted}, `level=DEBUG msg="throttle: started"`},
		{throttle.Event{Kind: throttle.EventWaiting, Policy: "p", Budget: "p/1", Limit: limit, Duration: time.Second, Callers: 3},
			`level=DEBUG msg="throttle: waiting" throttle.policy=p throttle.budget=p/1 throttle.limit=40/s throttle.duration=1s throttle.callers=3`},
		{throttle.Event{Kind: throttle.EventStillWaiting, Policy: "p", Duration: 10 * time.Second, Left: time.Minute},
			`level=INFO msg="throttle: still waiting" throttle.policy=p throttle.duration=10s throttle.left=1m0s`},
		{throttle.Event{Kind: throttle.EventClosed, Policy: "p", Paused: true, Duration: time.Hour, Note: store.PauseNote{By: "anna", Reason: "the shop moves"}},
			`level=WARN msg="throttle: closed" throttle.policy=p throttle.paused=true throttle.note.by=anna throttle.note.reason="the shop moves" throttle.duration=1h0m0s`},
		{throttle.Event{Kind: throttle.EventPenalized, Policy: "p", Duration: time.Minute}, `level=WARN msg="throttle: penalized" throttle.policy=p throttle.duration=1m0s`},
		{throttle.Event{Kind: throttle.EventOpened, Policy: "p"}, `level=INFO msg="throttle: opened" throttle.policy=p`},
		{throttle.Event{Kind: throttle.EventShadowed, Policy: "p"}, `level=INFO msg="throttle: shadowed" throttle.policy=p`},
		{throttle.Event{Kind: throttle.EventStale, Policy: "p"}, `level=INFO msg="throttle: stale" throttle.policy=p`},
		{throttle.Event{Kind: throttle.EventLate, Policy: "p"}, `level=WARN msg="throttle: late" throttle.policy=p`},
		{throttle.Event{Kind: throttle.EventLowered, Policy: "p", From: 40, To: 0}, `level=WARN msg="throttle: lowered" throttle.policy=p throttle.from=40 throttle.to=0`},
		{throttle.Event{Kind: throttle.EventIllegible, Policy: "p", Err: errors.New("cannot read answers in br")},
			`level=WARN msg="throttle: illegible" throttle.policy=p error.type=_OTHER error.message="cannot read answers in br"`},
		{throttle.Event{Kind: throttle.EventRefused, Policy: "p", Err: &throttle.LimitError{Policy: "p", Limit: limit}},
			`level=WARN msg="throttle: refused" throttle.policy=p error.type=limit error.message="throttle: policy \"p\" (40/s): `},
		{throttle.Event{Kind: throttle.EventStoreFailed, Err: &throttle.StoreError{Err: os.ErrDeadlineExceeded}},
			`level=ERROR msg="throttle: store failed" error.type=away error.message="throttle: the store could not be asked: i/o timeout"`},
		{throttle.Event{Kind: throttle.EventFunctionFailed, Policy: "p", Err: &throttle.ConfigError{Policy: "p", Field: "Key", Err: errors.New("panicked")}},
			`level=ERROR msg="throttle: function failed" throttle.policy=p error.type=config error.message="throttle: policy \"p\": Key: panicked"`},
		{throttle.Event{Kind: throttle.EventUnmatched, Host: "api.example.org"}, `level=WARN msg="throttle: unmatched" throttle.host=api.example.org`},
		{throttle.Event{Kind: throttle.EventGaveUp, Policy: "p", Err: fmt.Errorf("%w: %w", context.Cause(left), left.Err())},
			`level=WARN msg="throttle: gave up" throttle.policy=p error.type=context error.message="context canceled"`},
		{throttle.Event{Kind: 200}, `level=DEBUG msg="throttle: unknown"`},
	} {
		l, j := newLogger(slog.LevelDebug, slogthrottle.Options{})
		l.Observe(t.Context(), c.event)
		lines := j.take()
		require.Len(t, lines, 1, c.want)
		require.True(t, strings.HasPrefix(lines[0], c.want), "%s\n%s", c.want, lines[0])
		require.NotContains(t, lines[0], "SECRET")
	}
}

// TestLevels: each kind has a level, a program can have others, and what its logger does not take is neither logged nor
// counted.
func TestLevels(t *testing.T) {
	for k := range telemetry.Kinds() {
		kind := throttle.EventKind(k)
		l, j := newLogger(slogthrottle.Level(kind)+1, slogthrottle.Options{})
		l.Observe(t.Context(), throttle.Event{Kind: kind})
		require.Empty(t, j.take(), kind)
		l, j = newLogger(slogthrottle.Level(kind), slogthrottle.Options{})
		l.Observe(t.Context(), throttle.Event{Kind: kind})
		require.Len(t, j.take(), 1, kind)
	}

	l, j := newLogger(slog.LevelError, slogthrottle.Options{Level: func(k throttle.EventKind) slog.Level {
		if k == throttle.EventPenalized {
			return slog.LevelError
		}
		return slogthrottle.Level(k)
	}})
	l.Observe(t.Context(), throttle.Event{Kind: throttle.EventPenalized})
	l.Observe(t.Context(), throttle.Event{Kind: throttle.EventClosed})
	require.Equal(t, []string{`level=ERROR msg="throttle: penalized"`}, j.take())

	unheard := throttle.Event{Kind: throttle.EventStarted, Policy: "p", Budget: "p/1"}
	require.Zero(t, testing.AllocsPerRun(100, func() { l.Observe(t.Context(), unheard) }))
}

// TestDefaultLogger: without a logger the lines go where the program's own go, also if it says that later.
func TestDefaultLogger(t *testing.T) {
	l, j, before := slogthrottle.New(nil, slogthrottle.Options{}), new(journal), slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(slog.NewTextHandler(j, nil)))
	l.Observe(t.Context(), throttle.Event{Kind: throttle.EventLate})
	require.Len(t, j.take(), 1)
}

// TestTheZeroLogger: a Logger that New has not made logs what that of New(nil, Options{}) logs.
func TestTheZeroLogger(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	j := new(journal)
	slog.SetDefault(slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{ReplaceAttr: timeless})))
	var zero slogthrottle.Logger
	for range slogthrottle.DefaultPerMinute + 2 {
		zero.Observe(t.Context(), throttle.Event{Kind: throttle.EventRefused, Policy: "a"})
		zero.Observe(t.Context(), throttle.Event{Kind: throttle.EventUnmatched, Host: "h.example.com"})
		zero.Observe(t.Context(), throttle.Event{Kind: throttle.EventStarted, Policy: "a"})
	}
	require.Len(t, j.take(), slogthrottle.DefaultPerMinute+1)
}

// TestRepeatedLines: of a kind and a policy a few lines are logged in a minute, and the next says how many were not; other
// kinds and policies have lines of their own, and lines for debugging are all there.
func TestRepeatedLines(t *testing.T) {
	for _, c := range []struct{ perMinute, first int }{{0, slogthrottle.DefaultPerMinute}, {1, 1}, {20, 20}, {-1, 100}} {
		synctest.Test(t, func(t *testing.T) {
			l, j := newLogger(slog.LevelDebug, slogthrottle.Options{PerMinute: c.perMinute})
			tell := func(k throttle.EventKind, policy string, n int) {
				for range n {
					l.Observe(t.Context(), throttle.Event{Kind: k, Policy: policy})
				}
			}
			tell(throttle.EventLate, "p", 100)
			require.Len(t, j.take(), c.first)
			tell(throttle.EventLate, "q", 1)
			tell(throttle.EventRefused, "p", 1)
			require.Len(t, j.take(), 2)
			tell(throttle.EventWaiting, "p", 100)
			require.Len(t, j.take(), 100)

			time.Sleep(time.Minute - 1)
			tell(throttle.EventLate, "p", 1)
			require.Len(t, j.take(), c.first/100)
			time.Sleep(time.Nanosecond)
			tell(throttle.EventLate, "p", 2)
			want := `level=WARN msg="throttle: late" throttle.omitted=` + fmt.Sprint(101-c.first) + " throttle.policy=p"
			if c.first == 100 {
				want = `level=WARN msg="throttle: late" throttle.policy=p`
			}
			lines := j.take()
			require.Equal(t, want, lines[0])
			require.Len(t, lines, min(2, c.first))
			require.NotContains(t, strings.Join(lines[1:], ""), "omitted")
		})
	}
}

// TestRepeatedLines_OfTheStore count together: it is one store, however many policies wait for it.
func TestRepeatedLines_OfTheStore(t *testing.T) {
	l, j := newLogger(slog.LevelInfo, slogthrottle.Options{})
	for i := range 100 {
		l.Observe(t.Context(), throttle.Event{Kind: throttle.EventStoreFailed, Policy: fmt.Sprint(i), Err: &throttle.StoreError{Err: os.ErrDeadlineExceeded}})
	}
	require.Len(t, j.take(), slogthrottle.DefaultPerMinute)
}

// TestNamesWithoutNumber: a caller that asks for ever new policies gets neither memory nor lines without end, and those of
// the table have their lines.
func TestNamesWithoutNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, j := newLogger(slog.LevelInfo, slogthrottle.Options{PerMinute: 1})
		made := func(n int) {
			for i := range n {
				l.Observe(t.Context(), throttle.Event{Kind: throttle.EventRefused, Policy: fmt.Sprint("made-up ", i, strings.Repeat("x", 1000))})
			}
		}
		l.Observe(t.Context(), throttle.Event{Kind: throttle.EventLate, Policy: "p"})
		made(1500)
		lines := j.take()
		require.Equal(t, 1024+1, len(lines), "one line for the kind")
		require.Less(t, len(lines[1]), 400)
		l.Observe(t.Context(), throttle.Event{Kind: throttle.EventPenalized, Policy: "p"})
		require.Len(t, j.take(), 1)

		time.Sleep(time.Minute)
		made(1)
		require.Len(t, j.take(), 1)
		made(1200)
		require.Equal(t, 1024, len(j.take()), "counts of the last minute made room")
	})
}

// TestUnmatched: a host without a policy is told once, by whichever way its requests go, and in whichever order.
func TestUnmatched(t *testing.T) {
	policies := []throttle.Policy{{Name: "p", Match: "api.example.com/", Limit: throttle.PerSecond(1000)}}
	for mode, failed := range map[throttle.Unmatched]bool{throttle.UnmatchedPass: false, throttle.UnmatchedRefuse: true} {
		l, j := newLogger(slog.LevelDebug, slogthrottle.Options{PerMinute: 1})
		config := throttle.Config{Store: memstore.New(), Policies: policies, Unmatched: mode, Observe: l.Observe}
		limiters, err := throttle.NewLimiters(config)
		require.NoError(t, err)
		config.Base = base{}
		transport := throttle.Must(throttle.New(config))
		choice, err := choice.New(transport, choice.Variant{Name: "as it is"}, choice.Variant{Name: "west", Change: func(r *http.Request) error {
			r.URL.Host = "west.example.com"
			return nil
		}})
		require.NoError(t, err)
		require.NoError(t, get(t, t.Context(), transport, "https://api.example.com/"))
		require.Len(t, j.take(), 1, "it started")

		for range 3 {
			for _, through := range []http.RoundTripper{transport, choice} {
				for _, url := range []string{"https://one.example.com/a?token=tok-SECRET", "https://tok-SECRET@two.example.com/b"} {
					require.Equal(t, failed, get(t, t.Context(), through, url) != nil)
				}
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://three.example.com/?token=tok-SECRET", nil)
			require.NoError(t, err)
			_, err = limiters.AcquireRequest(r)
			require.Equal(t, failed, err != nil)
		}
		told := make(map[string]int)
		for _, line := range j.take() {
			require.NotContains(t, line, "SECRET")
			require.Equal(t, failed, strings.Contains(line, "error.type=unmatched"), line)
			_, host, ok := strings.Cut(line, "throttle.host=")
			require.True(t, ok, line)
			told[strings.Fields(host)[0]]++
		}
		for host, n := range told {
			require.Equal(t, 1, n, host)
		}
		require.Contains(t, told, "one.example.com")
		require.Contains(t, told, "two.example.com")
		require.Contains(t, told, "three.example.com")
	}
}

// TestUnmatchedHostsWithoutNumber: hosts that a caller makes up take a bounded memory, and a line says that no more are
// told.
func TestUnmatchedHostsWithoutNumber(t *testing.T) {
	l, j := newLogger(slog.LevelInfo, slogthrottle.Options{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 1000 {
				l.Observe(t.Context(), throttle.Event{Kind: throttle.EventUnmatched, Host: fmt.Sprint(i, ".example.com", strings.Repeat(".long", 100_000/(i+1)))})
			}
		})
	}
	all.Wait()
	lines := j.take()
	require.Len(t, lines, slogthrottle.MaxHosts+1)
	full := 0
	for _, line := range lines {
		require.Less(t, len(line), 400)
		if strings.Contains(line, `msg="throttle: unmatched: too many hosts to tell of any more" throttle.hosts=128`) {
			full++
		}
	}
	require.Equal(t, 1, full)
}

// TestLongNamesEndAtACharacter: a name that is cut off ends with a whole character, or handlers would log a broken one.
func TestLongNamesEndAtACharacter(t *testing.T) {
	for _, head := range []string{"", "a", "ab"} {
		l, j := newLogger(slog.LevelInfo, slogthrottle.Options{})
		l.Observe(t.Context(), throttle.Event{Kind: throttle.EventUnmatched, Host: head + strings.Repeat("限", 100)})
		lines := j.take()
		require.Len(t, lines, 1)
		require.Contains(t, lines[0], head+strings.Repeat("限", 84))
		require.NotContains(t, lines[0], "\\x")
		require.NotContains(t, lines[0], "\ufffd")
	}
}

// TestManyGoroutines: of many callers at once exactly the allowed lines are logged, and none of the others is forgotten.
func TestManyGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, j := newLogger(slog.LevelInfo, slogthrottle.Options{})
		transport := throttle.Must(throttle.New(throttle.Config{Store: memstore.New(), Base: base{}, Observe: l.Observe,
			Policies: []throttle.Policy{{Name: "p", Match: "/", Limit: throttle.PerHour(1)}}}))
		var all sync.WaitGroup
		ctx := throttle.WithMaxWait(t.Context(), throttle.NoWait)
		for range 200 {
			all.Go(func() { _ = get(t, ctx, transport, "https://api.example.com/") })
		}
		all.Wait()
		require.Len(t, j.take(), slogthrottle.DefaultPerMinute)
		time.Sleep(time.Minute)
		require.ErrorIs(t, get(t, ctx, transport, "https://api.example.com/"), throttle.ErrLimited)
		require.Contains(t, j.take()[0], fmt.Sprint("throttle.omitted=", 199-slogthrottle.DefaultPerMinute))
	})
}

// TestP14_NothingSecretIsLogged: of requests with secrets everywhere that are refused, held, cancelled and penalized no
// line has one.
func TestP14_NothingSecretIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, j := newLogger(slog.LevelDebug, slogthrottle.Options{PerMinute: -1})
		transport := throttle.Must(throttle.New(throttle.Config{Store: memstore.New(), Base: base{}, Observe: l.Observe, MaxWait: throttle.Forever,
			Policies: []throttle.Policy{
				{Name: "p", Match: "api.example.com/", Limit: throttle.SlidingWindow(2, time.Minute), Key: throttle.Query("token")},
				{Name: "q", Match: "api.example.com/refused", Limit: throttle.PerSecond(1), Key: throttle.Header("X-None"), Cost: func(*http.Request) int { panic("tok-SECRET") }, Shadow: true},
			}}))
		url := "https://api.example.com/refused?token=tok-SECRET"
		require.NoError(t, get(t, t.Context(), transport, url))
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(20*time.Second, func() { cancel(errors.New("tok-SECRET left")) })
		require.Error(t, get(t, ctx, transport, url))
		require.ErrorIs(t, get(t, throttle.WithMaxWait(t.Context(), throttle.NoWait), transport, url), throttle.ErrLimited)
		require.NoError(t, get(t, t.Context(), transport, url))
		require.NoError(t, get(t, t.Context(), transport, "https://other.example.com/?token=tok-SECRET"))

		all := strings.Join(j.take(), "\n")
		for _, kind := range []string{"started", "penalized", "waiting", "still waiting", "gave up", "refused", "opened", "unmatched", "function failed"} {
			require.Contains(t, all, `"throttle: `+kind+`"`)
		}
		require.NotContains(t, all, "SECRET")
		require.NotContains(t, all, "https:")
		require.Contains(t, all, `error.message="context canceled"`)
	})
}

// TestTheDeadline: a line says that a deadline passed, and not what the program said of it.
func TestTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, j := newLogger(slog.LevelInfo, slogthrottle.Options{})
		limiters, err := throttle.NewLimiters(throttle.Config{Store: memstore.New(), Observe: l.Observe, Policies: []throttle.Policy{{Name: "p", Limit: throttle.Concurrency(1)}}})
		require.NoError(t, err)
		_, err = limiters.Acquire(t.Context(), throttle.Demand{Policy: "p"})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("tok-SECRET"))
		defer cancel()
		_, err = limiters.Acquire(ctx, throttle.Demand{Policy: "p"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		lines := strings.Join(j.take(), "\n")
		require.Contains(t, lines, `error.type=context error.message="context deadline exceeded"`)
		require.NotContains(t, lines, "SECRET")
	})
}

// Example logs what happens to the requests of a program. A minute later the same lines would be logged again.
func Example() {
	handler := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: timeless})
	logs := slogthrottle.New(slog.New(handler), slogthrottle.Options{})
	transport, err := throttle.New(throttle.Config{
		Store: memstore.New(), Observe: logs.Observe,
		Policies: []throttle.Policy{{Name: "mails", Match: "api.example.com/", Limit: throttle.PerHour(500)}},
		Base:     base{}, // leave it out to use http.DefaultTransport
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	client := &http.Client{Transport: transport}
	for _, url := range []string{"https://api.example.com/refused", "https://api.exmaple.com/mails"} {
		resp, err := client.Get(url)
		if err != nil {
			fmt.Println(err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	// Output:
	// level=WARN msg="throttle: penalized" throttle.policy=mails throttle.budget=mails/afe800e91f7e throttle.limit=500/h throttle.duration=30s
	// level=WARN msg="throttle: unmatched" throttle.host=api.exmaple.com
}
