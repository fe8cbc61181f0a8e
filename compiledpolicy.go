package throttle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/internal/match"
	"github.com/fleetthrottle/throttle/internal/panics"
	"github.com/fleetthrottle/throttle/store"
)

// A compiledPolicy is a policy with everything that can be known before a request.
type compiledPolicy struct {
	Policy
	pattern   *match.Pattern // nil: no request matches the policy, which is used by name only
	charge    store.Charge   // complete, except for the fields that price sets
	headrooms headrooms
	fixed     bool // price sets no field: charge is complete for every request

	illegibleReported *atomic.Bool   // Observe was told of a response that could not be read
	leftReported      *atomic.Bool   // Observe was told that Answer states a quota of an unlimited budget
	byDefault         *defaultAnswer // reads the responses on which Answer has no opinion
	hashes            *keyHashes     // of the policy's keys
}

// compile checks one policy and makes it ready for its callers. Its error joins all mistakes in the
// policy. i is the policy's index in the slice, by which errors name a policy without a name. by says
// which callers the policy has.
func compile(p Policy, i int, by callers) (compiledPolicy, error) {
	var errs []error
	name := p.Name
	if err := checkName(name); err != nil {
		name = nameInErrors(name, i)
		errs = append(errs, &ConfigError{name, "Name", err})
	}

	// Without functions of the request the charge is the same for all requests, and known now.
	fixed := p.Key == nil && p.Cost == nil && p.Share == nil && p.Headroom == nil
	c := compiledPolicy{Policy: p, fixed: fixed, illegibleReported: new(atomic.Bool), leftReported: new(atomic.Bool), byDefault: new(defaultAnswer), hashes: new(keyHashes), charge: store.Charge{
		Budget: Budget{Policy: p.Name, Key: store.BudgetOf(p.Name, "").Key},
		Limit:  p.Limit, Cost: 1, Jitter: p.jitter(), Shadow: p.Shadow,
		Pace: p.Limit.Pace(), Node: p.Scope == ScopeNode, Adaptive: p.Adaptive,
	}}

	// Every field is checked, whatever the mistakes before: the program gets all mistakes at once.
	for _, f := range p.misused(by) {
		errs = append(errs, &ConfigError{name, f.name, errors.New(f.advice)})
	}

	// The pattern comes before Key and Share, which are checked against its wildcards.
	var err error
	if p.Match != "" {
		if c.pattern, err = match.Parse(p.Match); err != nil {
			errs = append(errs, &ConfigError{name, "Match", err})
		}
	}

	for _, err := range checkKeyFunc(p.Key, c.pattern) {
		errs = append(errs, &ConfigError{name, "Key", err})
	}

	for _, err := range checkKeyFunc(p.Share, c.pattern) {
		errs = append(errs, &ConfigError{name, "Share", err})
	}

	if err := p.Limit.Validate(c.charge.Jitter); err != nil {
		errs = append(errs, &ConfigError{name, "Limit", err})
	}
	if p.Jitter > 0 && (p.Jitter < minJitter || p.Jitter > store.MaxPeriod) {
		errs = append(errs, &ConfigError{name, "Jitter", fmt.Errorf("%v is out of range: use %v to %v, or a negative one for none", p.Jitter, minJitter, store.MaxPeriod)})
	}
	if c.headrooms, err = newHeadrooms(p.Headroom, p.Limit); err != nil {
		errs = append(errs, &ConfigError{name, "Headroom", err})
	}
	if p.Adaptive && !p.Limit.Counts() {
		errs = append(errs, &ConfigError{name, "Adaptive", errors.New("only a limit that counts starts can be learned: leave Adaptive out with Concurrency and Unlimited")})
	}
	if err := p.checkShares(); err != nil {
		errs = append(errs, &ConfigError{name, "Share", err})
	}
	if p.Meter != nil && p.Limit.Kind() == store.KindConcurrency {
		errs = append(errs, &ConfigError{name, "Meter", errors.New("is never asked, because what is in flight keeps its cost: leave it out with Concurrency")})
	}
	if p.Scope > ScopeNode {
		errs = append(errs, &ConfigError{name, "Scope", fmt.Errorf("%d is no scope: use ScopeFleet or ScopeNode", p.Scope)})
	}

	return c, errors.Join(errs...)
}

