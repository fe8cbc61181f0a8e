// Package discord is the table of limits of Discord's HTTP API: the global limit of a bot, the
// limits of its routes, which Discord states in each answer, and the ban of an address that is
// refused too often.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: discord.Policies(discord.Options{}),
//	}))}
//
// # Rows
//
//	row              limit       one budget for each       closed by
//	discord-global   50/s        bot                       429, global
//	discord-webhook  50/s        address                   the same, of a webhook
//	discord-route    as told     bot, method and route     429, user or shared
//	discord-refused  10,000/10m  address                   429 that is a page of text
//
// A route is a path without its ids, except the first channel, guild or webhook: by these Discord
// splits a bucket. Its limit "should not be hard coded": each answer states the remaining requests,
// and until the first answer the global limit is the only limit.
//
// What has its token in the path is not the bot's. Interactions (their callback, and follow-ups of
// their token) are bound to no global limit, so neither a full discord-global nor a global refusal
// holds them: they go out in the three seconds that Discord gives them. Other webhooks have the limit that
// an address has without an Authorization.
//
// discord-refused counts the answers 401, 403 and 429 (except 429s of the scope shared), because of
// which Discord bans an address. A request counts from its start and is given back after a good
// answer, which takes one more call to the store. Leave the row out where the address serves no
// other program and refusals do not happen.
//
// # Refusals
//
// A 429 closes its budget for retry_after in its body, which has fractions of a second, or for its
// Retry-After. It closes the bot if X-RateLimit-Global, X-RateLimit-Scope or the body say that it
// is global, and otherwise the route. A global refusal of a webhook closes discord-webhook, and a
// refusal of an interaction its route alone. Ten 503 in a row with a Retry-After close the route.
// Discord's own answers are JSON; a 429 that is text or HTML comes from Cloudflare in front of
// Discord, is about the address, and closes the address, for ten minutes without a Retry-After
// (inferred).
//
// # Not covered
//
// Buckets that several routes share (X-RateLimit-Bucket): which do cannot be
// known before. Versions of the API before 8, where retry_after was in
// milliseconds.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: limits, headers, bodies, the ban:
//     https://github.com/discord/discord-api-docs/blob/main/developers/topics/rate-limits.mdx
//   - official: interactions are bound to no global limit, and an address without an Authorization has
//     one (the same page).
//   - observed: global refusals of interactions and webhooks speak of the address:
//     https://github.com/discord/discord-api-docs/issues/5800,
//     https://github.com/discord/discord-api-docs/pull/5806
//   - official (old): milliseconds:
//     https://github.com/discord/discord-api-docs/blob/main/docs/topics/Rate_Limits.md
//   - from common use: the host, the paths, and how an interaction's token begins.
//   - inferred: that webhooks share the limit of an address; which segments of a path are ids, and how the ban looks.
package discord

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// Options are what differs between accounts. The zero value is bots with a token
// each, at one address.
type Options struct {
	// Bot is the bot's id. Defaults to "": the bots are told apart by their
	// Authorization, and requests without one are one bot's.
	Bot string

	// Caller says which bot sends a request, for a program that has several.
	// It replaces Bot, and "" means the same. Defaults to nil.
	Caller func(*http.Request) (bot string)

	// Address is any name for the address that the requests come from. All
	// programs behind the same gateway or NAT use the same. Defaults to "":
	// all programs that share the store are behind one address.
	Address string

	// PerSecond is the global limit. Defaults to 50.
	PerSecond int

	// Host is a pattern of the API's hosts, in place of the default for a fake,
	// a proxy or a server of one's own. Defaults to "discord.com".
	Host string
}

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	o = o.withDefaults()
	match := o.Host + "/api/"
	id := caller.Or(caller.ID(o.Bot, o.Caller), throttle.Header("Authorization"))

	return tablerow.Table([]throttle.Policy{
		{
			Name: "discord-global", Match: match, Key: id, Cost: bot.cost,
			Limit: throttle.PerSecond(o.PerSecond), Answer: tablerow.IfCharged(bot.cost, global),
		},
		{
			Name: "discord-webhook", Match: match, Key: caller.Always(o.Address), Cost: webhook.cost,
			Limit: throttle.PerSecond(50), Answer: tablerow.IfCharged(webhook.cost, global),
		},
		{
			Name: "discord-route", Match: match, Key: throttle.Join(id, throttle.Method, route),
			Limit: throttle.PerSecond(o.PerSecond), Answer: feedback.All(feedback.First(limited, tablerow.Outage()), left),
		},
		{
			Name: "discord-refused", Match: match, Key: caller.Always(o.Address),
			Limit: throttle.SlidingWindow(10_000, 10*time.Minute), Answer: feedback.All(banned, refusals),
		},
	})
}

// withDefaults returns o with the defaults of its zero fields.
func (o Options) withDefaults() Options {
	o.PerSecond = cmp.Or(o.PerSecond, 50)
	o.Host = cmp.Or(o.Host, "discord.com")
	return o
}

var (
	tooMany = feedback.When{Status: []int{http.StatusTooManyRequests}}

	// stated is the penalty that a refusal states: in its body, or in Retry-After.
	stated = feedback.First(
		feedback.Printed{Fields: []string{"retry_after"}, As: feedback.After(time.Second)}.Answer,
		feedback.RetryAfter(time.Second),
	)

	// global closes the row after a refusal that is about all requests of a sender.
	global = tooMany.Then(feedback.First(
		feedback.When{Header: map[string]string{"X-RateLimit-Global": "true"}}.Then(stated),
		feedback.When{Header: map[string]string{"X-RateLimit-Scope": "global"}}.Then(stated),
		feedback.Codes{
			Fields: []string{"global"},
			Lasts:  map[string]time.Duration{"true": time.Second},
			End:    stated,
		}.Answer,
	))

	// banned closes the row after a refusal that bans an address. It is text or HTML, unlike Discord's own answers, which
	// are JSON.
	banned = tooMany.Then(feedback.When{Media: []string{"text/*"}}.Then(feedback.RetryAfter(10 * time.Minute)))

	// left is the quota of a route.
	left = feedback.Headers{
		Remaining: "X-RateLimit-Remaining",
		Reset:     "X-RateLimit-Reset-After",
	}.Left
)

// limited closes the row of a route after a 429 that is neither global nor a ban of the address. The global limit does not
// apply to interactions, so a global refusal of an interaction closes its route, too.
func limited(resp *http.Response) throttle.Answer {
	ofInteraction := resp.Request != nil && senderOf(resp.Request) == interaction
	isGlobal := global(resp).Close > 0 && !ofInteraction
	if isGlobal || banned(resp).Close > 0 {
		return throttle.Answer{}
	}
	return tooMany.Then(stated)(resp)
}

// refusals is a [throttle.Policy.Answer] that sets the cost: 1 for an answer that counts towards a ban of the
// address, and 0 for any other.
func refusals(resp *http.Response) throttle.Answer {
	counts := 0
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		counts = 1
	case http.StatusTooManyRequests:
		// A refusal of a shared limit does not count towards a ban.
		if !strings.EqualFold(resp.Header.Get("X-RateLimit-Scope"), "shared") {
			counts = 1
		}
	}
	return throttle.Answer{}.WithCost(counts)
}
