package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

// A script is a scene that was understood.
type script struct {
	config throttle.Config
	tables map[string][]throttle.Policy // "" is the first one
	setup  []func(*stage)
	moves  []move
	show   []string
	quiet  []string      // callers that are not shown
	stall  time.Duration // the observer stops for so long after the start that the first wait is for
}

// A move happens at a time since the scene began, or when all callers have left and some
// time more has passed.
type move struct {
	at    time.Duration
	plus  bool // at is counted from the move before
	after bool // at is counted from when all callers have left
	do    func(*stage)
}

// shown is what a trace can show.
var shown = []string{"sent", "wrote", "ends", "events", "calls", "totals"}

// words are what is left of a line.
type words struct {
	list []string
	errs *[]error
	line int
}

func (w *words) fail(format string, args ...any) {
	*w.errs = append(*w.errs, fmt.Errorf("line %d: "+format, append([]any{w.line}, args...)...))
}

func (w *words) more() bool { return len(w.list) > 0 }

func (w *words) next() string {
	if !w.more() {
		w.fail("a word is missing")
		return ""
	}
	s := w.list[0]
	w.list = w.list[1:]
	return s
}

// is takes the next word if it is this one.
func (w *words) is(word string) bool {
	if w.more() && w.list[0] == word {
		w.list = w.list[1:]
		return true
	}
	return false
}

func (w *words) rest() string {
	s := strings.Join(w.list, " ")
	w.list = nil
	return s
}

func (w *words) duration() time.Duration {
	s := w.next()
	switch s {
	case "none":
		return throttle.NoWait
	case "forever":
		return throttle.Forever
	}
	d, err := time.ParseDuration(s)
	if err != nil && s != "" {
		w.fail("%q is no duration", s)
	}
	return d
}

func (w *words) number() int {
	s := w.next()
	n, err := strconv.Atoi(s)
	if err != nil && s != "" {
		w.fail("%q is no number", s)
	}
	return n
}

// parse understands a case of a scene, and reports all mistakes.
func (s *scene) parse(c *sceneCase) (*script, error) {
	var errs []error
	p := &script{tables: map[string][]throttle.Policy{"": nil}, show: []string{"sent", "wrote", "ends", "events", "totals"}}
	p.config.LongWait, p.config.MaxWait = -1, throttle.Forever
	table := ""
	substitute := strings.NewReplacer(c.values...)
	for i, text := range s.body {
		w := &words{errs: &errs, line: s.line + i}
		text, _, _ = strings.Cut(substitute.Replace(text), "  #")
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		head, tail, _ := strings.Cut(text, ":")
		w.list = strings.Fields(head)
		switch kind := w.list[0]; kind {
		case "policy":
			p.tables[table] = append(p.tables[table], parsePolicy(strings.TrimSpace(head[len(kind):]), tail, w))
		case "table":
			table = strings.TrimSpace(tail)
			p.tables[table] = nil
		case "maxwait":
			w.list = strings.Fields(tail)
			p.config.MaxWait = w.duration()
		case "longwait":
			w.list = strings.Fields(tail)
			p.config.LongWait = w.duration()
		case "stall":
			w.list = strings.Fields(tail)
			p.stall = w.duration()
		case "quiet":
			p.quiet = strings.Fields(tail)
		case "show":
			p.parseShow(strings.Fields(tail), w)
		case "store":
			do := parseStore(tail, w)
			p.setup = append(p.setup, func(s *stage) { do(s.store) })
		case "upstream":
			do := parseUpstream(head, tail, w)
			p.setup = append(p.setup, func(s *stage) { do(s.upstream) })
		default:
			p.parseMove(text, w)
		}
	}
	return p, errors.Join(errs...)
}

func (p *script) parseShow(list []string, w *words) {
	if !slices.ContainsFunc(list, func(s string) bool { return strings.HasPrefix(s, "+") || strings.HasPrefix(s, "-") }) {
		p.show = nil
	}
	for _, s := range list {
		name := strings.TrimLeft(s, "+-")
		if !slices.Contains(shown, name) {
			w.fail("nobody can show %q", name)
		}
		if p.show = append(p.show, name); strings.HasPrefix(s, "-") {
			p.show = slices.DeleteFunc(p.show, func(s string) bool { return s == name })
		}
	}
}

