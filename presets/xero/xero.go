// Package xero is the table of limits of Xero's API.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: xero.Policies(xero.Options{}),
//	}))}
//
// # Rows
//
//	xero-concurrency   5 in flight      of an app for each tenant
//	xero-minute        60 a minute      of an app for each tenant
//	xero-day           5,000 a day      of an app for each tenant; 1,000 in the Starter tier
//	xero-app           10,000 a minute  of an app for all tenants
//
// A tenant is an organisation, an account or a practice, which the field Xero-Tenant-Id names.
// What is below /connections belongs to no tenant, and so to the app alone.
//
// # Refusals
//
// A 429 names its limit in X-Rate-Limit-Problem.
//
//	it begins with "da"      xero-day, Retry-After or 1h
//	it contains "conc"       xero-concurrency, Retry-After or 1s
//	it contains "app"        xero-app, Retry-After or 1m
//	"minute", all others     xero-minute, Retry-After or 1m
//	503, ten in a row        xero-app, Retry-After
//
// "minute" and "day" are observed; the words of the remaining limits are not published, so a part
// of each word is matched (inferred). X-MinLimit-Remaining, X-DayLimit-Remaining and
// X-AppMinLimit-Remaining lower the rows if other programs call for the app.
//
// # Not covered
//
// When a day begins, which differs by tenant: xero-day is any 24 hours. Bytes, which are charged
// and not bounded. The hosts of authorization.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: the numbers, the fields of the remaining calls: https://developer.xero.com/faq/limits
//   - official, as public code quotes it in 2026: the Starter tier, which refusals have a Retry-After:
//     https://developer.xero.com/documentation/guides/oauth2/limits/
//   - observed: X-Rate-Limit-Problem: https://github.com/XeroAPI/xero-node/issues/634,
//     https://github.com/XeroAPI/xero-python/issues/74
//   - observed: what belongs to no tenant: https://github.com/XeroAPI/xero-ruby/issues/128
//   - from common use: the host and Xero-Tenant-Id.
//   - inferred: a second, a minute and an hour; that a 503 may have a Retry-After (RFC 9110).
package xero

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

// What the tiers allow in a day.
const (
	Starter = 1_000
	Core    = 5_000 // and all larger tiers
)

// Options are what an app has, and whose requests are counted together. The zero value is one app,
// whose tenants are told by Xero-Tenant-Id.
type Options struct {
	// PerDay is the limit of the app's tier for each tenant. Defaults to [Core].
	PerDay int

	// App is the app's client id. Defaults to "": all programs that share the store are
	// one app.
	App string

	// Tenant is the id of the tenant that is called. Defaults to "": tenants are told
	// apart by Xero-Tenant-Id.
	Tenant string

	// Caller says whose a request is, for a program that calls for several apps. It
	// replaces App and Tenant, and "" means the same. Defaults to nil.
	Caller func(*http.Request) (app, tenant string)

	// Host is a pattern of the API's hosts, in place of the default for a fake or a
	// proxy. Defaults to "api.xero.com".
	Host string
}

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	match := cmp.Or(o.Host, "api.xero.com") + "/"
	app, tenant := caller.IDs(o.App, o.Tenant, o.Caller)
	key := throttle.Join(app, caller.Or(tenant, throttle.Header("Xero-Tenant-Id")))

	return tablerow.Table([]throttle.Policy{
		{
			Name: "xero-concurrency", Match: match, Key: key, Cost: ofTenant,
			Limit: throttle.Concurrency(5), Answer: about(concurrency, time.Second),
		},
		{
			Name: "xero-minute", Match: match, Key: key, Cost: ofTenant,
			Limit: throttle.PerMinute(60), Answer: feedback.All(about(minute, time.Minute), feedback.Headers{Remaining: "X-MinLimit-Remaining", Per: time.Minute}.Left),
		},
		{
			Name: "xero-day", Match: match, Key: key, Cost: ofTenant,
			Limit: throttle.SlidingWindow(cmp.Or(o.PerDay, Core), 24*time.Hour), Answer: feedback.All(about(day, time.Hour), feedback.Headers{Remaining: "X-DayLimit-Remaining", Per: 24 * time.Hour}.Left),
		},
		{
			Name: "xero-app", Match: match, Key: app,
			Limit: throttle.PerMinute(10_000), Answer: feedback.All(feedback.First(about(ofApp, time.Minute), tablerow.Outage()), feedback.Headers{Remaining: "X-AppMinLimit-Remaining", Per: time.Minute}.Left),
		},
	})
}

// ofTenant is the cost under a tenant's limits: 1, or 0 for a request that belongs to no tenant.
func ofTenant(r *http.Request) int {
	if path := throttle.RawPath(r); path == "/connections" || strings.HasPrefix(path, "/connections/") {
		return 0
	}
	return 1
}

// The limits that a refusal may be about.
const (
	minute = iota
	day
	concurrency
	ofApp
)

// problem returns the limit that a refusal is about: of a request without a tenant the app's, and otherwise the limit that
// it names, or the minute for any other word.
func problem(resp *http.Response) int {
	if resp.Request != nil && ofTenant(resp.Request) == 0 {
		return ofApp
	}

	// Only the words "minute" and "day" have been seen, so look for parts of the other words.
	switch named := strings.ToLower(resp.Header.Get("X-Rate-Limit-Problem")); {
	case strings.Contains(named, "app"):
		return ofApp
	case strings.Contains(named, "conc"):
		return concurrency
	case strings.HasPrefix(named, "da"):
		return day
	}
	return minute
}

// about returns a reader that closes the row after a refusal about one limit, for its Retry-After or else for lasts.
func about(limit int, lasts time.Duration) feedback.Reader {
	closes := feedback.RetryAfter(lasts)
	return feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(func(resp *http.Response) throttle.Answer {
		if problem(resp) != limit {
			return throttle.Answer{}
		}
		return closes(resp)
	})
}
