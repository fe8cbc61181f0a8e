// Package slack is the table of limits of Slack's Web API: its tiers, for each
// method, workspace and app, and messages, for each channel.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: slack.Policies(slack.Options{Methods: map[string]slack.Tier{"users.info": slack.Tier4}}),
//	}))}
//
// # Rows
//
//	row            limit  one budget for each              closed by
//	slack-tier-1   1/m    method, workspace and app        a refusal, below
//	slack-tier-2   20/m   method, workspace and app        the same
//	slack-tier-3   50/m   method, workspace and app        the same
//	slack-tier-4   100/m  method, workspace and app        the same
//	slack-message  1/s    channel, workspace and app       the same, of chat.postMessage
//
// A request is charged to the row of its method's tier, and chat.postMessage to slack-message
// alone. Slack promises the numbers and a little more; how much more, and in which window, is
// not published.
//
// # Refusals
//
// A 429 closes the method for its Retry-After; some old methods refuse with status
// 200 and the error "ratelimited" instead. Without a Retry-After the method is closed for a
// minute, the tiers' window (inferred). Ten 503 in a row with a Retry-After close it, too. Other
// methods, workspaces and apps go on.
//
// # Not covered
//
// The tiers of most methods: each method's page names its own, and
// [Options.Methods] takes it. The bound on all messages of a workspace, which is
// not published: if it refuses, that closes the channel only. Files, Events,
// incoming webhooks.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: tiers, the 429, history outside the Marketplace:
//     https://docs.slack.dev/apis/web-api/rate-limits
//   - official: a message a second in a channel:
//     https://api.slack.com/docs/rate-limits
//   - official: which apps keep tier 3 for history, until when:
//     https://docs.slack.dev/reference/methods/conversations.replies. The pages contradict each other: on the
//     first, apps installed before 2025-05-29 keep their tier, on this page they do until
//     2026-03-03. [Options.OutsideMarketplace] follows the stricter one.
//   - observed, in public code: "ratelimited" with status 200.
//   - from common use: the host and the paths.
//   - inferred: a minute where nothing is said.
package slack

import (
	"cmp"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// A Tier is how often a method may be called.
type Tier int

// The tiers.
const (
	Tier1 Tier = 1 + iota // 1 a minute
	Tier2                 // 20 a minute
	Tier3                 // 50 a minute
	Tier4                 // 100 a minute
)

var perMinute = map[Tier]int{Tier1: 1, Tier2: 20, Tier3: 50, Tier4: 100}

// Options are what differs between accounts. The zero value is one internal app
// in one workspace.
type Options struct {
	// App is the app's id. Not its token: an app may have several in a
	// workspace. Defaults to "": all programs that share the store are one app.
	App string

	// Workspace is the id of the workspace that is called. Defaults to "":
	// there is only one.
	Workspace string

	// Caller says whose a request is, for a program that calls for several
	// apps or workspaces. It replaces App and Workspace. Defaults to nil.
	Caller func(*http.Request) (app, workspace string)

	// Methods are the tiers of methods, by name: "users.info". Defaults to nil:
	// conversations.history and conversations.replies are of tier 3.
	Methods map[string]Tier

	// Tier of the methods that are not listed. Defaults to [Tier2].
	Tier Tier

	// OutsideMarketplace says that the app is sold, but not in Slack's Marketplace. Then
	// conversations.history and conversations.replies are of tier 1: since 2025-05-29 for new apps,
	// and since 2026-03-03 for apps installed before, says one of Slack's pages; a second page says
	// that apps installed before keep their tier. Defaults to false.
	OutsideMarketplace bool

	// Channel returns the channel that a message goes to, which stands in the
	// request's body. Defaults to nil: all messages share one channel's limit.
	Channel func(*http.Request) string

	// Host is a pattern of the API's hosts, in place of the default for a fake,
	// a proxy or a server of one's own. Defaults to "slack.com".
	Host string
}

const (
	prefix      = "/api/"
	postMessage = "chat.postMessage"
)

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	o = o.withDefaults()
	app, workspace := caller.IDs(o.App, o.Workspace, o.Caller)

	var rows []throttle.Policy
	for tier := Tier1; tier <= Tier4; tier++ {
		cost := func(r *http.Request) int { return o.cost(tier, r) }
		rows = append(rows, throttle.Policy{
			Name: "slack-tier-" + strconv.Itoa(int(tier)), Match: o.Host + prefix,
			Key: throttle.Join(workspace, app, throttle.RawPath), Cost: cost,
			Limit: throttle.PerMinute(perMinute[tier]), Answer: tablerow.IfCharged(cost, refused()),
		})
	}

	return tablerow.Table(append(rows, throttle.Policy{
		Name: "slack-message", Match: o.Host + prefix + postMessage,
		Key:   throttle.Join(workspace, app, o.Channel),
		Limit: throttle.PerSecond(1), Answer: refused(),
	}))
}

// withDefaults returns o with the defaults of its zero fields.
func (o Options) withDefaults() Options {
	o.Host = cmp.Or(o.Host, "slack.com")
	o.Tier = cmp.Or(o.Tier, Tier2)
	if o.Channel == nil {
		o.Channel = caller.Always("")
	}

	history := Tier3
	if o.OutsideMarketplace {
		history = Tier1
	}

	methods := map[string]Tier{"conversations.history": history, "conversations.replies": history}

	// The program's own tiers outrank the tiers of these two methods.
	maps.Copy(methods, o.Methods)
	o.Methods = methods

	return o
}

// cost is the cost of a request under the row of a tier: 1 for a method of the tier, and 0 for any other and for a message.
func (o Options) cost(tier Tier, r *http.Request) int {
	method := strings.TrimPrefix(throttle.RawPath(r), prefix)
	of, listed := o.Methods[method]
	if !listed {
		of = o.Tier
	}
	if of != tier || method == postMessage {
		return 0
	}
	return 1
}

// refused returns a reader that closes the row after a refusal, and after an outage. Bodies of refusals are short, so it
// reads only the beginning of a body.
func refused() feedback.Reader {
	return feedback.First(
		feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.RetryAfter(time.Minute)),
		feedback.Codes{
			Fields: []string{"error"},
			Lasts:  map[string]time.Duration{"ratelimited": time.Minute},
			End:    feedback.RetryAfter(0),
			Max:    1 << 10,
		}.Answer,
		tablerow.Outage(),
	)
}
