package sdktest

import (
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// most is the longest way of a request to the upstream, and of an answer back. The
// default Jitter of a policy leaves so much for it, also where a connection came late.
const most = 25 * time.Millisecond

// An upstream plays a platform and judges its callers. A request is written when
// the server has it in hand, because the wire takes no time. It arrives up to 25 ms
// later: then it is counted, and answered or refused. The answer takes up to 25 ms.
//
// A caller breaks the rules if
//
//   - a window has more arrivals than its limit, refused ones included unless the
//     limit says otherwise (over);
//   - a request was written after the first answer that tells of a closing had
//     been handed over, and arrives before its end (early). What was written before
//     that was on its way, and is refused like the first.
//
// A client that keeps both is refused only on purpose.
type upstream struct {
	platform
	t      *testing.T
	wire   *wire
	server *http.Server
	bases  []*http.Transport

	mu       sync.Mutex
	random   *rand.Rand
	every    int // arrivals between two refusals on purpose; 0: none
	until    int // arrivals until the next one
	budgets  map[string]*budget
	closed   map[string]*closing // by scope
	times    map[string]int      // how often each form of refusal was begun
	effects  map[string]int      // what was done, and how often
	arrivals int
	refused  int
	over     []string
	early    []string
}

// A closing is a refusal on purpose.
type closing struct {
	refusal
	end  time.Time
	told time.Time // when the first answer that tells of it was handed over
}

// newUpstream starts an upstream that plays a platform.
func newUpstream(t *testing.T, p platform) *upstream {
	u := &upstream{
		platform: p, t: t, wire: newWire(), random: rand.New(rand.NewPCG(1, 2)),
		budgets: make(map[string]*budget), closed: make(map[string]*closing),
		times: make(map[string]int), effects: make(map[string]int),
	}
	u.server = &http.Server{Handler: u}
	go func() { _ = u.server.Serve(u.wire.listener(u.http2)) }()
	return u
}

// base is a transport that leads to the upstream.
func (u *upstream) base() http.RoundTripper {
	b := u.wire.base()
	u.bases = append(u.bases, b)
	return b
}

// refuse makes the upstream refuse one in every arrivals on purpose, in each of its
// forms in turn.
func (u *upstream) refuse(every int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.every, u.until = every, every
}

// ServeHTTP implements [http.Handler].
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	written := time.Now()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller has gone
	}
	if u.http2 != (r.ProtoMajor == 2) {
		u.t.Errorf("a request of %s", r.Proto)
	}
	time.Sleep(u.way())
	c := &call{r, body, u}
	date := time.Now()
	answer, cl := u.arrive(c, written)
	time.Sleep(u.way())
	u.handOver(cl)
	w.Header().Set("Date", date.UTC().Format(http.TimeFormat))
	send(w, r, answer)
}

func (u *upstream) way() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return time.Duration(u.random.Int64N(int64(most)))
}

// arrive counts a call and decides about it.
func (u *upstream) arrive(c *call, written time.Time) (reply, *closing) {
	u.mu.Lock()
	defer u.mu.Unlock()
	cl := u.closing(c, written)
	u.arrivals++
	for _, l := range u.limits(c) {
		if l.inside && cl != nil {
			continue
		}
		b := u.budget(l.budget)
		if sum := b.add(time.Now(), l); sum > l.n {
			u.over = append(u.over, fmt.Sprintf("%s: %d of %d in %v", l.budget, sum, l.n, b.last.Sub(b.recent[0].at)))
		}
	}
	if cl == nil {
		return u.answer(c), nil
	}
	u.refused++
	return cl.reply(c, time.Until(cl.end)), cl
}

// wordAge is how old a word of the store may be on which a start is used: callers
// with a start that is no further away sleep without a watch. See docs/internals/bans.md.
const wordAge = 5 * time.Millisecond

// closing returns the closing that refuses a call, or nil. It notes a call that was written after the closing was told.
func (u *upstream) closing(c *call, written time.Time) *closing {
	now := time.Now()
	for _, scope := range u.scopes(c) {
		cl := u.closed[scope]
		if cl == nil || !now.Before(cl.end) {
			continue
		}
		if !cl.told.IsZero() && written.After(cl.told.Add(wordAge)) {
			u.early = append(u.early, fmt.Sprintf("%s (%s): %v before the end, %v after it was told",
				scope, cl.name, cl.end.Sub(now), written.Sub(cl.told)))
		}
		return cl
	}
	return u.onPurpose(c, now)
}

// onPurpose begins a closing if it is time for one, in the form that was used least. If
// that form does not fit this call, a later call gets it.
func (u *upstream) onPurpose(c *call, now time.Time) *closing {
	if u.every == 0 || len(u.refusals) == 0 {
		return nil
	}
	u.until--
	if u.until > 0 {
		return nil
	}
	form := slices.MinFunc(u.refusals, func(a, b refusal) int { return u.times[a.name] - u.times[b.name] })
	scope := form.closes(c)
	if scope == "" {
		return nil
	}
	u.until = u.every
	u.times[form.name]++
	cl := &closing{refusal: form, end: now.Add(form.lasts)}
	u.closed[scope] = cl
	return cl
}

// handOver notes when a closing could be known.
func (u *upstream) handOver(cl *closing) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if cl != nil && cl.told.IsZero() {
		cl.told = time.Now()
	}
}

// do notes that the upstream did something, which a call asked for by a name.
func (c *call) do(name string) { c.u.effects[name]++ }

