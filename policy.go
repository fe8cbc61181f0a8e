package throttle

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A Policy is one row of a provider's table of limits. A request obeys every
// policy that it matches: there is no precedence. [Transport.Explain] says which
// apply to a request, and [Transport.SetPolicies] replaces them while the program
// runs. The zero value of each field but Name and Limit is useful.
//
// There are pages on [shares], on [learning], and on where the [guarantees] end.
//
// [shares]: https://github.com/fleetthrottle/throttle/blob/main/docs/use/shares.md
// [learning]: https://github.com/fleetthrottle/throttle/blob/main/docs/use/bans.md#learn-from-refusals
// [guarantees]: https://github.com/fleetthrottle/throttle/blob/main/docs/reference/guarantees.md
type Policy struct {
	// Name is unique among the policies that share a store. It is part of
	// the store's keys and stands in errors, events and metrics, so it is UTF-8 that
	// can be printed, of at most 200 characters, without a space around it.
	Name string

	// Match is a pattern "[METHOD ][HOST]/[PATH]", in the language of
	// [http.ServeMux], with these differences. All patterns that match apply:
	// there is no precedence and no conflict.
	//
	//   - "/" matches every request.
	//   - The host is the URL's, not the Host field's. Hosts are compared in lower
	//     case (A to Z only), without a trailing dot.
	//   - A host without a port matches every port; with a port, only that one,
	//     whether the URL writes it or its scheme implies it.
	//   - A host may begin with "*.", for one or more labels: "*.example.com/"
	//     does not match example.com itself.
	//   - A label may be a wildcard: "{shop}.myshopify.com/admin/". A Key reads
	//     its value, in lower case, with [PathValue].
	//   - A wildcard's name may stand once in a pattern, host included. IP
	//     addresses have no wildcards.
	//   - Nothing is redirected: "/a/" does not match "/a", and a path is
	//     compared in its clean form, so "/a/../b" is "/b". An empty path is "/".
	//   - "%2F" is part of a segment and separates two only where it hides a segment of
	//     dots: a path such as "/x/%2e%2e/send" or "/x/..%2fsend" obeys the policies of
	//     the path as written, and the policies of "/send", which is the path on servers
	//     that decode before they clean.
	//   - A request without a method is a GET.
	//   - A pattern that could never match is an error, with the offset of the mistake: a
	//     scheme, a query or fragment, an unclean path, a character that no host has.
	//
	// Required for a Transport. In [NewLimiters] it defaults to "": the policy is used by name
	// only, and no request matches it.
	Match string

	// Key splits the policy into one budget for each value that Key returns: [Header],
	// [Query], [PathValue], [BodyMember], [Host], [RawPath], [Method], any function of
	// one's own, or several with [Join]. Values are hashed before they leave the program.
	// If the limit is per application, the id of the application is a better key than its
	// token, which changes. On a pattern with wildcards the request has their values as
	// path values. If Key panics the request is not sent and fails with a *[ConfigError]
	// that names the type of the panic's value and its line, but not the value, which may
	// be a secret. Defaults to nil: all requests share one budget.
	Key func(*http.Request) string

	// Keyed says that the policy has a budget for each key that its callers name, as
	// [Demand.Key] or in [Limiter.Acquire]: a budget for each tenant, say. A policy with a
	// Key has keys in any case, and a [Transport] needs a Key. Defaults to false: all
	// callers share one budget, and naming a key is a mistake.
	Keyed bool

	// Share splits the callers of each budget into shares: tenants, jobs, agents. Share
	// returns the name of the request's share, as Key returns a key: [Header], [PathValue]
	// or any function. The empty name is no share. While a budget is full its shares take
	// turns, within a priority, so that no share waits for the crowd of a different share:
	// see the page on shares. All of the limit is used: a share that asks for less leaves
	// the rest to the shares that wait. Names are hashed before they leave the program. If
	// Share panics the request is not sent and fails with a *[ConfigError], as with Key.
	// Not for [Concurrency], [Unlimited] and [Told]. Defaults to nil: callers are served in the
	// order of their arrival.
	Share func(*http.Request) string

	// Weight returns the weight of the request's share, from 1 to 1000: a share of weight 2
	// has two turns for each turn of a share of weight 1. The weight of the share's latest
	// request counts. Zero means 1. If Weight panics, or its result is out of range, the
	// request is not sent and fails with a *[ConfigError]. Defaults to nil: all shares have
	// the weight 1.
	Weight func(*http.Request) int

	// Limit is the limit of each budget. Required.
	Limit Limit

	// Cost returns the cost of the request in units of the limit. With a cost of [Free] or
	// 0 the request is free under this policy, which then only learns from the answer. If
	// Cost panics, or returns a negative number other than Free, the request is not sent
	// and fails with a *[ConfigError]. Defaults to nil: every request costs 1.
	Cost func(*http.Request) int

	// Answer reads an answer of the upstream and returns its meaning for this budget:
	// whether the request was refused, for how long the budget closes, the quota that is
	// left, the cost of the request. Answer is called once for each answer, and may read
	// the body through feedback.PeekBody only. Package feedback has readers for the usual
	// forms, which can be combined:
	//
	//	Answer: feedback.Headers{Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset"}.Answer,
	//
	// If the result has neither a Verdict nor a Close, the default reads the answer, so
	// that a function that knows only costs keeps 429 and 503. A function that knows all
	// refusals of its budget ends with feedback.LeaveOpen. If Answer panics, [RetryAfter]
	// reads the answer instead, the caller gets the answer, and [Config.Observe] is told.
	//
	// Close is counted from the moment when the answer was sent. Close is stored, so it
	// holds for the whole fleet: nothing starts before its end, not even a request that
	// already has a start. Such a request books again, or is refused if it cannot wait that
	// long. Of several closings the latest end counts. After the end one request goes
	// first, alone for about as long as its answer will take. Then a window comes back
	// slowly: with an eighth of its limit at first, then half, in no more time than the
	// penalty lasted. A refusal right after the end closes the budget for twice as long as
	// the last penalty, for an hour at most. An operator closes a budget with
	// [Limiter.Pause] and opens it with [Limiter.Resume].
	//
	// A quota lowers the number of starts that the fleet believes to have left, and never
	// raises it. [Unlimited] has no number to lower. Under [Told] an answer also tells the
	// limit itself.
	//
	// A cost, such as tokens of a model or points of a query, replaces the booked Cost. If
	// the cost is lower, the difference is given back. If it is higher, the difference is
	// charged at the request's own start, even above the limit (see the page on
	// guarantees), and later requests wait for it. Under a LeakyBucket no cost closes the
	// budget for longer than [MaxPenalty]. A request whose Cost is 0 stays
	// free, and requests under [Concurrency] keep their Cost.
	//
	// Defaults to nil: [RetryAfter] with two exceptions. A 503 closes the budget only as
	// the tenth in a row, because a single backend of many may send it. And of several rows
	// that the default reads a 429 closes only the first that has a key. So the refusal of
	// one tenant stops that tenant, and not all tenants, if the row of the tenant stands
	// before the row of the address. If no row has a key, the 429 closes all of them. A row
	// that a 429 must close in any case, because the upstream bans the address, has
	// [RetryAfter] as its Answer.
	Answer func(*http.Response) Answer

	// Adaptive makes the fleet learn how much of the limit the upstream truly allows. A
	// refusal although the budget had room lowers a ceiling that all programs obey beside
	// the limit. The ceiling rises again by itself, fast at first and slowly near the level
	// that was refused: see the page on learning. Adaptive is for a limit that is
	// documented wrongly, or shared with programs that do not use throttle. Where the limit
	// is right, and only the limit causes refusals, it changes nothing. The fleet does not
	// learn from a refusal that states the remaining quota. If an answer closes several
	// such budgets, the fullest one learns. Not for [Concurrency] and [Unlimited], and a
	// Shadow policy learns nothing. Defaults to false: only the limit counts.
	Adaptive bool

	// Jitter is the time that may pass between a grant and the arrival at the upstream: a
	// limit of n per second leaves room for n per second and Jitter, and a grant that
	// cannot be used within Jitter is taken anew. So the usable part of the quota is per /
	// (per + Jitter), 96.6 % of a second by default. The grant is checked for the last time
	// when the request has a connection and nothing is written yet, so a slow dial or
	// handshake does no harm. That needs a base that calls the hooks of net/http/httptrace,
	// as [http.Transport] does. With every other base the last check is before the base is
	// called. A negative Jitter means none: starts are counted where they are granted, and
	// a grant may be used however late. Under [LeakyBucket] and [TokenBucket] starts then
	// leave a microsecond free, the unit in which stores count. Defaults to 35 ms.
	Jitter time.Duration

	// Headroom is the share of the limit, from 0 to below 1, that requests of a priority
	// must leave free: see [WithPriority]. Map Low to 0.2, and low requests use at most
	// four fifths of the limit, so that requests of higher priority find room at once, on
	// the same budget. The last unit of an idle budget is for any request. Not for
	// LeakyBucket, Unlimited and Told, which have no share to leave free. Defaults to nil:
	// nothing is left free.
	Headroom map[Priority]float64

	// Shadow makes the policy count and report, but never hold or refuse, not even if its
	// Key or its Cost panics. A request that only shadow policies match does not wait for a
	// store that is away: the request starts, and is not counted.
	Shadow bool

	// Scope says which programs share the budgets. Defaults to [ScopeFleet].
	Scope Scope

	// Meter is for an answer whose body states the cost of the request late, as a stream
	// does in its last event. Meter is called once the answer is there, unless Answer knew
	// the cost, and returns a [Meter] that reads along while the caller reads the body, or
	// nil for an answer that needs none. When the body is over the Meter's Cost settles the
	// request as a cost in an [Answer] does. Meter must not read the body itself. Not for
	// [Concurrency]. Defaults to nil: no body is read along.
	Meter func(*http.Response) Meter
}