// policyOptions are what may stand behind the limit of a policy.
var policyOptions = map[string]func(*throttle.Policy, *words){
	"jitter":   func(p *throttle.Policy, w *words) { p.Jitter = w.duration() },
	"match":    func(p *throttle.Policy, w *words) { p.Match = w.rest() },
	"shadow":   func(p *throttle.Policy, w *words) { p.Shadow = true },
	"node":     func(p *throttle.Policy, w *words) { p.Scope = throttle.ScopeNode },
	"adaptive": func(p *throttle.Policy, w *words) { p.Adaptive = true },
	"key":      func(p *throttle.Policy, w *words) { p.Key = parseKey(w) },
	"keyed":    func(p *throttle.Policy, w *words) { p.Key = throttle.Header("X-Key") }, // for demands that name a key
	"cost": func(p *throttle.Policy, w *words) {
		if w.is("query") {
			p.Cost = cost
		} else if w.is("panics") {
			p.Cost = func(*http.Request) int { panic(secretToken) }
		} else {
			n := w.number()
			p.Cost = func(*http.Request) int { return n }
		}
	},
	"settle": func(p *throttle.Policy, w *words) {
		if w.is("body") {
			says(p, tokens)
		} else if w.is("panics") {
			says(p, func(*http.Response) throttle.Answer { panic(secretToken) })
		} else {
			a := throttle.Answer{}.WithCost(w.number())
			says(p, func(*http.Response) throttle.Answer { return a })
		}
	},
	"low": func(p *throttle.Policy, w *words) { // leaves a share
		share, err := strconv.ParseFloat(w.next(), 64)
		if err != nil {
			w.fail("%v", err)
		}
		p.Headroom = map[throttle.Priority]float64{throttle.PriorityLow: share}
	},
	"penalty": func(p *throttle.Policy, w *words) {
		var read func(*http.Response) throttle.Answer
		switch {
		case w.is("none"):
		case w.is("retry-after"):
			read = throttle.RetryAfter
		case w.is("default"):
			return
		case w.is("panics"):
			read = func(*http.Response) throttle.Answer { panic(secretToken) }
		case w.is("body"): // a word of it, and for how long it closes
			word, d := w.next(), w.duration()
			read = func(resp *http.Response) throttle.Answer {
				if body, err := feedback.PeekBody(resp, 4096); err != nil || !strings.Contains(string(body), word) {
					return throttle.Answer{}
				}
				return throttle.Refused(d)
			}
		default:
			d, code := w.duration(), 0
			if w.is("for") {
				code = w.number()
			}
			read = func(resp *http.Response) throttle.Answer {
				switch {
				case d == 0 || code != 0 && resp.StatusCode != code:
					return throttle.Answer{}
				case d < 0:
					return feedback.NotRefused(resp)
				}
				return throttle.Refused(d)
			}
		}
		if read == nil {
			says(p, feedback.LeaveOpen)
		} else {
			says(p, feedback.First(read, feedback.LeaveOpen))
		}
	},
	"acted": func(p *throttle.Policy, w *words) {
		code := w.number()
		p.Answer = feedback.Acted(p.Answer, func(resp *http.Response) bool { return resp.StatusCode == code })
	},
	"quota": func(p *throttle.Policy, w *words) { // what is left, and until when
		if w.is("panics") {
			says(p, func(*http.Response) throttle.Answer { panic(secretToken) })
			return
		}
		a := throttle.Answer{}.WithLeft(throttle.Quota{Left: w.number(), Reset: w.duration()})
		if w.is("unknown") {
			a = throttle.Answer{}
		}
		says(p, func(*http.Response) throttle.Answer { return a })
	},
}

// says adds a reader to those of a policy.
func says(p *throttle.Policy, read func(*http.Response) throttle.Answer) {
	if p.Answer != nil {
		read = feedback.All(p.Answer, read)
	}
	p.Answer = read
}

func parseKey(w *words) func(*http.Request) string {
	switch name := w.next(); name {
	case "path":
		return throttle.RawPath
	case "host":
		return throttle.Host
	case "panic":
		return func(*http.Request) string { panic(secretToken) }
	case "host-and-header":
		return throttle.Join(throttle.Host, throttle.Header(w.next()))
	case "value":
		var all []func(*http.Request) string
		for w.more() {
			all = append(all, throttle.PathValue(w.next()))
		}
		return throttle.Join(all...)
	case "":
	default:
		w.fail("%q is no key", name)
	}
	return nil
}

func parsePolicy(name, text string, w *words) throttle.Policy {
	limit, options, _ := strings.Cut(strings.ReplaceAll(text, ",", ";"), ";") // in a case's values it is ","
	p := throttle.Policy{Name: name}
	var err error
	if p.Limit, err = throttle.ParseLimit(strings.TrimSpace(limit)); err != nil {
		w.fail("%v", err)
	}
	w.options("policy", options, func(name string) (known bool) {
		option := policyOptions[name]
		if option != nil {
			option(&p, w)
		}
		return option != nil
	})
	return p
}

