package throttle_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"io"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// A sceneStore notes what is asked of a memstore, and does what its scene says.
type sceneStore struct {
	throttle.Store
	stage *stage

	mu      sync.Mutex
	slow    time.Duration   // Book takes so long before the store decides
	ages    []time.Duration // of the next answers; the last is that of all others
	late    time.Duration   // how long the answer to one booking is on its way
	lateOn  int             // the number of that
	fails   map[string]string
	takes   map[string]time.Duration
	noNews  bool
	note    throttle.PauseNote
	books   int
	foreign bool // another program has booked starts
	owners  map[any]*caller
	charges map[[16]byte]throttle.Charge
	watches map[*sceneWatch]bool
	asks    atomic.Int32 // how many calls have no answer yet
}

func newSceneStore(s *stage) *sceneStore {
	return &sceneStore{Store: memstore.New(), stage: s, fails: map[string]string{}, takes: map[string]time.Duration{},
		owners: map[any]*caller{}, charges: map[[16]byte]throttle.Charge{}, watches: map[*sceneWatch]bool{}}
}

// storeOptions are what a store can be.
var storeOptions = map[string]func(*[]func(*sceneStore), *words){
	"slow": func(all *[]func(*sceneStore), w *words) {
		d := w.duration()
		*all = append(*all, func(s *sceneStore) { s.slow = d })
	},
	"ages": func(all *[]func(*sceneStore), w *words) {
		var ages []time.Duration
		for w.more() {
			ages = append(ages, w.duration())
		}
		*all = append(*all, func(s *sceneStore) { s.ages = ages })
	},
	"late": func(all *[]func(*sceneStore), w *words) { // the number of the booking, and by how much
		n, d := w.number(), w.duration()
		*all = append(*all, func(s *sceneStore) { s.late, s.lateOn = d, n })
	},
	"away": func(all *[]func(*sceneStore), w *words) { // from when until when, and so on
		var away [][2]time.Duration
		for w.more() {
			away = append(away, [2]time.Duration{w.duration(), w.duration()})
		}
		*all = append(*all, func(s *sceneStore) { s.Store = absent(away...) })
	},
	"news": func(all *[]func(*sceneStore), w *words) {
		off := w.next() == "off"
		*all = append(*all, func(s *sceneStore) { s.noNews = off })
	},
	"note": func(all *[]func(*sceneStore), w *words) {
		note := throttle.PauseNote{By: w.next(), Reason: w.rest()}
		*all = append(*all, func(s *sceneStore) { s.note = note })
	},
}

func init() {
	for _, call := range []string{"book", "confirm", "settle", "pause", "refuse", "reconcile"} {
		// "confirm fails", "confirm takes 1s", "confirm no takes 30ms", "refuse hangs", "settle works"
		storeOptions[call] = func(all *[]func(*sceneStore), w *words) {
			var fails string
			var takes time.Duration
			for w.more() {
				switch word := w.next(); word {
				case "fails", "hangs", "no", "yes":
					fails = word
				case "works":
				case "takes":
					takes = w.duration()
				default:
					w.fail("a store cannot %q", word)
				}
			}
			*all = append(*all, func(s *sceneStore) { s.fails[call], s.takes[call] = fails, takes })
		}
	}
}

func parseStore(text string, w *words) func(*sceneStore) {
	var all []func(*sceneStore)
	parseOptions("store", storeOptions, &all, text, w)
	return func(s *sceneStore) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, set := range all {
			set(s)
		}
	}
}

// asked notes a call, and does what the scene says about such calls before the store
// decides. It returns a function that notes what the store said.
func (s *sceneStore) asked(ctx context.Context, call string) (fails string, err error) {
	s.asks.Add(1)
	defer s.asks.Add(-1)
	s.mu.Lock()
	fails, takes := s.fails[call], s.takes[call]
	s.stage.mu.Lock()
	s.stage.totals[call]++
	s.stage.mu.Unlock()
	s.mu.Unlock()
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return fails, context.Cause(ctx)
		}
	}
	switch fails {
	case "fails":
		return fails, errAway
	case "hangs":
		<-ctx.Done()
		return fails, context.Cause(ctx)
	}
	return fails, nil
}