// A Meter reads along while a caller reads an answer's body, and returns the cost of the
// request at the end. The caller gets each byte unchanged, and when it comes: a Meter
// delays the caller only by the time of its own Write, so Write must not block.
//
// Write gets the body's text in pieces of any length. A body in gzip or deflate that the
// base has left to the caller is decoded at its end, and a Meter gets at most 16 MB of its
// text. A body that is longer than 1 MB before it is decoded is not metered. A body in an
// unknown coding is not metered, and an [EventIllegible] says so. An error of Write means
// that the Meter has seen enough.
//
// Cost is called once, when the body is over: it was read to its end, a read failed, or the
// caller closed it, however early. Write is not called afterwards. A negative Cost says
// that the body did not state the cost, and the request keeps its booked cost. A body that
// its caller neither reads to the end nor closes is never over.
//
// Write and Cost may be called by different goroutines, one at a time.
type Meter interface {
	io.Writer
	Cost() int
}

// A Scope says which programs share the budgets of a policy.
type Scope uint8

// The scopes.
const (
	ScopeFleet Scope = iota // all programs that use the store together
	ScopeNode               // each Store, so usually each process, has the limit for itself
)

// headrooms is the Headroom of a policy in units of its limit, by priority.
type headrooms [3]int

// forPriority returns how much of the limit a request of priority p must leave free: nothing for an
// unknown priority.
func (r *headrooms) forPriority(p Priority) int {
	if p < PriorityLow || p > PriorityHigh {
		return 0
	}
	return r[p-PriorityLow]
}