// callers says how work comes to a policy: as requests, by name, or both.
type callers uint8

const (
	requests         callers = iota // of a Transport: requests, and their answers
	namesAndRequests                // of Limiters: demands by name, and requests without answers
	names                           // of a Limiter: names only
)

// A misusedField is a field of a policy that its callers have no use for, or that they need.
type misusedField struct{ name, advice string }

// misused returns the fields that are set although no caller would look at them, and the
// fields that the callers need but that are missing.
func (p *Policy) misused(by callers) (all []misusedField) {
	note := func(wrong bool, name, advice string) {
		if wrong {
			all = append(all, misusedField{name, advice})
		}
	}

	// A Transport has requests, and no callers that name a key.
	if by == requests {
		note(p.Match == "", "Match", "is missing: say which requests, such as \"api.example.com/\" for those to one host; \"/\" is every request")
		note(p.Keyed && p.Key == nil, "Keyed", "is for callers that name a key, and a request names none: set Key, which reads it from the request")
		return all
	}

	// Limiters see no answers, and requests only in AcquireRequest.
	for _, name := range p.answerFields() {
		note(true, name, "is never called, because no answer comes here: leave it out, or pass WithoutAnswers(policies), and tell the Permit of refusals and costs")
	}

	if by == names {
		note(p.Match != "", "Match", "is never looked at, because no request comes here: leave it out. A policy of a Transport's table is to be had from its Limiter method, or from NewLimiters with the same table")
	}

	// No request matches the policy, so nobody calls its functions of requests.
	if p.Match == "" || by == names {
		const neverCalled = "is never called, because no request comes here: "
		note(p.Key != nil, "Key", neverCalled+"set Keyed, and name the key in each call")
		note(p.Cost != nil, "Cost", neverCalled+"name the cost in each call")
		note(p.Share != nil, "Share", neverCalled+"name the share in a Demand")
		note(p.Weight != nil, "Weight", neverCalled+"name the weight in a Demand")
	}

	return all
}

// answerFields returns the names of the fields that are set and look at answers.
func (p *Policy) answerFields() (names []string) {
	if p.Answer != nil {
		names = append(names, "Answer")
	}
	if p.Meter != nil {
		names = append(names, "Meter")
	}
	return names
}

// WithoutAnswers returns copies of policies without the functions that look at answers. It is for a table that
// a [Transport] has, too, such as a preset's: other programs close and open its budgets with [NewLimiters], or
// acquire in them, and tell the [Permit] of refusals and costs.
func WithoutAnswers(policies []Policy) []Policy {
	policies = slices.Clone(policies)
	for i := range policies {
		p := &policies[i]
		p.Answer, p.Meter = nil, nil
	}
	return policies
}

// hasKeys reports whether the policy has a budget for each key.
func (p *Policy) hasKeys() bool { return p.Keyed || p.Key != nil }

// checkKey returns an error if a caller names a key for a policy without keys, or no key for a
// policy with keys.
func (p *Policy) checkKey(key string) error {
	switch has := p.hasKeys(); {
	case has && key == "":
		return &ConfigError{p.Name, "Key", errors.New("is missing: the policy has a budget for each key, so name the key")}
	case !has && key != "":
		return &ConfigError{p.Name, "Key", errors.New("is named, but the policy has one budget for all: leave the key out, or set the policy's Keyed for a budget of each key")}
	}
	return nil
}

// minJitter is the smallest positive Jitter that a machine can keep.
const minJitter = time.Millisecond

// jitter returns how long after its grant a start may arrive: 35 ms where the field is 0,
// and 0 or [acquire.ClockJitter] where the field is negative.
func (p *Policy) jitter() time.Duration {
	switch {
	case p.Jitter == 0:
		return acquire.DefaultJitter
	case p.Jitter > 0:
		return p.Jitter
	case p.Limit.Kind() == store.KindLeakyBucket || p.Limit.Kind() == store.KindTokenBucket:
		return acquire.ClockJitter
	}
	return 0
}