// options reads options, with ";" between them.
func (w *words) options(what, text string, read func(name string) (known bool)) {
	for _, option := range strings.Split(text, ";") {
		if w.list = strings.Fields(option); !w.more() {
			continue
		}
		if name := w.next(); !read(name) {
			w.fail("a %s has no %q", what, name)
		} else if w.more() {
			w.fail("%q is too much", w.rest())
		}
	}
}

var isTime = regexp.MustCompile(`^(done)?(\+?\d[\w.µ]*)?$`)

// parseMove reads "10s a b: get /path" or "done+1s pause p 1m".
func (p *script) parseMove(text string, w *words) {
	w.list = strings.Fields(text)
	at := w.next()
	if !isTime.MatchString(at) {
		w.fail("%q is no time", at)
		return
	}
	m := move{after: strings.HasPrefix(at, "done")}
	at = strings.TrimPrefix(at, "done")
	m.plus = strings.HasPrefix(at, "+")
	if at = strings.TrimPrefix(at, "+"); at != "" {
		d, err := time.ParseDuration(at)
		if err != nil {
			w.fail("%v", err)
		}
		m.at = d
	}
	colon := slices.IndexFunc(w.list, func(s string) bool { return strings.HasSuffix(s, ":") })
	if colon < 0 {
		m.do = p.parseOwnMove(w)
	} else {
		who := slices.Clone(w.list[:colon+1])
		who[colon] = strings.TrimSuffix(who[colon], ":")
		w.list = w.list[colon+1:]
		do := parseCall(w)
		m.do = func(s *stage) {
			for _, name := range who {
				s.each(name, do)
			}
		}
	}
	if w.more() && m.do != nil {
		w.fail("%q is too much", w.rest())
	}
	p.moves = append(p.moves, m)
}

// parseOwnMove reads a move that is no caller's.
func (p *script) parseOwnMove(w *words) func(*stage) {
	switch verb := w.next(); verb {
	case "pause":
		name, key, d := w.budget()
		return func(s *stage) { s.check(s.limiter(name).Pause(s.t.Context(), key, d())) }
	case "resume":
		name, key, _ := w.budget()
		return func(s *stage) { s.check(s.limiter(name).Resume(s.t.Context(), key)) }
	case "status":
		name, key, _ := w.budget()
		return func(s *stage) { s.status(name, key) }
	case "watches": // how many there are
		return func(s *stage) {
			s.note("status", nil, "%d watches", s.store.watching())
		}
	case "table":
		name := w.rest()
		policies, ok := p.tables[name]
		if !ok && name != "none" {
			w.fail("there is no table %q", name)
		}
		return func(s *stage) { s.setPolicies(policies) }
	case "store":
		do := parseStore(w.rest(), w)
		return func(s *stage) { do(s.store) }
	case "taken": // the next start of this cost, by another program that does not wait for it
		cost := 1
		if w.more() {
			cost = w.number()
		}
		return func(s *stage) { s.taken(cost) }
	case "starts": // how many there were, and how many at the most in an interval
		per, since, until := w.duration(), time.Duration(0), time.Duration(math.MaxInt64)
		if w.more() {
			since, until = w.duration(), w.duration()
		}
		return func(s *stage) { s.countStarts(per, since, until) }
	default:
		w.fail("nobody can %q", verb)
		return nil
	}
}

// budget reads "p" or "p/key", and leaves a duration to be read.
func (w *words) budget() (name, key string, d func() time.Duration) {
	name, key, _ = strings.Cut(w.next(), "/")
	var length time.Duration
	if w.more() {
		length = w.duration()
	}
	return name, key, func() time.Duration { return length }
}

func atoi(s string) int { return must(strconv.Atoi(s)) }

// callOptions are what may stand behind a call.
type callOptions struct {
	wrap   []func(context.Context) (context.Context, context.CancelFunc)
	header http.Header
	hold   bool          // the body stays open until "close"
	lasts  time.Duration // for how long the work goes on
	client bool          // by way of http.Client
}

func (o *callOptions) context(s *stage, c *caller) context.Context {
	ctx, cancel := context.WithCancelCause(context.WithValue(s.t.Context(), callerKey{}, c))
	c.cancel, c.told, c.sent = cancel, nil, false
	for _, wrap := range o.wrap {
		ctx, _ = wrap(ctx)
	}
	c.ctx = ctx
	return ctx
}

