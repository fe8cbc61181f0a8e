package throttle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/acquire"
)

// Several variants of one piece of work: the first that may start is taken.
//
// Invariant: a caller goes on with one start, and its other variants hold nothing then. It
// holds because choose returns either one variant that has a start, with all others idle, or an
// error, with all of them idle. The store books each start as for any caller, so each limit holds
// whatever the caller chooses.
//
// No capacity is lost. Each variant first asks only for a start now: a refusal books nothing. A
// caller that stands in several lines asks for one variant at a time, and leaves the remaining lines
// when it has a start (see race). If starts were booked for two variants at one moment, the caller
// gives one of them back before it has come, and the next waiter gets it.
//
// No caller waits for longer than a horizon while a variant has room. The caller stands in the lines
// of all variants, so room in any of them calls the caller. A booked start is at most a horizon
// away, and a caller that loses its start chooses again.

// A contender is one variant of a caller's work.
type contender struct {
	*quotedAcquisition
	index    int             // among the variants
	ctx      context.Context // of the variant's request; it ends with the caller's ctx
	price    func() error    // matches and prices the variant under the present policies
	unpriced error           // the error of the last call of price
	err      error           // why the variant has no start, by its last question
	guess    time.Duration   // for how long its budgets would hold the caller, or 0 if unknown
	arrived  bool            // it has stood in line, and keeps its arrival for when it comes again
	behind   bool            // it was not asked for, because earlier callers of this program stand in its line
}

// A chooser is a caller with several variants.
type chooser struct {
	order   []int                           // the indexes of the variants, in the order of preference
	build   func(i int) (*contender, error) // returns the variant with an index
	built   []*contender                    // by index, nil until built
	failed  []error                         // by index: why a variant cannot be built
	speaker *contender                      // tells the observer how the caller waits
	begun   time.Duration                   // when the caller came
}

// newChooser returns a caller whose variants have the indexes in order.
func newChooser(order []int, build func(i int) (*contender, error)) *chooser {
	return &chooser{
		order: order, build: build, built: make([]*contender, len(order)), failed: make([]error, len(order)), begun: now(),
	}
}

// choose waits until a variant may go on, and returns the variant: it holds a start, or
// needs none. All losing variants hold nothing. After an error no variant holds anything.
// The contender is then the variant of the error, or nil if no variant could be built.
func (c *chooser) choose(ctx context.Context) (*contender, error) {
	for {
		v, err := c.find(ctx)
		if err != nil || v.hasNoPolicy() {
			return v, err
		}

		v.Chosen(v.ctx)
		err = v.acquireAs(v.ctx, acquire.Wait{WhileBooked: true}, v.price)
		if err == nil || ctx.Err() != nil {
			return v, err
		}

		// The start was lost, by a ban perhaps, so choose again. After ErrUnbooked the variant keeps its place in line.
		if err != acquire.ErrUnbooked {
			v.leave()
		}
	}
}

// find returns a variant that has a start, however far away, or needs none. After an error all
// variants hold nothing, and the contender is as choose returns it.
func (c *chooser) find(ctx context.Context) (*contender, error) {
	// Take the first variant that may start now, in the order of preference. If none may, all lists the variants that can be built.
	var all []*contender
	for _, i := range c.order {
		v := c.variant(i)
		if v == nil {
			continue // it cannot be built
		}
		if hasStart := v.try(); hasStart {
			return c.settleFor(v), nil
		}

		all = append(all, v)
		if ctx.Err() != nil {
			break
		}
	}

	// No variant can be built.
	if len(all) == 0 {
		return nil, errors.Join(c.failed...)
	}

	// The observer is told of one wait, and not of a wait for each variant.
	c.speaker = earliest(all)

	// Before the caller is refused, ask for the variants behind other callers, too: their guesses may be wrong.
	if ctx.Err() == nil && c.isTooLate(ctx, all) {
		for _, v := range all {
			if !v.behind {
				continue
			}
			if hasStart := v.ask(); hasStart {
				return c.settleFor(v), nil
			}
		}
		c.speaker = earliest(all)
	}

	if ctx.Err() != nil || c.isTooLate(ctx, all) {
		return c.refuse(ctx, all)
	}

	// From here on the variants stand in line, and one of them tells the observer.
	for _, v := range all {
		v.Silence()
	}

	s := c.speaker
	s.Speak(c.begun)

	// A start within the horizon is booked at once, because no line would bring an earlier start. If other callers
	// stand before the variant, such a start belongs to them.
	isNear := s.guess > 0 && s.guess <= s.Horizon()
	if isNear && s.Idle() && !s.behind {
		s.err = s.BookNear(s.ctx)
		if s.hasStart() {
			return c.settleFor(s), nil
		}
	}

	return c.wait(ctx, all)
}