// price completes c, a copy of the policy's charge, for a request: it sets the cost, the
// key, the share and KeepFree, as far as the policy has fields for them. An error says that a
// function of the policy failed. bound is shared by all policies that price the request.
func (p *compiledPolicy) price(c *store.Charge, req *http.Request, bound *match.Bound) (err error) {
	if p.Headroom != nil {
		c.KeepFree = p.headrooms.forPriority(optionsOf(req.Context()).priority)
	}
	if p.Key == nil && p.Cost == nil && p.Share == nil {
		return nil
	}

	// The functions see the values of the pattern's wildcards as the request's path values.
	req = bound.For(p.pattern, req)
	if p.Cost != nil {
		if c.Cost, err = p.cost(req); err != nil {
			return err
		}
	}

	if p.Share != nil {
		if c.Share, err = p.share(req); err != nil {
			return err
		}
	}

	if p.Key != nil {
		err = p.setKey(c, req)
	}

	return err
}

// cost calls Cost, which must not be nil, and returns 0 for Free. A panic, and any other negative
// cost, becomes an error.
func (p *compiledPolicy) cost(req *http.Request) (cost int, err error) {
	defer recoverAs(&err, p.Name, "Cost")
	cost = p.Cost(req)
	if cost == Free {
		return 0, nil
	}
	if cost < 0 {
		return 0, &ConfigError{p.Name, "Cost", fmt.Errorf("returned %d: return 0 or more", cost)}
	}
	return cost, nil
}

// setKey calls Key, which must not be nil, and sets the hash of the key in c. A panic becomes an
// error. For the key "" the charge stays as it is: it has the hash of "" already.
func (p *compiledPolicy) setKey(c *store.Charge, req *http.Request) (err error) {
	defer recoverAs(&err, p.Name, "Key")
	if key := p.Key(req); key != "" {
		c.Budget.Key = p.hash(key)
	}
	return nil
}

// hash returns the hash of a key, as store.BudgetOf does.
func (p *compiledPolicy) hash(key string) [16]byte {
	// A lookup may find a different key in the place, because several share it.
	place := &p.hashes[maphash.String(keySeed, key)%uint64(len(p.hashes))]
	if known := place.Load(); known != nil && known.key == key {
		return known.hash
	}

	hash := store.BudgetOf(p.Name, key).Key
	place.note(key, hash)
	return hash
}

// keyHashes caches the hashes of recent keys, because computing a hash takes longer than booking a start in memory.
// Each key has one place, which it shares with all keys of the same index. It is safe for concurrent use.
type keyHashes [32]keyPlace

// maxCachedKey is the length of the longest key that is cached.
const maxCachedKey = 256

var keySeed = maphash.MakeSeed()

// A keyPlace has one key with its hash, or nil.
type keyPlace struct {
	atomic.Pointer[hashedKey]
	misses atomic.Uint32 // how many lookups did not find their key
}

type hashedKey struct {
	key  string
	hash [16]byte
}

// note replaces the cached key at the first miss and at every sixteenth after it, unless the
// key is too long. So keys that all differ cost hardly any memory, and a frequent key is soon
// cached.
func (p *keyPlace) note(key string, hash [16]byte) {
	if len(key) <= maxCachedKey && p.misses.Add(1)%16 == 1 {
		// The key may be a part of a long text, which would be kept as well.
		p.Store(&hashedKey{strings.Clone(key), hash})
	}
}

// share calls Share, which must not be nil, and Weight if it is set; a panic becomes an error. The share's name is
// hashed. A request without a share gets the zero Share, and Weight is not called for it.
func (p *compiledPolicy) share(req *http.Request) (s store.Share, err error) {
	if s.ID, err = p.shareID(req); err != nil || s.ID == 0 || p.Weight == nil {
		return s, err
	}
	s.Weight, err = p.weight(req)
	return s, err
}