// parseOptions reads what is left of a call.
func (w *words) callOptions() *callOptions {
	o := &callOptions{header: http.Header{}}
	with := func(f func(context.Context) context.Context) {
		o.wrap = append(o.wrap, func(ctx context.Context) (context.Context, context.CancelFunc) { return f(ctx), nil })
	}
	for w.more() {
		switch word := w.next(); word {
		case "maxwait":
			d := w.duration()
			with(func(ctx context.Context) context.Context { return throttle.WithMaxWait(ctx, d) })
		case "deadline":
			d := w.duration()
			o.wrap = append(o.wrap, func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) })
		case "low", "normal", "high":
			p := map[string]throttle.Priority{"low": throttle.PriorityLow, "normal": throttle.PriorityNormal, "high": throttle.PriorityHigh}[word]
			with(func(ctx context.Context) context.Context { return throttle.WithPriority(ctx, p) })
		case "hold":
			o.hold = true
		case "for":
			o.lasts = w.duration()
		case "client":
			o.client = true
		default:
			name, value, ok := strings.Cut(word, "=")
			if !ok {
				w.fail("%q says nothing about a call", word)
			}
			o.header.Set(name, value)
		}
	}
	return o
}

// parseCall reads what a caller does.
func parseCall(w *words) func(*stage, *caller) {
	switch verb := w.next(); verb {
	case "get", "post", "post-once":
		url := home
		if w.more() && strings.ContainsAny(w.list[0][:1], "/?h") && w.list[0] != "hold" && w.list[0] != "high" {
			if url = w.next(); url[0] == '/' || url[0] == '?' {
				url = home + strings.TrimPrefix(url, "/")
			}
		}
		o := w.callOptions()
		return func(s *stage, c *caller) { s.send(c, verb, url, o) }
	case "acquire", "try":
		var demands []throttle.Demand
		single := true
		for w.more() && w.list[0][0] == '@' {
			single = single && len(demands) == 0 && !strings.HasSuffix(w.list[0], "*free")
			demands = append(demands, w.demand())
		}
		o := w.callOptions()
		return func(s *stage, c *caller) { s.acquire(c, verb == "try", single, demands, o) }
	case "release":
		return func(s *stage, c *caller) { c.permitted(s).Release() }
	case "give-back":
		return func(s *stage, c *caller) { c.permitted(s).Cancel() }
	case "settle":
		cost, budget := w.number(), w.rest()
		return func(s *stage, c *caller) {
			ctx := context.WithValue(s.t.Context(), callerKey{}, c)
			if name, key, _ := strings.Cut(budget, "/"); name != "" {
				s.did(c, c.permitted(s).TellBudget(ctx, name, key, throttle.Answer{}.WithCost(cost)))
			} else {
				s.did(c, c.permitted(s).Tell(ctx, throttle.Answer{}.WithCost(cost)))
			}
		}
	case "penalize":
		d, names := w.duration(), w.list
		w.list = nil
		return func(s *stage, c *caller) {
			s.did(c, c.permitted(s).Tell(context.WithValue(s.t.Context(), callerKey{}, c), throttle.Refused(d), names...))
		}
	case "renew":
		o := w.callOptions()
		return func(s *stage, c *caller) {
			ctx := o.context(s, c)
			s.all.Go(func() {
				if err := c.permitted(s).Renew(ctx); err != nil {
					s.failed(c, ctx, err)
				} else {
					s.note("ends", c, "renewed%s", heldText(c.permit))
				}
			})
		}
	case "close":
		return func(s *stage, c *caller) { s.check(c.resp.Body.Close()); c.resp = nil }
	case "cancel":
		cause := error(nil)
		if w.more() {
			cause = errors.New(w.rest())
		}
		return func(_ *stage, c *caller) { c.cancel(cause) }
	default:
		w.fail("a caller cannot %q", verb)
		return nil
	}
}

// permitted returns the caller's permit.
func (c *caller) permitted(s *stage) *throttle.Permit {
	require.NotNil(s.t, c.permit, "%s has no permit", c.name)
	return c.permit
}

// did notes the error of something that a caller did with its permit.
func (s *stage) did(c *caller, err error) {
	if err != nil {
		c.told = nil
		s.failed(c, s.t.Context(), err)
	}
}

// demand reads "@p", "@p/key", "@p*3" or "@p/key*free".
func (w *words) demand() (d throttle.Demand) {
	budget, costs, _ := strings.Cut(w.next()[1:], "*")
	d.Policy, d.Key, _ = strings.Cut(budget, "/")
	for _, cost := range strings.Split(costs, "*") {
		if n, err := strconv.Atoi(cost); err == nil {
			d.Cost = n
		} else if cost == "free" {
			d.Cost = throttle.Free
		} else if cost != "" {
			w.fail("%q is no cost", cost)
		}
	}
	return d
}

