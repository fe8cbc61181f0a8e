package throttle_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

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