// errAway is what a store says that fails.
var errAway = errors.New("throttle: down")

// said notes what the store said.
func (s *sceneStore) said(c *caller, err error, format string, args ...any) {
	if err != nil {
		format, args = format+": %v", append(args, err)
	}
	s.stage.note("calls", c, format, args...)
}

func (s *sceneStore) Book(ctx context.Context, b *throttle.Booking) (g throttle.Grant, err error) {
	c := callerOf(ctx)
	_, err = s.asked(ctx, "book")
	s.mu.Lock()
	s.books++
	n, slow := s.books, s.slow
	s.owners[b] = c
	for _, charge := range b.Charges {
		s.charges[charge.Budget.Key] = charge
	}
	s.mu.Unlock()
	text := "book"
	if b.Instead != (throttle.Handle{}) {
		text += " again"
	}
	if b.Spread != 0 {
		text += " with " + short(b.Spread) + " behind"
	}
	if err == nil {
		time.Sleep(slow)
		g, err = s.Store.Book(ctx, b)
	}
	s.mu.Lock()
	for _, key := range []any{g.Handle, g.Turn} {
		if key != nil && key != (throttle.Handle{}) {
			s.owners[key] = c
		}
	}
	if len(s.ages) > 0 {
		if g.Age = s.ages[0]; len(s.ages) > 1 {
			s.ages = s.ages[1:]
		}
	}
	late := s.late
	s.mu.Unlock()
	if n == s.lateOn {
		time.Sleep(late)
		g.Age = late
	}
	switch {
	case err != nil:
	case g.OK && g.Wait == 0:
		text += ": now"
	case g.OK:
		text += ": in " + short(g.Wait)
	case g.Ready != nil:
		text += ": in line"
	default:
		text += ": no"
	}
	s.said(c, err, "%s", text)
	return g, err
}

// owner returns whose grant it is.
func (s *sceneStore) owner(call string, b *throttle.Booking, g throttle.Grant) *caller {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stage.mu.Lock()
	s.stage.totals[call]++
	s.stage.mu.Unlock()
	for _, key := range []any{b, g.Turn, g.Handle} {
		if c := s.owners[key]; key != nil && c != nil {
			return c
		}
	}
	return nil
}

func (s *sceneStore) Cancel(b *throttle.Booking, g throttle.Grant) {
	s.said(s.owner("cancel", b, g), nil, "cancel")
	s.Store.Cancel(b, g)
}

func (s *sceneStore) Release(b *throttle.Booking, g throttle.Grant) {
	s.said(s.owner("release", b, g), nil, "release")
	s.Store.Release(b, g)
}

func (s *sceneStore) Settle(ctx context.Context, b *throttle.Booking, g throttle.Grant, costs []int) error {
	_, err := s.asked(ctx, "settle")
	if err == nil {
		err = s.Store.Settle(ctx, b, g, costs)
	}
	s.said(callerOf(ctx), err, "settle %v", costs)
	return err
}

func (s *sceneStore) Pause(ctx context.Context, c throttle.Charge, d time.Duration) error {
	_, err := s.asked(ctx, "pause")
	if err == nil {
		err = s.Store.Pause(ctx, c, d)
	}
	s.said(callerOf(ctx), err, "pause %s %s", c.Budget.Policy, short(d))
	return err
}

func (s *sceneStore) Refuse(ctx context.Context, c throttle.Charge, r throttle.Refusal) (from, to float64, err error) {
	if _, err = s.asked(ctx, "refuse"); err == nil {
		from, to, err = s.Store.Refuse(ctx, c, r)
	}
	text := ""
	if r.Ago != 0 {
		text += " of " + short(r.Ago) + " ago"
	}
	if r.Took != r.Ago {
		text += " that took " + short(r.Took)
	}
	s.said(callerOf(ctx), err, "refuse %s %s%s", c.Budget.Policy, short(r.Length), text)
	return from, to, err
}

