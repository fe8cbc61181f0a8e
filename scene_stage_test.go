package throttle_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/store"
)

// A stage is where a scene is played: a transport and limiters on one store, the callers,
// and the trace of what they do.
type stage struct {
	*script
	t        *testing.T
	begin    time.Time
	store    *sceneStore
	upstream *sceneUpstream
	tr       *throttle.Transport
	limiters *throttle.Limiters
	policies []throttle.Policy // of all tables that were used
	all      sync.WaitGroup

	mu       sync.Mutex
	moved    int // how many moves were made
	callers  []*caller
	entries  []entry
	starts   []time.Duration
	starters []int // whose starts, by their number
	totals   map[string]int
}

// An entry is a part of the trace.
type entry struct {
	end  bool
	at   time.Duration
	move int
	who  *caller
	text string
}

// A caller sends requests or acquires permits, one after the other.
type caller struct {
	name    string
	crowd   bool // callers of this name are many, and are not told apart
	ctx     context.Context
	cancel  context.CancelCauseFunc
	permit  *throttle.Permit
	resp    *http.Response
	last    time.Duration     // when it did something that is shown
	sent    bool              // its request was handed to the upstream
	answer  string            // the body that was sent to it
	told    error             // that of its last event
	budgets map[string]string // of its request, by policy
}

type callerKey struct{}

// callerOf returns the caller whose context it is, or nil if it is nobody's.
func callerOf(ctx context.Context) *caller {
	c, _ := ctx.Value(callerKey{}).(*caller)
	return c
}

// run plays the script, and returns the trace.
func (p *script) run(t *testing.T) []string {
	s := &stage{script: p, t: t, begin: time.Now(), totals: map[string]int{}}
	s.store, s.upstream = newSceneStore(s), &sceneUpstream{stage: s}
	for _, set := range p.setup {
		set(s)
	}
	c := p.config
	c.Store, c.Policies = s.store, throttle.WithoutAnswers(everywhere(p.tables[""]...))
	if slices.Contains(s.show, "events") || s.stall > 0 { // a scene that shows no events has no observer
		c.Observe = s.observe
	}
	s.limiters = must(throttle.NewLimiters(c))
	c.Base, c.Policies = s.upstream, everywhere(p.tables[""]...)
	s.policies = c.Policies
	s.tr = must(throttle.New(c))
	for _, m := range p.moves {
		s.wait(&m)
		s.mu.Lock()
		s.moved++
		s.mu.Unlock()
		m.do(s)
		synctest.Wait()
	}
	s.wait(&move{after: true})
	for s.store.asks.Load() > 0 { // what a caller has not waited for
		time.Sleep(time.Second)
		synctest.Wait()
	}
	for _, c := range s.callers {
		if c.resp != nil {
			s.check(c.resp.Body.Close())
		}
		if c.permit != nil {
			c.permit.Release()
		}
		c.cancel(nil)
	}
	synctest.Wait()
	trace := s.trace()
	s.store.checkIdle()
	return trace
}

// wait waits for the time of a move.
func (s *stage) wait(m *move) {
	if m.after {
		gone := make(chan struct{})
		go func() { s.all.Wait(); close(gone) }()
		select {
		case <-gone:
		case <-time.After(100 * 365 * 24 * time.Hour):
			require.Fail(s.t, "a caller never leaves", "%v", s.trace())
		}
	}
	switch {
	case m.after, m.plus:
		time.Sleep(m.at)
	default:
		require.LessOrEqual(s.t, s.now(), m.at, "a move comes too late")
		time.Sleep(m.at - s.now())
	}
	synctest.Wait()
}

func (s *stage) now() time.Duration { return time.Since(s.begin) }

func (s *stage) check(err error) { require.NoError(s.t, err) }

func (s *stage) limiter(name string) *throttle.Limiter { return must(s.tr.Limiter(name)) }

// each has callers do something: "a", "a-c" for a to c, or "a*9" for nine that are not
// told apart.
func (s *stage) each(name string, do func(*stage, *caller)) {
	if base, n, ok := strings.Cut(name, "*"); ok {
		for range atoi(n) {
			do(s, s.newCaller(base, true))
			synctest.Wait()
		}
		return
	}
	names := []string{name}
	if first, last, ok := strings.Cut(name, "-"); ok {
		prefix := strings.TrimRight(first, "0123456789")
		names = nil
		if prefix == first { // letters
			for r := first[0]; r <= last[0]; r++ {
				names = append(names, string(r))
			}
		} else {
			for i := atoi(first[len(prefix):]); i <= atoi(strings.TrimPrefix(last, prefix)); i++ {
				names = append(names, fmt.Sprint(prefix, i))
			}
		}
	}
	for _, name := range names {
		var known []*caller
		for _, c := range s.callers {
			if c.name == name {
				known = append(known, c)
			}
		}
		if known == nil {
			known = append(known, s.newCaller(name, false))
		}
		for _, c := range known {
			do(s, c)
			synctest.Wait()
		}
	}
}