// send writes an answer, compressed if the caller understands that.
func send(w http.ResponseWriter, r *http.Request, a reply) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") || a.body == "" {
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, a.body)
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(a.status)
	z := zippers.Get().(*gzip.Writer)
	defer zippers.Put(z)
	z.Reset(w)
	_, _ = io.WriteString(z, a.body)
	_ = z.Close()
}

// zippers are used again: a new one takes a megabyte.
var zippers = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// stop ends all connections.
func (u *upstream) stop() {
	for _, b := range u.bases {
		b.CloseIdleConnections()
	}
	_ = u.server.Close()
	time.Sleep(2 * time.Minute) // what idles, or was given up, ends
}

// TestUpstreamNotices: a program that keeps to nothing is found out.
func TestUpstreamNotices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, shopPlatform())
		defer u.stop()
		u.refuse(50)
		client := &http.Client{Transport: u.base()}
		u.calls(0, 200, 24, func(int, int) error {
			resp, err := client.Post("https://api.example.com/orders", "application/json", strings.NewReader(`{"id":"1"}`))
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, resp.Body)
			return err
		})
		require.NotEmpty(t, u.over)
		require.NotEmpty(t, u.early)
		require.NotEqual(t, 1, u.effects["1"])
	})
}

// A platform is what a test says of its upstream.
type platform struct {
	http2 bool // it speaks HTTP/2

	// limits are what a call counts for, whatever becomes of it.
	limits func(*call) []limit

	// scopes are what a call belongs to, and what a refusal may close.
	scopes func(*call) []string

	// refusals are the forms in which the platform refuses on purpose.
	refusals []refusal

	// answer does what a call asks for.
	answer func(*call) reply
}

// A call is one request as it has arrived.
type call struct {
	*http.Request
	body []byte
	u    *upstream
}

// A limit is what the upstream allows, and what a call costs of it.
type limit struct {
	budget string
	n      int
	per    time.Duration
	kind   kind
	cost   int
	inside bool // counts only what nothing else has refused
}

// A kind says which windows a limit is for.
type kind int

const (
	sliding kind = iota // any interval
	clock               // the windows of the clock
	opened              // windows that begin with the first arrival after the last one
)

// A refusal is a form of refusing, and what that closes for how long.
type refusal struct {
	name string

	// closes is the scope that is closed from now on; "" if a call of this kind is
	// not refused in this form.
	closes func(*call) string
	lasts  time.Duration

	// reply is the answer to a call while the scope is closed, for left.
	reply func(c *call, left time.Duration) reply
}

// A reply is an answer.
type reply struct {
	status int
	header map[string]string
	body   string
}

func ok(body string) reply { return reply{status: http.StatusOK, body: body} }

// always is for a refusal that closes the same scope for all calls.
func always(scope string) func(*call) string {
	return func(*call) string { return scope }
}

// seconds is a time in whole seconds, rounded up, as Retry-After has it.
func seconds(d time.Duration) string {
	return strconv.Itoa(int(math.Ceil(d.Seconds())))
}

// programs is how many programs share a store in each test. Each has a client of
// its own.
const programs = 3

// play runs programs against a platform, in virtual time, and judges them.
func play(t *testing.T, p platform, run func(*testing.T, *upstream)) {
	t.Helper()
	t.Parallel()
	playAlone(t, p, run)
}

// playAlone is play for an SDK with one client for a process, while no other test runs.
func playAlone(t *testing.T, p platform, run func(*testing.T, *upstream)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, p)
		defer u.stop()
		begin := time.Now()
		run(t, u)
		u.judge(time.Since(begin))
	})
}

// clients makes one client for each program.
func clients[T any](make func() T) []T {
	made := []T{}
	for range programs {
		made = append(made, make())
	}
	return made
}

// calls makes n calls, numbered from first, by so many workers at a time. All must
// succeed.
func (u *upstream) calls(first, n, workers int, call func(worker, i int) error) {
	u.t.Helper()
	var wg sync.WaitGroup
	var next atomic.Int64
	for w := range workers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := call(w, first+i); err != nil {
					u.t.Errorf("call %d: %v", first+i, err)
				}
			}
		})
	}
	wg.Wait()
}

// requireUsed is for the stretch without refusals: it took hardly longer than the
// limits ask for, from the first to the last arrival of a budget.
func (u *upstream) requireUsed(name string, atLeast time.Duration) {
	u.t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	b := u.budget(name)
	took := b.last.Sub(b.first)
	used := atLeast.Seconds() / took.Seconds()
	u.t.Logf("%s: %d in %v, %.1f %% used", name, b.total, took.Round(time.Millisecond), 100*used)
	require.GreaterOrEqual(u.t, used, 0.9, name)
	require.Zero(u.t, u.refused)
}

// requireOnce is for what must be done once, neither lost nor doubled.
func (u *upstream) requireOnce(name string) {
	u.t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	require.Equal(u.t, 1, u.effects[name], name)
}

// judge requires that the rules were kept and every form of refusal was met.
func (u *upstream) judge(took time.Duration) {
	u.t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.t.Logf("%d arrivals in %v of virtual time, %d refused: %v", u.arrivals, took.Round(time.Second), u.refused, u.times)
	require.Empty(u.t, u.over, "windows above a limit")
	require.Empty(u.t, u.early, "sent while closed")
	for _, r := range u.refusals {
		require.NotZero(u.t, u.times[r.name], "%s was not tried", r.name)
	}
}
