// Package riot is the table of limits of the Riot Games API.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: riot.Policies(riot.Options{}),
//	}))}
//
// # Rows
//
//	riot-app-1s    20 in 1 second, for each key and region
//	riot-app-120s  100 in 120 seconds, for each key and region
//	riot-method    the limit of a method for each key in each region: stated in answers
//	riot-service   the common limit of a service in each region: not published
//
// That is with a development key. With a production key the first two are
// riot-app-10s (500) and riot-app-600s (30,000).
//
// The last two hold no request by themselves: they live on what answers say. Those
// lower riot-method, which therefore has a number that nobody reaches, and close both.
//
// # Refusals
//
// A 429 says in X-Rate-Limit-Type which limit it is about, and in Retry-After
// for how long:
//
//	application                            riot-app-…
//	method                                 riot-method
//	service, no type or an unknown type    riot-service
//	status 503, ten in a row               riot-service
//
// Without a Retry-After, as in refusals of the services underneath, it is five seconds.
// X-App-Rate-Limit-Count and X-Method-Rate-Limit-Count lower the rows if other programs use the
// key.
//
// Keys that are refused again and again get blacklisted, says a client's
// documentation. So do not retry without waiting.
//
// # Not covered
//
// Methods that do not count for the app's limit: here all do. The windows' beginnings, which
// answers do not state, so all windows are sliding windows here.
//
// # Sources
//
// Facts as of 2026-11. Official, but from an old edition of the documentation:
// limits, headers, refusals (https://hextechdocs.dev/rate-limiting), the numbers
// of production keys also
// https://github.com/api-evangelist/riot-games/blob/main/rate-limits/riot-games-rate-limits.yml.
// Observed: fixed windows (the same page), the blacklist
// (https://github.com/fightmegg/riot-rate-limiter/wiki/429-Reponses). From common
// use: hosts and paths, where the key stands. Inferred: the five seconds, which
// windows methods have, which part of a path is the method, and that a 503 may
// have a Retry-After (RFC 9110).
package riot

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// Development returns the limits of a development key.
func Development() []throttle.Limit {
	return []throttle.Limit{
		throttle.SlidingWindow(20, time.Second),
		throttle.SlidingWindow(100, 120*time.Second),
	}
}

// Production returns the limits that a production key begins with.
func Production() []throttle.Limit {
	return []throttle.Limit{
		throttle.SlidingWindow(500, 10*time.Second),
		throttle.SlidingWindow(30_000, 600*time.Second),
	}
}

// longest is the longest window that a method is known to have.
const longest = 600 * time.Second

// unpublished is the limit of methods until an answer states their remaining calls: more than
// anybody sends. It is a number, because only a number can be lowered.
var unpublished = throttle.SlidingWindow(1_000_000_000, longest)

// Options hold the limits of a key, and identify the key. The zero value is development keys.
type Options struct {
	// Limits are the key's limits in each region, one for each window. Defaults to [Development].
	Limits []throttle.Limit

	// Key is any name for the API key. Defaults to "": keys are told apart by
	// the header X-Riot-Token or, without it, the parameter api_key.
	Key string

	// Caller says with which key a request is sent, for a program that has
	// several. It replaces Key, and "" means the same. Defaults to nil.
	Caller func(*http.Request) (key string)

	// Method tells methods apart. Defaults to the HTTP method and the path, with "*" for a
	// segment behind a segment that begins with "by-", and for a segment with other characters
	// than small letters and hyphens, except the version.
	Method func(*http.Request) string

	// Host is a pattern of the API's hosts, in place of the default for a fake,
	// a proxy or a server of one's own. Its wildcard {region} tells regions
	// apart; without one all are one. Defaults to
	// "{region}.api.riotgames.com".
	Host string
}