// variant returns the variant with an index, or nil if it cannot be built. The variant is priced under
// the present policies. If that failed, unpriced has the error.
func (c *chooser) variant(i int) *contender {
	// A variant that was built before needs a new price only if the policies were replaced since.
	v := c.built[i]
	if v != nil {
		select {
		case <-v.policies.replaced:
			v.unpriced = v.price()
		default:
		}
		return v
	}

	// Each variant is built once, whether that works or not.
	if c.failed[i] == nil {
		c.built[i], c.failed[i] = c.build(i)
	}

	v = c.built[i]
	if v != nil {
		v.index = i
		v.unpriced = v.price()
		v.Variant = len(c.order) > 1
		v.BeginWait(c.begun)
	}

	return v
}

// try books a start for now, if there is one, and reports whether the variant has a start, or needs
// none. It does not ask the store for a variant without a price, or for a variant that has or had a place
// in line, which waits for its turn. If earlier callers of this program stand in the variant's line, it
// does not ask either, because a start now belongs to them. It sets err and guess, as ask does.
func (v *contender) try() bool {
	v.err, v.guess = v.unpriced, 0
	if v.err != nil || !v.Idle() || v.hasNoPolicy() || v.arrived {
		return v.hasStart()
	}

	// With callers of this program before it, the variant has a guess of its wait without a question to the store.
	until, behind := v.Ahead()
	v.behind = behind
	if behind {
		v.guess = max(1, until-now()) // 0 would say that nothing is known
		return false
	}

	return v.ask()
}

// ask asks the store for a start now, whoever stands before the variant, and reports whether the
// variant has a start. It sets err to the error of the refusal or of the store, and after a refusal
// guess to the wait that the store told.
func (v *contender) ask() bool {
	v.behind = false
	v.err = v.Try(v.ctx)
	if !v.Idle() {
		return v.hasStart()
	}

	if _, refused := errors.AsType[*LimitError](v.err); refused {
		v.guess = v.Grant.Wait
	}
	return false
}

// hasStart reports whether the variant has a start, or needs none.
func (v *contender) hasStart() bool {
	return v.HasStart() || v.hasNoPolicy() && v.unpriced == nil
}

// earliest returns the variant that may start first, as far as is known: see estimatedWait.
func earliest(all []*contender) *contender {
	return slices.MinFunc(all, func(a, b *contender) int { return cmp.Compare(a.estimatedWait(), b.estimatedWait()) })
}

// estimatedWait returns how long the variant will probably wait, or 0 if nothing is known. It returns
// Never for a variant without a price, and less than 0 for a variant with a place in line: the observer
// knows of that wait already, so the variant comes before all others.
func (v *contender) estimatedWait() time.Duration {
	switch {
	case !v.Idle():
		return -1
	case v.unpriced != nil:
		return Never
	}
	return v.guess
}

