// Package throttle keeps a fleet of programs within the limits of somebody
// else's API. It wraps the transport of an http.Client: every request is
// matched to policies, takes a place in budgets that all programs share, and is
// held until there is room. Code that uses the client does not change.
//
//	api := throttle.Policy{Name: "api", Match: "api.example.com/", Limit: throttle.PerSecond(20)}
//	transport := throttle.Must(throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{api}}))
//	client := retry.NewClient(transport).StandardClient() // an *http.Client; make it once, for the whole program
//
// After a 429 no request of the client starts for as long as its Retry-After says, and
// then the refused one is tried again. A request waits for a minute at most if neither
// Config.MaxWait nor a deadline of its context says otherwise.
//
// # The promise
//
// No interval of a window's length holds more requests than the limit, as the
// upstream counts their arrivals. The promise holds for any number of programs, with
// any clocks, and the page on [guarantees] says where it ends. Nearly all of the quota
// is used: a caller books the first start at which every budget has room, sleeps once,
// and goes. Starts are booked in order of arrival. A caller that leaves gives its place
// back.
//
// # Where to read on
//
// A [Policy] is one row of a provider's table. All policies that match a request
// apply, and their budgets are booked together at one start, or not at all.
// [Policy] documents patterns, keys, costs, answers and penalties. [Limit] says which
// kind of limit is right for which upstream. [Transport] is for HTTP, [Limiter] and
// [Limiters] are for all other work. [Config] says how long a request waits, and who is
// told why.
//
// Package memstore keeps budgets in one process, redisstore in Redis for all
// programs that share it: a difference of one line. There is no list of nodes,
// nothing to register and nothing to close. Programs share a budget if they share
// the store, its namespace, the policy's name and the key. The rest of their policies
// may differ. With a Policy.Scope of [ScopeNode] each store has the limit for itself.
//
// # Errors
//
// [ErrLimited] is matched by every error that says: not sent, because of a
// limit. The error is a *[LimitError] and names the policy. A *[StoreError] says
// that the store could not be asked, and why. A caller whose context ended gets
// the context's own error; if it was waiting for the store, that error is a
// *StoreError too, for errors.As. None of these holds a URL, a token, a password or
// a key. http.Client itself adds the URL to the errors that it returns.
//
// # Other packages
//
// Package feedback has classifiers for statuses, headers and codes in bodies,
// the packages in presets have whole tables of platforms, and package retry is a
// retrier that leaves the waiting to the store. The transport belongs inside a
// retrier, so that every attempt is charged. Package choice sends each request to
// the first of several deployments that is free. Package slogthrottle logs events.
//
// The [guide] has the rest in order, the [glossary] the words.
//
// [guarantees]: https://github.com/fleetthrottle/throttle/blob/main/docs/reference/guarantees.md
// [guide]: https://github.com/fleetthrottle/throttle/blob/main/docs/use/guide.md
// [glossary]: https://github.com/fleetthrottle/throttle/blob/main/docs/reference/glossary.md
package throttle