// shareID calls Share and hashes the name; a panic becomes an error.
func (p *compiledPolicy) shareID(req *http.Request) (id uint64, err error) {
	defer recoverAs(&err, p.Name, "Share")
	return store.ShareOf(p.Name, p.Share(req)), nil
}

// weight calls Weight, and checks the result; a panic becomes an error.
func (p *compiledPolicy) weight(req *http.Request) (weight int, err error) {
	defer recoverAs(&err, p.Name, "Weight")
	weight = p.Weight(req)
	return weight, checkWeight(p.Name, "Weight", weight)
}

// answer calls Answer, which must not be nil; a panic becomes an error.
func (p *compiledPolicy) answer(resp *http.Response) (a Answer, err error) {
	defer recoverAs(&err, p.Name, "Answer")
	return p.Answer(resp), nil
}

// meter calls Meter, which must not be nil; a panic becomes an error.
func (p *compiledPolicy) meter(resp *http.Response) (m Meter, err error) {
	defer recoverAs(&err, p.Name, "Meter")
	return p.Meter(resp), nil
}

// maxName is how many characters a policy's name may have.
const maxName = 200

// checkName checks a policy's name: stores, JSON, metrics and terminals must be able to show it
// as it is.
func checkName(name string) error {
	if name == "" {
		return errors.New("is missing: it names the policy in the store, in errors and in events")
	}
	if !utf8.ValidString(name) {
		return errors.New("is not UTF-8")
	}
	if n := utf8.RuneCountInString(name); n > maxName {
		return fmt.Errorf("has %d characters: use %d at the most", n, maxName)
	}

	for _, c := range name {
		if !unicode.IsPrint(c) {
			return fmt.Errorf("holds %U, which cannot be printed", c)
		}
	}

	// A space at an end is seen by nobody, and names different budgets.
	if strings.TrimSpace(name) != name {
		return errors.New("begins or ends with a space: take it out, or a program without it has other budgets")
	}

	return nil
}

// nameInErrors returns how errors call a policy whose name is wrong. A policy without a name is
// called by its place in the slice, where i is its index. A name is cut off after maxName
// characters.
func nameInErrors(name string, i int) string {
	if name == "" {
		return fmt.Sprintf("#%d", i+1)
	}
	n := 0
	for at := range name {
		n++
		if n > maxName {
			return name[:at] + "…"
		}
	}
	return name
}

// recoverAs is deferred around a call of a policy's function. It turns a panic into an error
// that names the policy and the field of the function, and sets *err to the error.
func recoverAs(err *error, policy, field string) {
	v := recover()
	if v == nil {
		return
	}

	// A function of Observers panics with the error of its observer, which names the line of the first panic.
	if failed, ok := v.(*observersError); ok {
		*err = failed.error
		return
	}

	// A key function of this package panics with its own fault.
	if wrong, ok := v.(*keyError); ok {
		*err = &ConfigError{policy, field, wrong}
		return
	}

	*err = &ConfigError{policy, field, panics.Of(v)}
}

// abortsHandler reports whether a function of a policy panicked to abort the HTTP
// handler that it runs in: net/http wants to see that panic.
func abortsHandler(err error) bool {
	e, ok := errors.AsType[*panics.Error](err)
	return ok && e.Aborts
}

// Observers returns a function for [Config.Observe] that tells several observers of each
// event, in their order. It skips nil observers, and returns nil if none is left.
//
// After a panic of one observer the event still reaches the rest. All are told of the panic
// by an [EventFunctionFailed], as [Config.Observe] says.
func Observers(all ...func(context.Context, Event)) func(context.Context, Event) {
	all = slices.DeleteFunc(slices.Clone(all), func(o func(context.Context, Event)) bool { return o == nil })
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}

	return func(ctx context.Context, e Event) {
		// Every observer gets the event, whichever panics. The first panic is kept.
		var failed error
		for _, o := range all {
			failed = cmp.Or(failed, observer(o).call(ctx, e))
		}

		// The caller recovers the panic and reports it to this function, and so to all observers.
		if failed != nil {
			panic(&observersError{failed})
		}
	}
}

