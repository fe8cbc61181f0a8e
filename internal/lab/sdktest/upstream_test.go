package sdktest

import (
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
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

// refuse makes the upstream refuse on purpose: each so many arrivals, in each of its
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

// closing is what refuses a call.
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

// onPurpose is a closing if it is time for one, in the form that was used least. If
// that is none for this call, the next one gets it.
func (u *upstream) onPurpose(c *call, now time.Time) *closing {
	if u.every == 0 || len(u.refusals) == 0 {
		return nil
	}
	if u.until--; u.until > 0 {
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
