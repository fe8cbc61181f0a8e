package throttle

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
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
// [shares]: https://github.com/fleetthrottle/throttle/blob/main/docs/shares.md
// [learning]: https://github.com/fleetthrottle/throttle/blob/main/docs/learning.md
// [guarantees]: https://github.com/fleetthrottle/throttle/blob/main/docs/guarantees.md
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
	//     what it says and those of "/send", which servers serve that decode first.
	//   - A request without a method is a GET.
	//   - What could never match is refused, with its offset: a scheme, a query or
	//     fragment, an unclean path, a character that no host has.
	//
	// Required for a Transport. In [NewLimiters] it defaults to "": the policy is used by name
	// only, and no request matches it.
	Match string

	// Key splits the policy into one budget for each value it returns: [Header],
	// [Query], [PathValue], [BodyMember], [Host], [RawPath], [Method], any function of one's own, or
	// several with [Join]. Values are hashed before they leave the program. If the
	// limit is one for each application, its id is a better key than its token,
	// which changes. On a pattern with
	// wildcards the request has them as path values. If it panics the request
	// is not sent and fails with a *[ConfigError] that names the type of the
	// panic's value and its line, but not the value, which may be a secret.
	// Defaults to nil: one budget for all.
	Key func(*http.Request) string

	// Keyed says that the policy has a budget for each key that its callers name, as [Demand.Key] or in
	// [Limiter.Acquire]: one for each tenant, say. A policy with a Key has keys in any case, and
	// a [Transport] needs a Key. Defaults to false: one budget for all, and a key is a mistake.
	Keyed bool

	// Share splits the callers of each budget into shares: tenants, jobs, agents. It returns the
	// name of the request's share, as Key returns a key: [Header], [PathValue] or any function;
	// "" is no share. While a budget is full its shares take turns, within a priority, so that no
	// share waits for the crowd of another: see the page on shares. All of the limit is used: what a
	// share does not ask for goes to the others. Names are hashed before they leave the program.
	// If it panics the request is not sent and fails with a *[ConfigError], as with Key. Not for
	// [Concurrency] and [Unlimited]. Defaults to nil: first come, first served.
	Share func(*http.Request) string

	// Weight returns how much the request's share gets beside the others, from 1 to 1000: a
	// share of weight 2 has two turns where one of weight 1 has one. What the last request of a share
	// says counts. 0 means 1. If it panics, or is out of range, the request is not sent and
	// fails with a *[ConfigError]. Defaults to nil: 1.
	Weight func(*http.Request) int

	// Limit is what each budget holds. Required.
	Limit Limit

	// Cost returns what the request costs. A result of [Free], or of 0, as of a count
	// of nothing, makes the request free under this policy, which then only learns from
	// its answer. If Cost panics, or returns another number below 0, the request is not
	// sent and fails with a *[ConfigError]. Defaults to nil: every request costs 1.
	Cost func(*http.Request) int

	// Answer looks at an answer of the upstream and returns what it means for this
	// budget: whether the request was refused, for how long the budget closes, what is
	// left of it, what the request has cost. It is called once for each answer, and may
	// look at the body through feedback.PeekBody only. Package feedback has readers for
	// the usual forms, which can be put together:
	//
	//	Answer: feedback.Headers{Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset"}.Answer,
	//
	// Where it says neither a Verdict nor a Close, the default reads the answer, so a
	// function that knows only costs keeps 429 and 503. A function that knows all
	// refusals of its budget ends with feedback.LeaveOpen. If
	// Answer panics, [RetryAfter] reads the answer instead, the caller gets the answer,
	// and [Config.Observe] is told.
	//
	// Close is counted from when the answer was sent, and it is stored, so
	// it holds for the whole fleet: nothing starts before its end, not even a
	// request that already has a start. Such a request books again, or is refused
	// if it cannot wait so long. Of several closings the latest end counts. After
	// the end one request goes first, alone for about as long as its answer will
	// take. Then a window comes back slowly: with an eighth of its limit at first,
	// then half, in no more time than the penalty lasted. A refusal right after the
	// end closes the budget for twice as long as the last one, for an hour at most.
	// An operator closes a budget with [Limiter.Pause] and opens it with
	// [Limiter.Resume].
	//
	// What is left lowers what the fleet believes to have left, and never raises it.
	// [Unlimited] has no number to lower.
	//
	// What the request has cost, such as tokens of a model or points of a query, takes
	// the place of Cost. If it is less, the difference is given back. If it is more, the
	// difference is charged at the request's own start, even above the limit
	// (see the page on guarantees), and later requests wait for it; under a LeakyBucket at most
	// as much as closes it for [MaxPenalty]. A request whose Cost is 0 stays free, and
	// what is in flight keeps its Cost.
	//
	// Defaults to nil: [RetryAfter] with two exceptions. A 503 closes the budget only as one of
	// ten in a row, because a single backend of many may send it. And of
	// several rows that the default reads a 429 closes one alone, the first that has a
	// key: so the refusal of one tenant stops that tenant, and not all, if the row of the tenant
	// stands before that of the address. Without any key it closes all. A row that a 429
	// must close in any case, because the upstream bans the address, has [RetryAfter].
	Answer func(*http.Response) Answer

	// Adaptive makes the fleet learn how much of the limit the upstream truly
	// allows. A refusal although the budget had room lowers a ceiling that all
	// programs obey beside the limit. The ceiling rises again by itself, fast at
	// first and slowly near the level that was refused: see the page on learning. It is
	// for a limit that is documented wrongly, or shared with programs that do not use
	// throttle. Where the limit is right, and nothing else is refused, it changes
	// nothing. A refusal that says what is left teaches nothing.
	// If an answer closes several such budgets, the fullest one learns. Not for
	// [Concurrency] and [Unlimited], and a Shadow policy learns nothing. Defaults to
	// false: only the limit counts.
	Adaptive bool

	// Jitter is the time that may pass between a grant and the arrival at
	// the upstream: a limit of n per second leaves room for n per second
	// and Jitter, and a grant that cannot be used within it is taken anew.
	// So the share of the quota that can be used is per / (per + Jitter),
	// 96.6 % of a second by default. The grant is checked for the last time when
	// the request has a connection and nothing is written yet, so a slow dial or
	// handshake does no harm. That needs a base that calls the hooks of
	// net/http/httptrace, as [http.Transport] does; with another base the last
	// check is before the base is called.
	// Negative: none, so that starts are counted where they are granted and
	// a grant may be used however late; under [LeakyBucket] and [TokenBucket] starts
	// leave a microsecond free, the unit in which stores count. Defaults to 35 ms.
	Jitter time.Duration

	// Headroom is the share of the limit, from 0 to below 1, that requests
	// of a priority must leave free; see [WithPriority]. Map Low to 0.2, and
	// low requests use at most four fifths of the limit, so that others find
	// room at once, on the same budget. The last unit of an idle budget is for any request. Not for
	// LeakyBucket and Unlimited, which have nothing to share out. Defaults to nil:
	// nothing is left free.
	Headroom map[Priority]float64

	// Shadow makes the policy count and report, but never hold or refuse, not
	// even if its Key or its Cost panics. A request under such policies alone does not wait for a
	// store that is away: it starts, and is not counted.
	Shadow bool

	// Scope says which programs share the budgets. Defaults to [ScopeFleet].
	Scope Scope

	// Meter is for an answer whose body says late what the request cost, as a
	// stream does in its last event. It is called once the answer is there, unless
	// Answer knew the cost, and returns a [Meter] that reads along while the caller
	// reads the body; nil for an answer that needs none. When the body is over the
	// Meter's Cost settles the request as a cost in an [Answer] does. It must leave the
	// body alone. Not for [Concurrency]. Defaults to nil: no body is read along.
	Meter func(*http.Response) Meter
}