// An observersError is the panic of a function of [Observers]: the panic of one of its
// observers.
type observersError struct{ error }

// An observer is [Config.Observe].
type observer func(context.Context, Event)

// guarded returns a function that calls the observer and never panics: after a panic it tells the
// observer of the panic. It returns nil if there is no observer.
func (o observer) guarded() func(context.Context, Event) {
	if o == nil {
		return nil
	}
	return func(ctx context.Context, e Event) {
		if err := o.call(ctx, e); err != nil {
			_ = o.call(ctx, Event{Kind: EventFunctionFailed, Policy: e.Policy, Budget: e.Budget, Limit: e.Limit, Err: err})
		}
	}
}

// call calls the observer; a panic becomes an error.
func (o observer) call(ctx context.Context, e Event) (err error) {
	defer recoverAs(&err, e.Policy, "Observe")
	o(ctx, e)
	return nil
}

// maxWeight is the largest weight of a share.
const maxWeight = 1000

// errNoTurns is the error of a share under a limit that has no line for starts.
var errNoTurns = errors.New("only a limit that counts starts has a line in which shares take turns: leave the share out with Concurrency, Unlimited and Told")

// checkShares checks the fields of a policy that are about shares.
func (p *Policy) checkShares() error {
	switch {
	case p.Share == nil && p.Weight != nil:
		return errors.New("a Weight has no effect without Share: set Share, or leave Weight out")
	case p.Share != nil && !takesTurns(p.Limit):
		return errNoTurns
	}
	return nil
}

// takesTurns reports whether shares take turns under a limit.
func takesTurns(l Limit) bool { return l.Counts() && l.Kind() != store.KindTold }

// checkWeight returns the error of a weight that is out of range. 0 means 1.
func checkWeight(policy, field string, weight int) error {
	if weight < 0 || weight > maxWeight {
		return &ConfigError{policy, field, fmt.Errorf("%d is out of range: use 1 to %d", weight, maxWeight)}
	}
	return nil
}

// A policySet is a set of policies made ready for requests. A policySet never changes:
// SetPolicies replaces it.
type policySet struct {
	given    []Policy // the policies as the program wrote them
	policies []compiledPolicy
	byName   map[string]*compiledPolicy
	index    *match.Index
	replaced chan struct{} // closed when SetPolicies replaces the set

	awaitsPolicies bool // New or NewLimiters got no policies: requests are refused until SetPolicies brings some
}

// livePolicies is the policySet that counts now.
type livePolicies struct{ atomic.Pointer[policySet] }

// Load returns the policySet that counts now: an empty one in a Transport or in Limiters that no constructor has
// made.
func (l *livePolicies) Load() *policySet {
	if s := l.Pointer.Load(); s != nil {
		return s
	}
	return &policySet{index: match.NewIndex(nil)}
}

// begin sets the policies of a Config, unless they have mistakes. If there are none, requests are refused until
// SetPolicies brings some.
func (l *livePolicies) begin(policies []Policy, by callers) error {
	s, err := newPolicySet(policies, by)
	if err != nil {
		return err
	}

	s.awaitsPolicies = len(policies) == 0
	l.Store(s)
	return nil
}

// set replaces the policySet, unless the policies have mistakes, and tells the callers that wait under the old set.
func (l *livePolicies) set(policies []Policy, by callers) error {
	next, err := newPolicySet(policies, by)
	if err != nil {
		return err
	}
	if last := l.Swap(next); last != nil {
		close(last.replaced)
	}
	return nil
}

// policyNamed returns the policy of a name. Its error says that owner, such as "the limiters have",
// has no such policy.
func (s *policySet) policyNamed(policy, owner string) (*compiledPolicy, error) {
	if p := s.byName[policy]; p != nil {
		return p, nil
	}
	return nil, &ConfigError{policy, "Name", errors.New(owner + " no policy of this name")}
}