func (s *sceneStore) Reconcile(ctx context.Context, c throttle.Charge, q throttle.Quota) error {
	_, err := s.asked(ctx, "reconcile")
	if err == nil {
		err = s.Store.Reconcile(ctx, c, q)
	}
	s.said(callerOf(ctx), err, "reconcile %s %d for %s", c.Budget.Policy, q.Left, short(q.Reset))
	return err
}

// PauseNote implements throttle.PauseNoter.
func (s *sceneStore) PauseNote(throttle.Budget) throttle.PauseNote { return s.note }

func (s *sceneStore) Watch(b *throttle.Booking, g throttle.Grant, news chan<- struct{}) throttle.Watch {
	if s.noNews {
		news = nil
	}
	w := &sceneWatch{s.Store.Watch(b, g, news), s}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[w] = true
	return w
}

// watching returns how many watches go on.
func (s *sceneStore) watching() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watches)
}

type sceneWatch struct {
	throttle.Watch
	store *sceneStore
}

func (w *sceneWatch) Confirm(ctx context.Context, maxWait time.Duration) (ok bool, err error) {
	fails, err := w.store.asked(ctx, "confirm")
	if ok = fails == "yes" || fails == "fails"; err == nil && fails == "" {
		ok, err = w.Watch.Confirm(ctx, maxWait)
	}
	text := "confirm"
	if maxWait >= 0 {
		text += " within " + short(maxWait)
	}
	if err == nil && !ok {
		text += ": no"
	}
	w.store.said(callerOf(ctx), err, "%s", text)
	return ok, err
}

func (w *sceneWatch) Stop() {
	w.store.mu.Lock()
	delete(w.store.watches, w)
	w.store.mu.Unlock()
	w.Watch.Stop()
}

// checkIdle checks, when all callers have left, that nothing waits and nothing is held.
func (s *sceneStore) checkIdle() {
	t := s.stage.t
	require.Empty(t, s.watches, "P15: a watch goes on")
	for _, c := range s.charges {
		st, err := s.Store.Status(context.Background(), c)
		require.NoError(t, err)
		if c.Limit.Kind() == throttle.KindConcurrency {
			require.Zero(t, st.Used, "P13: %s is in flight", c.Budget.Policy)
		}
		if !s.foreign && c.Limit.Kind() != throttle.KindLeakyBucket { // what a start costs there is yet to come
			require.Zero(t, st.Waiting, "P7: %s waits", c.Budget.Policy)
		}
	}
}

// A sceneUpstream answers as its scene says.
type sceneUpstream struct {
	stage   *stage
	mu      sync.Mutex
	answers map[string][]sceneAnswer // by path; "": all others
}

type sceneAnswer struct {
	status               int
	header               []string
	body                 string
	times                int           // how often it is given before the next one
	until                time.Duration // it is given to requests that come earlier
	takes, dials, writes time.Duration
	connects             bool // it tells of its connection
	reused, fails        bool
	broken               string // what became of a first connection: "unused" or "written", or of the first two: "twice"
	reads, closes        bool   // it touches the body before it is connected
	goesOn               string // though it was stopped: "writing" or "answering"
}

// parseUpstream reads answers, with "|" between them. The last one is that of all others.
func parseUpstream(head, text string, w *words) func(*sceneUpstream) {
	_, path, _ := strings.Cut(head, " ")
	var all []sceneAnswer
	for _, one := range strings.Split(text, "|") {
		w.list = strings.Fields(one)
		a := sceneAnswer{times: 1}
		if a.fails = w.is("fails"); !a.fails {
			status := w.next()
			var err error
			if a.status, err = strconv.Atoi(status); err != nil {
				w.fail("%q is no status", status)
				w.list = nil
			}
		}
		for w.more() {
			switch word := w.next(); word {
			case "times":
				a.times = w.number()
			case "until":
				a.until = w.duration()
			case "takes":
				a.takes = w.duration()
			case "dials":
				a.connects, a.dials = true, w.duration()
			case "writes":
				a.writes = w.duration()
			case "reused":
				a.reused = true
			case "reads":
				a.reads = true
			case "closes":
				a.closes = true
			case "goes-on":
				a.goesOn = w.next()
			case "broken":
				a.broken = w.next()
			default:
				name, value, ok := strings.Cut(word, "=")
				if value = strings.ReplaceAll(value, "_", " "); !ok {
					w.fail("an answer has no %q", word)
				} else if name == "body" {
					a.body = value
				} else {
					a.header = append(a.header, name, value)
				}
			}
		}
		all = append(all, a)
	}
	return func(u *sceneUpstream) {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.answers == nil {
			u.answers = map[string][]sceneAnswer{}
		}
		u.answers[path] = all
	}
}

