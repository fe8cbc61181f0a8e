// Package choice sends each request in the first of several variants that may start: to one of several deployments, to
// one of several regions, as one of several applications.
//
//	both, err := choice.New(transport, choice.Variant{Name: "sweden", Change: sweden}, choice.Variant{Name: "france", Change: france})
//	client := retry.NewClient(both).StandardClient()
package choice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/internal/panics"
)

// A Choice is an [http.RoundTripper] that sends each request in the first of several
// variants that may start: to one of several deployments, to one of several regions, as one
// of several applications. Each variant has its own limits, which are policies of the
// [throttle.Transport], and keeps them. A Choice is meant for capacity that is yours: do
// not use it to get around a provider's limits with several accounts. It is safe for
// concurrent use and has nothing to close.
//
// Of the variants that have room the preferred variant is taken: see [Variant.Weight]. If
// no variant has room the request stands in the lines of all of them, and goes where it can
// start first, so it moves when a variant becomes free early. Its priority and its arrival
// count in each line. A variant that a penalty closes is left alone until it is open again.
// If a variant is closed between the choice and the first byte, the request chooses again.
//
// MaxWait and the deadline bound the wait for all variants together. A request is refused
// at once if all lines together cannot serve it in time, and otherwise at the latest when
// MaxWait is over. The [throttle.LimitError] is the error of the variant that would have
// started first.
//
// A request is sent once, in one variant, as by [throttle.Transport.RoundTrip]: the caller
// gets an answer that is a refusal. So put a Choice inside a retrier: the next attempt
// takes a different variant. The answer's Request is the variant that was sent. A redirect
// is a request of its own, to the host of the original request, and chooses anew. The zero
// Choice refuses each request with a *[throttle.ConfigError].
type Choice struct {
	t        *throttle.Transport
	variants []Variant
}

// New returns a choice between 1 to 16 variants, whose requests the transport holds and
// sends. It reports every mistake at once, each a *[throttle.ConfigError].
func New(t *throttle.Transport, variants ...Variant) (*Choice, error) {
	var missing error
	if t == nil {
		missing = &throttle.ConfigError{Field: "Transport", Err: errors.New("is required: its policies are the limits of the variants")}
	}
	if err := errors.Join(missing, checkVariants(variants)); err != nil {
		return nil, err
	}
	return &Choice{t, slices.Clone(variants)}, nil
}

// CloseIdleConnections closes the idle connections of the transport: see [throttle.Transport.CloseIdleConnections].
func (c *Choice) CloseIdleConnections() {
	if c.t != nil {
		c.t.CloseIdleConnections()
	}
}

// Unwrap returns the transport.
func (c *Choice) Unwrap() http.RoundTripper { return c.t }

// RoundTrip sends the first variant of the request that may start. It fails as
// [throttle.Transport.RoundTrip] does, and also if no variant of the request can be made.
func (c *Choice) RoundTrip(req *http.Request) (*http.Response, error) {
	if c.t == nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, &throttle.ConfigError{Field: "Choice", Err: errors.New("was not made by New")}
	}

	// The transport compares the bodies of variants with the request's own. A body that Go cannot compare, such as a
	// struct with a slice, is wrapped in a pointer.
	if req.Body != nil && !reflect.ValueOf(req.Body).Comparable() {
		same := *req
		same.Body = &body{req.Body}
		req = &same
	}

	// The transport prefers lower indexes, so its variants are numbered in the order that this request prefers.
	order := acquire.Preference(len(c.variants), func(i int) int { return c.variants[i].Weight })
	return c.t.RoundTripFirst(req, len(order), func(i int) (*http.Request, error) {
		return c.variants[order[i]].request(req)
	})
}

// A body is a body of a type that Go cannot compare.
type body struct{ io.ReadCloser }

// A Variant is one way to send a request: see [Choice].
type Variant struct {
	// Name is the name that [Of] returns. Required, and unique in the Choice.
	Name string

	// Change makes the variant of a request: it sets a host, path, key or header. It gets a
	// copy of the request, whose URL and Header it may change. The copy has the credentials
	// and the cookies of the request: replace those if they are not for this variant's
	// host.
	//
	// The body is the request's body, and must not be read. A variant with a body of its
	// own reads the request's body from r.GetBody, and sets Body, GetBody and
	// ContentLength.
	//
	// Change is called at most once for a request, by the caller's goroutine. An error says
	// that this request has no such variant: the remaining variants are used. Defaults to
	// nil: the request as it is.
	Change func(r *http.Request) error

	// Weight is how often the variant is asked first: twice as often as a variant of half
	// the weight. Variants without a weight are asked after the variants that have one, in
	// the order in which they are listed. So without any weights the first variant is the
	// primary, and the rest get the requests for which it has no room. Defaults to 0.
	Weight int
}

// Of returns the name of the variant to which a context belongs: the context of
// http.Response.Request, of an event in [throttle.Config.Observe], or of a request in the
// functions of a [throttle.Policy]. It returns "" if the context belongs to no variant.
func Of(ctx context.Context) string {
	name, _ := ctx.Value(variantKey{}).(string)
	return name
}

// variantKey is the context key of a variant's name.
type variantKey struct{}

// request returns the variant of a request: a copy that Change has changed, with the variant's name in
// its context. It returns an error if Change fails, or leaves the copy without a URL.
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

// change calls Change, which must not be nil; a panic becomes an error.
func (v *Variant) change(r *http.Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &throttle.ConfigError{Policy: v.Name, Field: "Change", Err: panics.Of(p)}
		}
	}()
	return v.Change(r)
}

// maxVariants is how many variants a request may have: see [throttle.Transport.RoundTripFirst].
const maxVariants = 16

// checkVariants returns all mistakes in the variants of a [Choice].
func checkVariants(variants []Variant) error {
	var errs []error
	wrong := func(text string, args ...any) {
		errs = append(errs, &throttle.ConfigError{Field: "Variants", Err: fmt.Errorf(text, args...)})
	}
	if n := len(variants); n == 0 || n > maxVariants {
		wrong("there are %d of them: use 1 to %d", n, maxVariants)
	}

	// Go on after a mistake: the program gets all of them at once.
	names := make(map[string]bool)
	for i := range variants {
		v := &variants[i]
		switch {
		case v.Name == "":
			wrong("#%d has no Name", i+1)
		case names[v.Name]:
			wrong("two of them are named %q", v.Name)
		}

		names[v.Name] = true

		if v.Weight < 0 {
			wrong("the Weight of %q is negative: use 0 or more", v.Name)
		}
	}

	return errors.Join(errs...)
}