// isTooLate reports whether, as far as is known, no variant can start before MaxWait or the deadline is
// over. It assumes the best case, that the same callers stand in the lines of all variants: then the
// rates of the lines add up, and the caller waits for less than each of the guesses. A variant that has
// stood in line may always start in time, and so may a variant whose guess is unknown, unless no time is left.
func (c *chooser) isTooLate(ctx context.Context, all []*contender) bool {
	left := c.speaker.RemainingWait(ctx)
	if left < 0 {
		return false // nothing bounds the wait
	}

	noTimeLeft := left <= acquire.NoWaitLeft // only a variant that has stood in line may still start
	rate := 0.0                              // starts per second of all lines together, for this caller
	for _, v := range all {
		switch {
		case v.arrived || !v.Idle():
			return false
		case noTimeLeft, v.unpriced != nil, v.guess == Never: // the variant adds nothing to the rate
		case v.guess <= 0: // unknown
			return false
		default:
			rate += 1 / v.guess.Seconds()
		}
	}

	// The caller starts in time if the lines together have at least one start for it within left.
	return rate*left.Seconds() < 1
}

// wait has the caller stand in the lines of all variants, and returns the first variant that has a start or needs none. If
// no variant can get a start, or ctx ends, it returns what refuse returns.
func (c *chooser) wait(ctx context.Context, all []*contender) (*contender, error) {
	r := acquire.NewRace(len(all))
	defer r.Stop()

	// Make all contexts before the first variant runs: the winner ends the contexts of all other variants.
	waits := make([]context.Context, len(all))
	for i, v := range all {
		waits[i] = r.Context(v.ctx)
	}

	var racing sync.WaitGroup
	for i, v := range all {
		racing.Go(func() { v.race(waits[i], r) })
	}
	racing.Wait()

	// All variants have stopped, so nobody books any more: the losers give back their starts.
	for _, v := range all {
		if &v.Caller == r.Winner() {
			return c.settleFor(v), nil
		}
	}

	return c.refuse(ctx, all)
}

// race has the variant stand in its line until one of the variants has won or ctx ends. A variant
// that is refused, or whose store fails, stands aside for a time and then asks again.
func (v *contender) race(ctx context.Context, r *acquire.Race) {
	defer v.LeaveLine()
	for {
		err := v.unpriced
		if err == nil {
			err = v.acquireAs(ctx, acquire.Wait{Race: r}, v.price)
		}
		if err == nil && v.hasNoPolicy() { // the policies were replaced, and the variant needs no start
			err = r.Claim(&v.Caller)
		}
		if err == nil || err == acquire.ErrLost || ctx.Err() != nil {
			return
		}

		// If all variants stand aside, Retire ends the race by ending ctx, and the caller is refused.
		v.LeaveLine()
		v.err = err
		r.Retire()
		if mayAsk := v.standAside(ctx); !mayAsk {
			return
		}

		r.Reenter()
	}
}

// asideFor is for how long a variant stands aside after it was refused, or after its store failed.
const asideFor = time.Second

// standAside waits for asideFor, or until the policies are replaced: then it prices the variant anew.
// For a variant without a price only new policies end the wait. standAside returns false if ctx has
// ended.
func (v *contender) standAside(ctx context.Context) bool {
	var over <-chan time.Time
	if v.unpriced == nil {
		timer := time.NewTimer(asideFor)
		defer timer.Stop()
		over = timer.C
	}

	select {
	case <-v.policies.replaced:
		v.unpriced = v.price()
	case <-over:
	case <-ctx.Done():
	}

	return ctx.Err() == nil
}

// settleFor has all variants except chosen give back their holdings, and returns chosen.
func (c *chooser) settleFor(chosen *contender) *contender {
	for _, v := range c.built {
		if v != nil && v != chosen {
			v.leave()
		}
	}
	return chosen
}

// leave has the variant give back its holdings. A variant that stood in line keeps its arrival, for
// when it comes again.
func (v *contender) leave() { v.arrived = v.Leave() }

// refuse has all variants give back their holdings. It returns the variant that would have
// started first, and the error of this variant. If ctx has ended, it returns the variant
// that tells the observer, and the error of a caller that gave up.
func (c *chooser) refuse(ctx context.Context, all []*contender) (*contender, error) {
	c.settleFor(nil)
	if ctx.Err() != nil {
		return c.speaker, c.speaker.GaveUp(ctx)
	}
	first := slices.MinFunc(all, func(a, b *contender) int { return cmp.Compare(delay(a.err), delay(b.err)) })
	return first, first.err
}