// next returns the next answer.
func (u *sceneUpstream) next(r *http.Request) sceneAnswer {
	u.mu.Lock()
	defer u.mu.Unlock()
	path := r.URL.Path
	if u.answers[path] == nil {
		path = ""
	}
	list := u.answers[path]
	for len(list) > 1 && list[0].until > 0 && list[0].until <= u.stage.now() {
		list = list[1:]
	}
	if len(list) == 0 {
		return sceneAnswer{status: 200}
	}
	a := list[0]
	if list[0].until == 0 && len(list) > 1 {
		if list[0].times--; list[0].times == 0 {
			list = list[1:]
		}
	}
	u.answers[path] = list
	return a
}

func (u *sceneUpstream) RoundTrip(r *http.Request) (*http.Response, error) {
	c, a := callerOf(r.Context()), u.next(r)
	if r.Body != nil {
		defer r.Body.Close()
	}
	c.sent, c.answer = true, a.body
	u.stage.note("sent", c, "sent")
	trace := httptrace.ContextClientTrace(r.Context())
	switch {
	case a.reads:
		_, _ = r.Body.Read(make([]byte, 1))
	case a.closes:
		_ = r.Body.Close()
	case a.broken != "":
		trace.GotConn(httptrace.GotConnInfo{})
		if a.broken != "unused" {
			trace.WroteHeaders()
			u.stage.note("wrote", c, "wrote")
		}
		if a.broken == "twice" {
			trace.GotConn(httptrace.GotConnInfo{})
		}
	}
	if a.goesOn != "" {
		u.stage.store.foreign = true // what may have arrived is charged, and waits for nobody
	}
	if a.connects {
		if err := u.connect(r, a); err != nil && a.goesOn == "" {
			u.stage.note("sent", c, "stopped")
			return nil, err
		} else if err != nil && a.goesOn == "writing" {
			trace.WroteHeaders()
			return nil, errors.New("no answer")
		}
		time.Sleep(a.writes)
	}
	if a.goesOn == "" {
		if err := u.write(r, c, a); err != nil {
			return nil, err
		}
	}
	header := slices.Clone(a.header)
	if at := slices.Index(header, "Date"); at >= 0 {
		if ahead, err := time.ParseDuration(header[at+1]); err == nil { // a clock that is ahead
			header[at+1] = time.Now().Add(ahead).UTC().Format(http.TimeFormat)
		}
	}
	time.Sleep(a.takes)
	if a.fails {
		return nil, errors.New("the upstream fails")
	}
	return answer(a.status, a.body, header...)(r)
}

// connect dials and tells of the connection.
func (u *sceneUpstream) connect(r *http.Request, a sceneAnswer) error {
	if a.dials > 0 {
		select {
		case <-time.After(a.dials):
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
	httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{Reused: a.reused})
	return r.Context().Err()
}

// write reads the body, and tells that the request was written if it tells anything.
func (u *sceneUpstream) write(r *http.Request, c *caller, a sceneAnswer) error {
	text := "wrote"
	if r.Body != nil && !a.closes {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		text += " " + string(body)
	}
	if u.stage.started(c); a.connects {
		httptrace.ContextClientTrace(r.Context()).WroteHeaders()
		u.stage.note("wrote", c, "%s", text)
	} else if r.Body != nil {
		u.stage.note("wrote", c, "%s", text)
	}
	return nil
}
