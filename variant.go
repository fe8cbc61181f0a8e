package throttle

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

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
