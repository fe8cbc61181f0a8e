package throttle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/fleetthrottle/throttle/internal/acquire"
)

// A Choice is an [http.RoundTripper] that sends each request in the first of several
// variants that may start: to one of several deployments, to one of several regions, as
// one of several applications. Each variant has its own limits, which are policies of the
// [Transport], and keeps them. It is meant for capacity that is yours: do not use it to
// get around a provider's limits with several accounts. It is safe for concurrent use and
// has nothing to close.
//
// A variant that has room is taken, the one to be preferred first: see [Variant.Weight].
// If none has room the request stands in the lines of all of them, and goes where it
// can start first, so it moves when a variant becomes free early. Its priority and its
// arrival count in each line. A variant that a penalty closes is left alone until it is
// open again. If a variant is closed between the choice and the first byte, the request
// chooses again.
//
// MaxWait and the deadline bound the wait for all variants together. A request is refused
// at once if all lines together cannot serve it in time; else at the latest when MaxWait is
// over. The [LimitError] is that of the variant that would have started first.
//
// A request is sent once, in one variant, as by [Transport.RoundTrip]: an answer that is
// a refusal is the caller's. So put a Choice inside a retrier; the next attempt takes another
// variant. The answer's Request is the variant that was sent. A redirect is a request of
// its own, to the host of the original request, and chooses anew.
type Choice struct {
	t        *Transport
	variants []Variant
}

// NewChoice returns a choice between variants, whose requests the transport holds and
// sends. It reports every mistake at once.
func NewChoice(t *Transport, variants ...Variant) (*Choice, error) {
	var missing error
	if t == nil {
		missing = &ConfigError{"", "Transport", errors.New("is required: its policies are the limits of the variants")}
	}
	if err := errors.Join(missing, checkVariants(variants)); err != nil {
		return nil, err
	}
	return &Choice{t, append([]Variant(nil), variants...)}, nil
}

// CloseIdleConnections is [Transport.CloseIdleConnections].
func (c *Choice) CloseIdleConnections() { c.t.CloseIdleConnections() }

// Unwrap returns the transport.
func (c *Choice) Unwrap() http.RoundTripper { return c.t }