func (s *stage) newCaller(name string, crowd bool) *caller {
	c := &caller{name: name, crowd: crowd, last: -1, cancel: func(error) {}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.callers = append(s.callers, c)
	return c
}

// note adds to the trace, if that shows such things.
func (s *stage) note(kind string, who *caller, format string, args ...any) {
	if kind != "status" && !slices.Contains(s.show, kind) || who != nil && slices.Contains(s.quiet, strings.TrimRight(who.name, "0123456789")) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if kind == "sent" || kind == "wrote" {
		who.last = s.now()
	}
	s.entries = append(s.entries, entry{kind == "ends", s.now(), s.moved, who, fmt.Sprintf(format, args...)})
}

// observe is the observer. Whom an event is about gets the same error.
func (s *stage) observe(ctx context.Context, e throttle.Event) {
	c := callerOf(ctx)
	text := e.Kind.String()
	if e.Policy != "" {
		text += " " + e.Policy
		s.checkEvent(c, e)
	}
	if e.Policy != "" && e.Budget == "" {
		text += " of no budget"
	}
	if e.Paused {
		text += " closed"
	}
	if e.Note != (store.PauseNote{}) {
		text += " " + e.Note.String()
	}
	if e.Duration != 0 {
		text += " " + short(e.Duration)
	}
	if e.Left != 0 {
		text += " of " + short(e.Duration+e.Left)
	}
	if e.Callers > 1 {
		text += fmt.Sprintf(" with %d", e.Callers-1)
	}
	if e.From != 0 || e.To != 0 {
		text += fmt.Sprintf(" from %v to %v", e.From, e.To)
	}
	switch e.Kind {
	case throttle.EventRefused, throttle.EventGaveUp:
		c.told = e.Err
	default:
		if e.Err != nil {
			text += ": " + plain(e.Err)
		}
	}
	s.note("events", c, "<%s>", text)
	if e.Kind == throttle.EventWaiting && s.stall > 0 {
		d := e.Duration + s.stall
		s.stall = 0
		time.Sleep(d)
	}
}

// checkEvent checks that an event names the budget and the limit of its policy.
func (s *stage) checkEvent(c *caller, e throttle.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Limit != (throttle.Limit{}) && !slices.ContainsFunc(s.policies, func(p throttle.Policy) bool { return p.Name == e.Policy && p.Limit == e.Limit }) {
		s.t.Errorf("%v: no policy %q has the limit %v", e.Kind, e.Policy, e.Limit)
	}
	if c != nil && e.Budget != "" && c.budgets[e.Policy] != "" && c.budgets[e.Policy] != e.Budget {
		s.t.Errorf("%v: %s is no budget of the request", e.Kind, e.Budget)
	}
}

// plain is the text of an error, without what all begin with.
func plain(err error) string {
	text := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "throttle: "), "\n", "; ")
	return inTests.ReplaceAllString(text, "_test.go")
}

// inTests is where a function of a test panicked.
var inTests = regexp.MustCompile(`_test\.go:\d+`)

// short is a duration without what it has none of.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// failed notes an error, which is what its event told.
func (s *stage) failed(c *caller, ctx context.Context, err error) {
	text := plain(err)
	var limited *throttle.LimitError
	var away *throttle.StoreError
	var config *throttle.ConfigError
	switch {
	case errors.As(err, &limited):
		require.ErrorIs(s.t, err, throttle.ErrLimited)
		text = "limited: " + text
		if limited.RetryAfter == throttle.Never {
			text += " (never)"
		} else if limited.RetryAfter != 0 {
			text += " (" + short(limited.RetryAfter) + ")"
		}
		if limited.Paused != strings.Contains(text, "closed by a penalty") && limited.Note == (store.PauseNote{}) {
			s.t.Errorf("Paused is %v: %v", limited.Paused, err)
		}
	case errors.As(err, &away):
		require.True(s.t, errors.Is(err, errAway) || errors.Is(err, errRefused) || errors.Is(err, acquire.ErrWaitOver) || errors.Is(err, acquire.ErrDefaultWaitOver), err)
		text = "store: " + text
	case errors.As(err, &config):
		text = fmt.Sprintf("config %s.%s: %s", config.Policy, config.Field, text)
	}
	if strings.Contains(text, "gave up") {
		require.ErrorIs(s.t, err, ctx.Err())
		require.ErrorIs(s.t, err, context.Cause(ctx))
	}
	if limited == nil {
		require.NotErrorIs(s.t, err, throttle.ErrLimited)
	}
	if strings.HasPrefix(err.Error(), "throttle: ") && c.told != nil {
		require.Equal(s.t, err, c.told, "what its event told")
	}
	s.note("ends", c, "%s", text)
}

// status notes the status of a budget.
func (s *stage) status(name, key string) {
	st, err := s.limiter(name).Status(s.t.Context(), key)
	s.check(err)
	if key != "" {
		name += "/" + key
	}
	text := "status " + name + ":"
	for _, n := range []struct {
		what  string
		value int
	}{{"used", st.Used}, {"booked", st.Booked}, {"waiting", st.Waiting}, {"repeated", st.Repeated}} {
		if n.value != 0 {
			text += fmt.Sprintf(" %s %d,", n.what, n.value)
		}
	}
	if st.Wait != 0 {
		text += " wait " + short(st.Wait) + ","
	}
	if st.Paused != 0 {
		text += " closed " + short(st.Paused) + ","
	}
	if st.Ceiling != 0 {
		text += fmt.Sprintf(" ceiling %v,", st.Ceiling)
	}
	s.note("status", nil, "%s", strings.TrimRight(text, ",:"))
}