// A Meter reads along while a caller reads an answer's body, and says in the end what
// the request cost. The caller gets each byte when it comes, and as it came: a Meter
// delays nothing but by the time of its own Write, so it must not block.
//
// Write gets the body's text in pieces of any length. A body in gzip or deflate, which
// the base has left to the caller, is decoded at its end, and a Meter gets 16 MB of
// its text at most; one that is longer than 1 MB before it is decoded, and one in
// another coding, is not metered ([EventIllegible] tells of the latter). An error means that
// the Meter has seen enough.
//
// Cost is called once, when the body is over: it was read to its end, a read failed,
// or the caller closed it, however early. Then nothing is written any more. Below 0
// it says that the body has not told, and the request costs what was booked. A body
// that its caller neither reads to the end nor closes is never over.
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

// reserves is a policy's Headroom in units of its limit.
type reserves [3]int

// forPriority returns how much of the limit a request of priority p must leave free.
func (r *reserves) forPriority(p Priority) int {
	if p < PriorityLow || p > PriorityHigh {
		return 0
	}
	return r[p-PriorityLow]
}

// newReserves checks a policy's Headroom. A share is rounded up, but a request
// may always use the last unit of an idle budget.
func newReserves(headroom map[Priority]float64, l Limit) (r reserves, err error) {
	var errs []error
	for p, share := range headroom {
		switch {
		case p < PriorityLow || p > PriorityHigh:
			errs = append(errs, fmt.Errorf("%v is no priority: use PriorityLow, PriorityNormal or PriorityHigh", p))
		case math.IsNaN(share) || share < 0 || share >= 1:
			errs = append(errs, fmt.Errorf("%v must leave %v free: use a share from 0 to below 1", p, share))
		case share > 0 && l.Kind() == store.KindUnlimited:
			errs = append(errs, errors.New("an unlimited policy has nothing to share out: leave Headroom out, or set a limit with a number"))
		case share > 0 && l.Kind() == store.KindLeakyBucket:
			errs = append(errs, errors.New("a leaky bucket spaces starts out and has no share to leave free: use a window or a token bucket"))
		default:
			r[p-PriorityLow] = min(int(math.Ceil(share*float64(l.Capacity()))), max(0, l.Capacity()-1))
		}
	}

	return r, errors.Join(errs...)
}