// Policies returns the Riot Games API's table of limits.
func Policies(o Options) []throttle.Policy {
	if o.Limits == nil {
		o.Limits = Development()
	}
	if o.Method == nil {
		o.Method = method
	}

	match := cmp.Or(o.Host, "{region}.api.riotgames.com") + "/"
	region := throttle.PathValue("region")
	key := caller.Or(caller.ID(o.Key, o.Caller), token)

	var rows []throttle.Policy
	for _, l := range o.Limits {
		rows = append(rows, throttle.Policy{
			Name: fmt.Sprintf("riot-app-%ds", l.Per()/time.Second), Match: match, Key: throttle.Join(key, region),
			Limit: l, Answer: feedback.All(refused("application"), left("App", l.Per())),
		})
	}

	return tablerow.Table(append(rows,
		throttle.Policy{
			Name: "riot-method", Match: match, Key: throttle.Join(key, region, o.Method),
			Limit: unpublished, Answer: feedback.All(append(leftOfMethod(), refused("method"))...),
		},
		throttle.Policy{
			Name: "riot-service", Match: match, Key: throttle.Join(region, service),
			Limit: throttle.Unlimited(), Answer: serviceRefused(),
		},
	))
}

// token is a [throttle.Policy.Key]: the API key.
var token = caller.Or(throttle.Header("X-Riot-Token"), throttle.Query("api_key"))

// method is the default of [Options.Method], with "*" for each id. A GET of
// "/lol/match/v5/matches/by-puuid/aB3-…/ids" is
// "GET /lol/match/v5/matches/by-puuid/*/ids".
func method(r *http.Request) string {
	segments := strings.Split(throttle.RawPath(r), "/")
	for i, s := range segments {
		isVersion := i == 3 // "", "lol", "match", "v5"
		isWord := strings.Trim(s, "abcdefghijklmnopqrstuvwxyz-") == ""
		isNamed := i > 0 && strings.HasPrefix(segments[i-1], "by-") // such as the name behind "by-name"
		if !isVersion && (!isWord || isNamed) {
			segments[i] = "*"
		}
	}
	return throttle.Method(r) + " " + strings.Join(segments, "/")
}

// service is a [throttle.Policy.Key]: the first two segments of the path, as in "/lol/match".
func service(r *http.Request) string {
	segments := strings.SplitN(throttle.RawPath(r), "/", 4)
	return strings.Join(segments[:min(3, len(segments))], "/")
}

// unsaid is how long a refusal without a length counts.
const unsaid = 5 * time.Second

// refused returns a reader that closes the row after a 429 of one type.
func refused(kind string) feedback.Reader {
	return feedback.When{
		Status: []int{429},
		Header: map[string]string{"X-Rate-Limit-Type": kind},
	}.Then(feedback.RetryAfter(unsaid))
}

// serviceRefused returns a reader that closes the row after a 429 about neither the application nor the method, and after
// an outage.
func serviceRefused() feedback.Reader {
	// The refusals of the application and of the method close rows of their own.
	return feedback.First(
		feedback.When{Header: map[string]string{"X-Rate-Limit-Type": "application"}}.Then(feedback.For(0)),
		feedback.When{Header: map[string]string{"X-Rate-Limit-Type": "method"}}.Then(feedback.For(0)),
		feedback.When{Status: []int{429}}.Then(feedback.RetryAfter(unsaid)),
		tablerow.Outage(),
	)
}

// left returns a reader of the remaining calls in an app's or a method's window: of "100:120" and
// "57:120" they are 43.
func left(whose string, window time.Duration) feedback.Reader {
	return feedback.Headers{
		Limit: "X-" + whose + "-Rate-Limit",
		Used:  "X-" + whose + "-Rate-Limit-Count",
		Per:   window,
	}.Left
}

// leftOfMethod returns readers of the remaining calls in each known window of methods.
func leftOfMethod() (all []feedback.Reader) {
	for _, seconds := range []time.Duration{1, 10, 60, 120, 600} {
		all = append(all, left("Method", seconds*time.Second))
	}
	return all
}