// delay returns for how long a variant with an error would have had to wait. An error of the
// store, which may be over soon, counts as less than Never, but as more than any limit. A cost
// above the limit, and every other error, counts as Never.
func delay(err error) time.Duration {
	if limited, ok := errors.AsType[*LimitError](err); ok && limited.cost == 0 {
		return limited.RetryAfter
	}
	if _, failed := errors.AsType[*StoreError](err); failed {
		return Never - 1
	}
	return Never
}

// maxVariants is how many variants a piece of work may have: a waiting caller stands in a line for
// each variant.
const maxVariants = 16

// An Alternative is one way to do a piece of work: see [Limiters.AcquireFirst].
type Alternative struct {
	Demands []Demand // required: work that is free has demands that are Free
	Weight  int      // as in choice.Variant
}

// AcquireFirst is Acquire for work that can be done in several ways: on one of several
// machines, with one of several licences. It takes the demands of the first alternative
// that may start, and returns the permit and the index of that alternative. It takes
// nothing for the alternatives that lose. It chooses as package choice does, and returns -1
// with an error.
//
// The permit is for that alternative: [Permit.Renew] does not choose again.
func (l *Limiters) AcquireFirst(ctx context.Context, alternatives ...Alternative) (*Permit, int, error) {
	if n := len(alternatives); n == 0 || n > maxVariants {
		return nil, -1, &ConfigError{"", "alternatives", fmt.Errorf("there are %d of them: use 1 to %d", n, maxVariants)}
	}

	for i := range alternatives {
		if alternatives[i].Weight < 0 {
			return nil, -1, &ConfigError{"", "alternatives", errors.New("a Weight is negative: use 0 or more")}
		}
	}

	// Alternatives with a weight come first, in a random order that follows the weights.
	order := acquire.Preference(len(alternatives), func(i int) int { return alternatives[i].Weight })
	c := newChooser(order, func(i int) (*contender, error) {
		a := l.newAcquisition(ctx)
		price := func() error { return l.priceDemands(ctx, a, alternatives[i].Demands) }
		return &contender{quotedAcquisition: a, ctx: ctx, price: price}, nil
	})

	// Each alternative can be built, so choose returns a contender even with an error.
	v, err := c.choose(ctx)
	v.Variant = false // the permit stays with this alternative

	p, err := l.permit(ctx, new(Permit), v.quotedAcquisition, err)
	if err != nil {
		return nil, -1, err
	}

	return p, v.index, nil
}

// RoundTripFirst is [Transport.RoundTrip] for a request that can be sent in n ways, 1 to
// 16: it sends the first of its variants that may start, and prefers variants of a lower
// index. Package choice has an [http.RoundTripper] that does so with all requests.
//
// variant makes the variant of an index: a copy of req with a changed URL or changed
// headers, and with the Body of req or with its own. It is called at most once for each
// index, by the caller's goroutine. An error says that this request has no such variant:
// the remaining variants are used.
//
// MaxWait and the deadline bound the wait for all variants together. The bodies of variants
// that are not sent are closed. RoundTripFirst fails as RoundTrip does, with all errors of
// variant if no variant can be made, and with a *[ConfigError] if n is out of range.
func (t *Transport) RoundTripFirst(req *http.Request, n int, variant func(i int) (*http.Request, error)) (*http.Response, error) {
	if req.URL == nil {
		return t.RoundTrip(req) // it returns the error
	}

	if n < 1 || n > maxVariants {
		closeBody(req)
		return nil, &ConfigError{"", "n", fmt.Errorf("is %d: use 1 to %d", n, maxVariants)}
	}

	o := &chosenRequest{t: t, req: req, variant: variant, body: req.Body, trips: make([]*roundTrip, n)}

	// A request prefers its variants in the order of their indexes.
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}

	o.chooser = newChooser(order, o.build)

	// Each pass is one attempt, of the variant that was chosen. After ErrDetach the request chooses again.
	for {
		v, err := o.chooser.choose(req.Context())
		if err != nil {
			return nil, o.refuse(v, err)
		}

		// A variant that no policy holds is sent without a start.
		r := o.take(v)
		if r.hasNoPolicy() {
			if err := r.checkMatched(); err != nil {
				return nil, o.refuse(v, err)
			}
			defer o.closeOthers(r) // also if the base panics
			return r.sendFree()
		}

		resp, err := r.sendAndLearn()
		if err != acquire.ErrDetach {
			o.closeOthers(r)
			return resp, err
		}

		o.replace(v, r.nextAttempt())
	}
}