// acquire acquires from the limiters, or from one of them if there is a single demand.
func (s *stage) acquire(c *caller, try, single bool, demands []throttle.Demand, o *callOptions) {
	ctx := o.context(s, c)
	s.all.Go(func() {
		var err error
		if single && len(demands) > 0 {
			d := demands[0]
			l := must(s.limiters.Limiter(d.Policy))
			if try {
				c.permit, err = l.Acquire(throttle.WithMaxWait(ctx, throttle.NoWait), d.Key, d.Cost)
			} else {
				c.permit, err = l.Acquire(ctx, d.Key, d.Cost)
			}
		} else if try {
			c.permit, err = s.limiters.Acquire(throttle.WithMaxWait(ctx, throttle.NoWait), demands...)
		} else {
			c.permit, err = s.limiters.Acquire(ctx, demands...)
		}
		if err != nil {
			require.Nil(s.t, c.permit)
			s.failed(c, ctx, err)
			return
		}
		s.note("ends", c, "acquired%s", heldText(c.permit))
		if s.started(c); o.lasts > 0 {
			time.Sleep(o.lasts)
			c.permit.Release()
		}
	})
}

// heldText says what held a permit.
func heldText(p *throttle.Permit) string {
	h := p.Held()
	if h == (throttle.Event{Kind: throttle.EventStarted}) {
		return ""
	}
	text := " after " + short(h.Duration) + " for " + h.Policy
	if h.Paused {
		text += ", which was closed"
	}
	return text
}

// A sceneBody is the body of a request. It is closed once.
type sceneBody struct {
	io.Reader
	read   atomic.Bool
	closed atomic.Int32
}

func newSceneBody() *sceneBody { return &sceneBody{Reader: strings.NewReader("whole")} }

func (b *sceneBody) Read(p []byte) (int, error) { b.read.Store(true); return b.Reader.Read(p) }

func (b *sceneBody) Close() error { b.closed.Add(1); return nil }

// send sends a request, and closes the answer's body unless it is to be held.
func (s *stage) send(c *caller, verb, url string, o *callOptions) {
	ctx := o.context(s, c)
	var bodies []*sceneBody
	r := must(http.NewRequestWithContext(ctx, http.MethodGet, url, nil))
	if verb != "get" {
		bodies = append(bodies, newSceneBody())
		r.Method, r.Body, r.ContentLength = http.MethodPost, bodies[0], 5
	}
	if verb == "post" {
		r.GetBody = func() (io.ReadCloser, error) {
			bodies = append(bodies, newSceneBody())
			return bodies[len(bodies)-1], nil
		}
	}
	r.Header = o.header.Clone()
	was := lookOf(r)
	c.budgets = map[string]string{}
	for _, charge := range s.tr.Explain(r) {
		c.budgets[charge.Budget.Policy] = charge.Budget.String()
	}
	s.all.Go(func() {
		resp, err := s.roundTrip(r, o)
		if err != nil {
			require.True(s.t, resp == nil || o.client, "P13: an answer and an error")
			s.failed(c, ctx, err)
		} else {
			text := strconv.Itoa(resp.StatusCode)
			switch a := throttle.AnswerOf(resp); {
			case a.Verdict > throttle.VerdictRefused:
				text += " " + a.Verdict.String()
			case a.Close > 0:
				text += " closed for " + short(a.Close)
			case a.Verdict == throttle.VerdictRefused:
				text += " refused, and nothing closes"
			}
			if text != "200" || c.last != s.now() {
				s.note("ends", c, "%s", text)
			}
			if !o.hold && o.lasts == 0 {
				require.Equal(s.t, c.answer, string(must(io.ReadAll(resp.Body))), "P13: the caller reads all of the answer")
			}
			if time.Sleep(o.lasts); o.hold {
				c.resp = resp
			} else {
				s.check(resp.Body.Close())
			}
			if !o.client {
				require.Equal(s.t, was, lookOf(resp.Request), "P13: the answer names the caller's request")
			}
		}
		require.Equal(s.t, was, lookOf(r), "P13: the request is not changed")
		for i, b := range bodies {
			require.EqualValues(s.t, 1, b.closed.Load(), "P13: body %d is closed once", i)
			require.True(s.t, c.sent || !b.read.Load(), "P13: the body of what was not sent was read")
		}
	})
}

func (s *stage) roundTrip(r *http.Request, o *callOptions) (*http.Response, error) {
	if o.client {
		resp, err := (&http.Client{Transport: s.tr}).Do(r)
		return resp, errors.Unwrap(err)
	}
	return s.tr.RoundTrip(r)
}