func (s *stage) setPolicies(policies []throttle.Policy) {
	s.mu.Lock()
	s.policies = append(slices.Clone(s.policies), policies...)
	s.mu.Unlock()
	policies = everywhere(policies...)
	err := s.tr.SetPolicies(policies)
	if require.Equal(s.t, fmt.Sprint(err), fmt.Sprint(s.limiters.SetPolicies(throttle.WithoutAnswers(policies)))); err != nil {
		s.note("ends", nil, "table: %s", plain(err))
	}
}

// taken books the next starts of a request to home for somebody whose wait is not looked at.
func (s *stage) taken(cost int) {
	charges := s.tr.Explain(get(s.t, home))
	for i := range charges {
		charges[i].Cost = cost
	}
	_, err := s.store.Store.Book(context.Background(), &store.Booking{Charges: charges, MaxWait: store.AnyWait})
	s.check(err)
	s.store.foreign = true
}

// started counts a start.
func (s *stage) started(c *caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts, s.starters = append(s.starts, s.now()), append(s.starters, slices.Index(s.callers, c))
}

// countStarts notes how many starts there were, and how many at the most in a closed interval
// that ended since a moment, if one is given; and how many have since gone before a caller that
// came earlier.
func (s *stage) countStarts(per, since, until time.Duration) {
	s.mu.Lock()
	starts, early := slices.Clone(s.starts), 0
	for i, who := range s.starters {
		for j := i + 1; j < len(starts) && since > 0 && starts[i] >= since; j++ {
			if starts[j] > starts[i] && s.starters[j] < who {
				early++
				break
			}
		}
	}
	s.mu.Unlock()
	slices.Sort(starts)
	highest, within := 0, 0
	for i, at := range starts {
		first, _ := slices.BinarySearch(starts, at-per)
		if at >= since && at < until {
			highest, within = max(highest, i-first+1), within+1
		}
	}
	text := fmt.Sprintf("%d starts, the last at %s", len(starts), short(starts[len(starts)-1]))
	if early > 0 {
		text += fmt.Sprintf(", %d before their turn", early)
	}
	if within < len(starts) {
		text += fmt.Sprintf(", %d from %s to %s", within, short(since), short(until))
	}
	s.note("status", nil, "%s, at most %d in %s", text, highest, short(per))
}

// trace puts the entries in order: by time, by move, by caller, and as each caller did them.
// Callers that did the same one after the other share a line.
func (s *stage) trace() (lines []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortStableFunc(s.entries, func(a, b entry) int {
		if order := cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.move, b.move), cmp.Compare(slices.Index(s.callers, a.who), slices.Index(s.callers, b.who))); order != 0 {
			return order
		}
		switch { // what nobody waits for may come before the end or behind it
		case b.end && !a.end:
			return -1
		case a.end && !b.end:
			return 1
		}
		return 0
	})
	type group struct {
		entry
		who []*caller
	}
	var groups []group
	for i := 0; i < len(s.entries); {
		e, texts := s.entries[i], []string{}
		for ; i < len(s.entries) && s.entries[i].at == e.at && s.entries[i].move == e.move && s.entries[i].who == e.who; i++ {
			texts = append(texts, s.entries[i].text)
		}
		e.text = strings.Join(texts, ", ")
		if n := len(groups) - 1; n >= 0 && groups[n].at == e.at && groups[n].text == e.text && e.who.joins(groups[n].entry.who) {
			groups[n].who = append(groups[n].who, e.who)
			continue
		}
		groups = append(groups, group{e, []*caller{e.who}})
	}
	for _, g := range groups {
		lines = append(lines, fmt.Sprintf("%s%s %s", short(g.at), whoText(g.who), g.text))
	}
	if slices.Contains(s.show, "totals") {
		var texts []string
		for _, call := range []string{"book", "cancel", "release", "settle", "pause", "refuse", "confirm", "reconcile"} {
			if n := s.totals[call]; n > 0 {
				texts = append(texts, fmt.Sprintf("%s*%d", call, n))
			}
		}
		lines = append(lines, strings.TrimSpace("store: "+strings.Join(texts, " ")))
	}
	return lines
}

// joins says whether callers that did the same can share a line.
func (c *caller) joins(with *caller) bool {
	return c != nil && with != nil && c.crowd == with.crowd && (!c.crowd || c.name == with.name)
}

// whoText names callers.
func whoText(who []*caller) (text string) {
	switch {
	case who[0] == nil:
		return ""
	case who[0].crowd:
		return fmt.Sprintf(" %s*%d:", who[0].name, len(who))
	}
	for _, c := range who {
		text += " " + c.name
	}
	return text + ":"
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