// A chosenRequest is one request that can be sent in several ways.
type chosenRequest struct {
	t       *Transport
	req     *http.Request
	variant func(i int) (*http.Request, error)
	chooser *chooser
	trips   []*roundTrip  // the next attempt of each variant, nil until built
	body    io.ReadCloser // the request's body, for the variants without a body of their own
	moved   bool          // an attempt has given its connection back, and was not sent
	pricing sync.Mutex    // is held while the policies' functions see a variant
}

// build makes the variant with an index, and its first attempt. It returns the error of variant.
func (o *chosenRequest) build(i int) (*contender, error) {
	req, err := o.variant(i)
	if err != nil {
		return nil, err
	}
	r := o.t.newRoundTrip(req)
	o.trips[i] = r
	v := &contender{ctx: req.Context()}
	o.use(v, r)
	return v, nil
}

// use has a variant acquire its start for an attempt.
func (o *chosenRequest) use(v *contender, r *roundTrip) {
	v.quotedAcquisition, v.price = r.quotedAcquisition, func() error {
		r.Lead = r.dialLead()
		return r.useQuote(r.req.Context(), o.quote(r))
	}
}

// quote prices an attempt. Variants that wait are priced anew by goroutines of their own
// when the policies are replaced, but one at a time: they share GetBody, and the GetBody of
// some SDKs rewinds a shared body.
func (o *chosenRequest) quote(r *roundTrip) error {
	o.pricing.Lock()
	defer o.pricing.Unlock()
	var matchBuf [fewPolicies]int32
	s := r.t.policies.Load()
	return r.newQuote(s).priceRequest(s, s.index.Match(matchBuf[:0], r.req), r.req)
}

// hasOwnBody reports whether an attempt sends a different body than the request.
func (o *chosenRequest) hasOwnBody(r *roundTrip) bool { return r.req.Body != o.req.Body }

// take returns the next attempt of a variant. If the variant has no body of its own, the attempt gets
// the request's body, and counts as detached if an attempt of any variant has given its connection back.
func (o *chosenRequest) take(v *contender) *roundTrip {
	r := o.trips[v.index]
	if !o.hasOwnBody(r) {
		r.reqBody = o.body
		r.detached = r.detached || o.moved
	}
	return r
}

// replace puts a variant's next attempt in the place of an attempt that was not sent. If that
// attempt had the request's body, replace takes the body back.
func (o *chosenRequest) replace(v *contender, next *roundTrip) {
	o.trips[v.index] = next
	o.use(v, next)
	o.moved = true
	if !o.hasOwnBody(next) {
		o.body = next.reqBody
	}
}

// closeOthers closes all bodies that the base did not get: the request's body and the variants' own.
// sent is the attempt whose body the base got, or nil.
func (o *chosenRequest) closeOthers(sent *roundTrip) {
	if o.body != nil && (sent == nil || o.hasOwnBody(sent)) {
		o.body.Close()
	}
	for _, r := range o.trips {
		isUnsent := r != nil && r != sent
		if isUnsent && r.reqBody != nil && o.hasOwnBody(r) {
			r.reqBody.Close()
		}
	}
}

// refuse ends a request that is not sent: it closes all bodies and returns err, or panics as refuse of
// a roundTrip does. v is the variant of the error, of which the observer is told, or nil if no variant
// could be built.
func (o *chosenRequest) refuse(v *contender, err error) error {
	o.closeOthers(nil)
	if v == nil {
		if abortsHandler(err) {
			panic(http.ErrAbortHandler)
		}
		return err
	}

	// closeOthers has closed the body already.
	r := o.take(v)
	r.reqBody = nil
	return r.refuse(err)
}