// RoundTrip sends the first variant of the request that may start. It fails as
// [Transport.RoundTrip] does, and if no variant of the request can be made.
func (c *Choice) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL == nil {
		return c.t.RoundTrip(req)
	}
	o := &chosenRequest{choice: c, req: req, body: req.Body, trips: make([]*roundTrip, len(c.variants))}
	o.chooser = newChooser(len(c.variants), func(i int) int { return c.variants[i].Weight }, o.build)
	for {
		v, err := o.chooser.choose(req.Context())
		if err != nil {
			return nil, o.refuse(v, err)
		}
		r := o.take(v)
		if r.hasNoPolicy() {
			if err := r.checkMatched(); err != nil {
				return nil, o.refuse(v, err)
			}
			defer o.closeOthers(r)
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

// A chosenRequest is one request of a [Choice].
type chosenRequest struct {
	choice  *Choice
	req     *http.Request
	chooser *chooser
	trips   []*roundTrip  // the next attempt of each variant; nil: not built yet
	body    io.ReadCloser // the request's body, for the variants that have no other
	moved   bool          // an attempt was made, and has given the body back
	pricing sync.Mutex    // is held while the policies' functions see a variant
}

// build returns the variant with an index.
func (o *chosenRequest) build(i int) (*contender, error) {
	req, err := o.choice.variants[i].request(o.req)
	if err != nil {
		return nil, err
	}
	r := o.choice.t.newRoundTrip(req)
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

// quote prices an attempt. Variants that wait are priced anew by goroutines of their own when the policies are
// replaced, but one after the other: they share GetBody, and that of some SDKs rewinds the one body.
func (o *chosenRequest) quote(r *roundTrip) error {
	o.pricing.Lock()
	defer o.pricing.Unlock()
	var matchBuf [fewPolicies]int32
	s := r.t.policies.Load()
	return r.newQuote(s).priceRequest(s, s.index.Match(matchBuf[:0], r.req), r.req)
}

// hasOwnBody reports whether an attempt sends another body than that of the request.
func (o *chosenRequest) hasOwnBody(r *roundTrip) bool { return r.req.Body != o.req.Body }

// take returns the attempt of a variant, with the request's body.
func (o *chosenRequest) take(v *contender) *roundTrip {
	r := o.trips[v.index]
	if !o.hasOwnBody(r) {
		r.reqBody, r.detached = o.body, r.detached || o.moved
	}
	return r
}

// replace puts a variant's next attempt in the place of one that was not sent, and takes back the
// request's body.
func (o *chosenRequest) replace(v *contender, next *roundTrip) {
	o.trips[v.index] = next
	o.use(v, next)
	if o.moved = true; !o.hasOwnBody(next) {
		o.body = next.reqBody
	}
}

// closeOthers closes the bodies that were not handed to the base with an attempt. sent is nil if
// none was.
func (o *chosenRequest) closeOthers(sent *roundTrip) {
	if o.body != nil && (sent == nil || o.hasOwnBody(sent)) {
		o.body.Close()
	}
	for _, r := range o.trips {
		if r != nil && r != sent && r.reqBody != nil && o.hasOwnBody(r) {
			r.reqBody.Close()
		}
	}
}

// refuse ends a request that is not sent, and returns err, which is that of a variant; nil if there is none.
func (o *chosenRequest) refuse(v *contender, err error) error {
	o.closeOthers(nil)
	if v == nil {
		if abortsHandler(err) {
			panic(http.ErrAbortHandler)
		}
		return err
	}
	r := o.take(v)
	r.reqBody = nil
	return r.refuse(err)
}

// A Variant is one way to send a request: see [Choice].
type Variant struct {
	// Name is what [VariantOf] returns. Required, and of no other variant of the Choice.
	Name string

	// Change makes the variant of a request: another host, path, key or header. It
	// gets a copy, whose URL and Header it may change. The copy has the credentials and
	// the cookies of the request: replace those that are not for this variant's host.
	//
	// The body is that of the request, and must not be read. A variant whose body differs
	// reads the one that r.GetBody returns, and sets Body, GetBody and ContentLength.
	//
	// Change is called at most once for a request, by the caller's goroutine. An error
	// says that there is no such variant of this request: the others are taken. Defaults to
	// nil: the request as it is.
	Change func(r *http.Request) error

	// Weight is how often the variant is asked first: twice as often as one of half the
	// weight. Variants without a weight are asked after those that have one, in the order in
	// which they are listed. So without any weights the first is the primary, and the others
	// get what it has no room for. Defaults to 0.
	Weight int
}

// VariantOf returns the name of the variant to which a context belongs: that of
// http.Response.Request, that of [Config.Observe], and that of a request in the
// functions of a [Policy]; "" if it belongs to none.
func VariantOf(ctx context.Context) string {
	name, _ := ctx.Value(variantKey{}).(string)
	return name
}

// variantKey is the context key of a variant's name.
type variantKey struct{}

// request returns the variant of a request.
func (v *Variant) request(req *http.Request) (r *http.Request, err error) {
	r = req.Clone(context.WithValue(req.Context(), variantKey{}, v.Name))
	if v.Change != nil {
		err = v.change(r)
	}
	if err == nil && r.URL == nil {
		err = errors.New("the request has no URL")
	}
	if err != nil {
		return nil, fmt.Errorf("throttle: variant %q: %w", v.Name, err)
	}
	return r, nil
}

// change calls Change; a panic becomes an error.
func (v *Variant) change(r *http.Request) (err error) {
	defer recoverAs(&err, v.Name, "Change")
	return v.Change(r)
}

// mostVariants is how many variants a piece of work may have: a caller that waits stands in as
// many lines.
const mostVariants = 16

// checkVariants returns all mistakes in the variants of a [Choice].
func checkVariants(variants []Variant) error {
	var errs []error
	wrong := func(text string, args ...any) {
		errs = append(errs, &ConfigError{"", "Variants", fmt.Errorf(text, args...)})
	}
	if n := len(variants); n == 0 || n > mostVariants {
		wrong("there are %d of them: use 1 to %d", n, mostVariants)
	}
	names := make(map[string]bool)
	for i := range variants {
		v := &variants[i]
		switch {
		case v.Name == "":
			wrong("#%d has no Name", i+1)
		case names[v.Name]:
			wrong("two of them are named %q", v.Name)
		}
		if names[v.Name] = true; v.Weight < 0 {
			wrong("the Weight of %q is negative: use 0 or more", v.Name)
		}
	}
	return errors.Join(errs...)
}
