// Package throttle keeps a fleet of programs within the limits of somebody
// else's API. It wraps the transport of an [http.Client]: every request is
// matched to policies, takes a place in budgets that all programs share, and is
// held until there is room. Code that uses the client does not change.
//
// # The promise
//
// No interval of a window's length holds more requests than the limit, as the
// upstream counts their arrivals. That holds for any number of programs, with any
// clocks. docs/guarantees.md says where it ends, as when the store has lost starts
// that no living program knows. And nearly all of the quota is used: a caller books
// the first start at which every budget has room, sleeps once, and goes. Starts are
// booked in order of arrival. A caller that leaves gives its place back.
// docs/glossary.md explains the words.
//
// # A short program
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    memstore.New(),
//		Policies: []throttle.Policy{{Name: "api", Limit: throttle.PerSecond(20)}},
//	}))}
//
// Each further idea is one more line: another row in Policies, a Match, a Key,
// MaxWait to be refused instead of held, redisstore for a fleet, Observe,
// Penalty, Cost, Settle, Headroom, Scope, Shadow.
//
// # Policies
//
// A [Policy] is one row of a provider's table. All policies that match a request
// apply, and its budgets are booked together at one start, or not at all: there
// is no precedence to learn. [Transport.Explain] says which apply to a request,
// and [Transport.SetPolicies] replaces them while the program runs.
//
// # Patterns
//
// Patterns are those of [http.ServeMux], "[METHOD ][HOST]/[PATH]", with these
// differences. All that match apply: there is no precedence and no conflict.
//
//   - "" matches every request.
//   - The host is the URL's, not the Host field's. Hosts are compared in lower
//     case (A to Z only), without a trailing dot.
//   - A host without a port matches every port; with a port, only that one,
//     whether the URL writes it or its scheme implies it.
//   - A host may begin with "*.", for one or more labels: "*.example.com/" does
//     not match example.com itself.
//   - A label may be a wildcard: "{shop}.myshopify.com/admin/". A Key reads its
//     value, in lower case, with [PathValue].
//   - A wildcard's name may stand once in a pattern, host included. IP addresses
//     have no wildcards.
//   - Nothing is redirected: "/a/" does not match "/a", and a path is compared in
//     its clean form, so "/a/../b" is "/b". An empty path is "/".
//   - "%2F" is part of a segment and never separates two.
//   - A request without a method is a GET.
//   - What could never match is refused, with its offset: a scheme, a query or
//     fragment, an unclean path, a character that no host has.
//
// # Keys
//
// A [Policy] without a Key has one budget. With a Key it has one for each value:
// [Header], [Query], [PathValue], [Host], [Path], [Method], any function of one's
// own, or several with [Join]. Values are hashed before they leave the program.
// If the limit is one for each application, its id is a better key than its token,
// which changes.
//
// # Limits
//
// [SlidingWindow] (and [PerSecond], [PerMinute], [PerHour]) is right against every
// upstream that counts n per interval, because each of its windows is one
// interval. [FixedWindow] and [CalendarWindow] use a quota to the full where the
// upstream resets at known moments. [LeakyBucket] spaces starts out. [TokenBucket]
// is right where the upstream keeps such a bucket, and only there. [Unlimited] is for
// rows that have no number: it holds nothing until an answer closes it. [ParseLimit]
// reads limits from text, such as "10000/20s" or "5000/month Asia/Shanghai".
//
// The upstream counts arrivals, not starts. [Policy.Jitter] is the time that may
// pass between the two: a window and Jitter together hold at most the limit's number
// of starts. So the share of the quota that can be used is per / (per + Jitter), 96.6 %
// of a second by default. A grant that cannot be used within Jitter is given up, and
// the caller books again. The grant is checked for the last time when the request has
// a connection and nothing is written yet, so a slow dial or handshake does no harm.
// That needs a base that calls the hooks of net/http/httptrace, as [http.Transport]
// does; with another base the last check is before the base is called.
//
// # Requests in flight
//
// [Concurrency] counts requests that have started and not ended, whatever their
// rate. A request ends when the body of its answer is closed, read to its end or fails,
// when the request itself fails, or when its context ends: whichever comes first. So
// a request whose body is neither read to its end nor closed stays in flight until
// its context ends, and for ever if the context does not end.
//
// When there will be room cannot be known beforehand. Callers stand in a line by
// arrival, for the whole fleet, and are woken in that order; a refusal has a
// RetryAfter of 0. A request that other policies hold takes no slot until its start
// has come. If no slot is free then, it gives the start back and gets in line. The
// requests in flight of a process that died end within 30 seconds.
//
// # Priorities
//
// [Policy.Headroom] is the share of a limit that requests of a priority must leave
// free; [WithPriority] says which a request has. Low requests wait while others
// find room at once, on the same budget. In line High goes before Normal, and Normal
// before Low, however long the others have waited. A start that is booked, for the
// next second at most, is never taken away again.
//
// # Waiting
//
// Only the near future is booked: 350 ms, or more where a window is longer than two seconds
// or the store is far away.
// Requests that have to wait for longer stand in line, by arrival, for the whole fleet.
// The line moves up when waiters leave, a request turns out to have cost less, a limit
// is raised, or a ban ends. A request may lose its start, because a connection took too
// long or a penalty came. Then it goes before all requests that came later. Whether a
// wait fits MaxWait and the deadline is decided at once, by an estimate: docs/line.md
// says how good it is.
//
// # Costs
//
// [Policy.Cost] says what a request costs before it is sent, and [Policy.Settle]
// what it has cost, once the answer is there: the tokens of a model, the points of
// a query. If it cost less, the difference is given back. If it cost more, the
// difference is charged at the request's own start, even above the limit
// (docs/guarantees.md), and later requests wait for it. For work that is not HTTP use
// [Permit.Settle].
//
// # Tables that are wrong
//
// An upstream that allows less than its documentation says refuses again and again. With
// [Policy.Adaptive] the fleet learns from such refusals how much is allowed, and tries
// now and then whether it is more: docs/learning.md says how, and what it costs.
//
// # Waiting and being refused
//
// A request waits as long as its context allows, but at most [Config.MaxWait], or what
// [WithMaxWait] says. If the wait cannot fit, the request is refused at once and spends
// nothing (http.Client.Timeout is a deadline, too). If the context ends during the
// wait, the place is given back.
//
// # One process or a fleet
//
// memstore keeps budgets in one process, redisstore in Redis for all programs that
// share it: a difference of one line. There is no list of nodes, nothing to register
// and nothing to close. Programs share a budget if they share the store, its
// namespace, the policy's name and the key. In a Redis Cluster they must also share
// the group: the last two labels of the policy's host. A policy without a host puts
// all policies of its table in one group, so add or remove such a policy in all
// programs at once.
//
// With a [Policy.Scope] of [Node] each store has the limit for itself. It is for what
// one machine or one address may do.
//
// # Penalties
//
// The Penalty of every policy that a request matched looks at the answer and says how
// long the policy's budget must now stay closed, counted from when the answer was
// sent. The default is [RetryAfter], which understands 429 and 503, but a 503 counts
// only as one of [OutageAnswers] in a row. Package feedback has classifiers for other
// statuses, headers and codes in bodies, and the packages in presets have whole tables
// of them.
//
// A penalty is stored, so it holds for the whole fleet: nothing starts before its end,
// not even a request that already has a start. Such a request books again, or is
// refused if it cannot wait so long. Of several penalties the latest end counts, and
// none lasts longer than [MaxPenalty]. After the end one request goes first, alone for
// about as long as its answer will take. Then a window comes back slowly: with an
// eighth of its limit at first, then half, in no more time than the penalty lasted. A
// refusal right after the end closes the budget for twice as long as the last one, for
// an hour at most. An operator closes a budget with [Limiter.Pause] and opens it with
// [Limiter.Resume].
//
// An upstream may also say what is left of a quota that others use too:
// [Policy.Quota] lowers what the fleet believes to have left, and never raises it.
//
// # Work that is not HTTP
//
// [NewLimiter] is for work under one policy, [NewLimiters] for work that takes from
// several budgets in one step. A [Permit] can be renewed right before its use, closes
// budgets when an error says so, and is told the true cost. Module grpcthrottle has
// interceptors for gRPC.
//
// # Events
//
// [Config.Observe] is told why a caller waits, which policy holds it, that a budget was
// closed elsewhere, and that it is open again. docs/events.md lists all events.
//
// # Errors
//
// [ErrLimited] is matched by every error that says: not sent, because of a limit.
// The error is a *[LimitError] and names the policy. A *[StoreError] says that the
// store could not be asked, and why: what failed, at which address, for how long.
// A caller whose context ended gets the context's own error; if it was waiting for the
// store, that error is a *[StoreError] too, for [errors.As]. None of these holds a URL,
// a token, a password or a key. http.Client itself adds the URL to the errors that it
// returns.
//
// # When the store is away
//
// A store that cannot be reached is asked again, for as long as the caller's
// context and MaxWait allow, and nothing is sent meanwhile. [Config.Observe] gets a
// [StoreFailed] for each request that waits for it, once an outage, as soon as a
// call has failed or a second has passed without an answer. When the store is back
// the request goes on with the usual events. With neither a deadline nor MaxWait a
// request waits for ever, so set one of the two. redisstore.Options has other ways
// to go on.
//
// # Retries
//
// The transport belongs inside a retrier, so that every attempt is charged; the
// other way round one permit pays for all of them. It never retries itself.
// Package retry is a retrier that knows of budgets: it repeats what was refused,
// codes in a 200 included, and leaves the waiting to the store. [PenaltyOf] tells
// other retriers what it knows.
package throttle