// newHeadrooms returns a policy's Headroom in units of its limit, or all mistakes in it. A
// share is rounded up, but a request may always use the last unit of an idle budget.
func newHeadrooms(headroom map[Priority]float64, l Limit) (r headrooms, err error) {
	var errs []error
	for _, p := range slices.Sorted(maps.Keys(headroom)) {
		share := headroom[p]
		switch {
		case p < PriorityLow || p > PriorityHigh:
			errs = append(errs, fmt.Errorf("%v is no priority: use PriorityLow, PriorityNormal or PriorityHigh", p))
		case math.IsNaN(share) || share < 0 || share >= 1:
			errs = append(errs, fmt.Errorf("%v must leave %v free: use a share from 0 to below 1", p, share))
		case share > 0 && l.Kind() == store.KindTold:
			errs = append(errs, errors.New("a policy whose limit answers tell has no number to share out: leave Headroom out, or set a limit with a number"))
		case share > 0 && l.Kind() == store.KindUnlimited:
			errs = append(errs, errors.New("an unlimited policy has nothing to share out: leave Headroom out, or set a limit with a number"))
		case share > 0 && l.Kind() == store.KindLeakyBucket:
			errs = append(errs, errors.New("a leaky bucket spaces starts out and has no share to leave free: use a window or a token bucket"))
		default:
			// Take off the rounding error of the product, which may be above a whole number: 0.07 of 100 are 7.
			units := math.Ceil(share * float64(l.Capacity()) * (1 - 1e-15))

			// A limit that is not valid, for which compile has an error of its own, may have a capacity of 0.
			r[p-PriorityLow] = min(int(units), max(0, l.Capacity()-1))
		}
	}

	return r, errors.Join(errs...)
}