// newPolicySet makes policies ready for their callers. Its error joins all mistakes in the policies.
func newPolicySet(policies []Policy, by callers) (*policySet, error) {
	s := &policySet{given: slices.Clone(policies), policies: make([]compiledPolicy, len(policies)), byName: make(map[string]*compiledPolicy), replaced: make(chan struct{})}
	patterns := make([]*match.Pattern, len(policies))

	var errs []error
	for i, p := range policies {
		c, err := compile(p, i, by)
		if err != nil {
			errs = append(errs, err)
		}

		// Two policies of one name would have the same keys in the store, and count in each other's budgets.
		if p.Name != "" && s.byName[p.Name] != nil {
			errs = append(errs, &ConfigError{p.Name, "Name", errors.New("two policies have this name: give each its own")})
		}

		s.policies[i], patterns[i], s.byName[p.Name] = c, c.pattern, &s.policies[i]
	}

	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}

	// A request books in all of its budgets in one step, so the budgets of policies that can match one request have one
	// group: a group lies on one server of a cluster.
	for i, g := range match.Groups(patterns) {
		s.policies[i].charge.Budget.Group = g
	}

	s.index = match.NewIndex(patterns)
	return s, nil
}

// A quote is the price of a request: a charge for each policy that it matches.
type quote struct {
	charges  []store.Charge
	policies []*compiledPolicy // in the same order
	zeroCost []zeroCost        // policies under which the request costs nothing

	unpriced []unpriced // policies in Shadow whose functions failed, which refuses nobody
}

// An unpriced is a policy without a charge for the request, because a function of the policy
// failed.
type unpriced struct {
	policy *compiledPolicy
	err    error
}

// A zeroCost is a policy under which a request costs nothing. It holds no request,
// but learns from the response.
type zeroCost struct {
	policy *compiledPolicy
	charge store.Charge
}

// fewPolicies is how many policies a request may match before matching allocates
// memory: the size of the buffers for their indexes.
const fewPolicies = 8

// quote returns the quote of the request.
func (s *policySet) quote(req *http.Request) (q quote, err error) {
	var matchBuf [fewPolicies]int32
	err = q.priceRequest(s, s.index.Match(matchBuf[:0], req), req)
	return q, err
}

// priceRequest sets the quote to the charges of the request under each policy of s whose
// index is in matched. A policy that cannot be priced, or under which the request is free, has
// no charge in the quote. The error is of the first policy that cannot be priced and is not in
// Shadow.
func (q *quote) priceRequest(s *policySet, matched []int32, req *http.Request) (err error) {
	// The quote may have been filled before: its memory is used again.
	charges, policies := slices.Grow(q.charges[:0], len(matched)), slices.Grow(q.policies[:0], len(matched))
	q.zeroCost, q.unpriced = q.zeroCost[:0], nil

	var bound match.Bound
	for _, i := range matched {
		p, n := &s.policies[i], len(policies)
		charges, policies = append(charges, p.charge), append(policies, p)
		if p.fixed {
			continue
		}

		c := &charges[n]
		failed := p.price(c, req, &bound)
		if failed == nil && c.Cost > 0 {
			continue
		}

		// The request is free under this policy, or the policy cannot be priced, so take the charge out again.
		charges, policies = charges[:n], policies[:n]
		err = cmp.Or(err, q.leaveOut(p, c, failed))
	}

	q.charges, q.policies = charges, policies
	return err
}

// leaveOut notes that a policy has no charge in the quote: the request costs nothing under the
// policy or, if failed is not nil, the policy could not be priced. c is the policy's charge. leaveOut
// returns failed unless the policy is in Shadow, which refuses no request.
func (q *quote) leaveOut(p *compiledPolicy, c *store.Charge, failed error) error {
	switch {
	case failed == nil:
		c.Cost = 1 // for calls of the store about the budget, such as Pause: a cost is at least 1
		q.zeroCost = append(q.zeroCost, zeroCost{p, *c})
	case p.Shadow:
		q.unpriced = append(q.unpriced, unpriced{p, failed})
	default:
		return failed
	}
	return nil
}
