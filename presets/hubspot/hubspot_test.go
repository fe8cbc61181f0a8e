package hubspot_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/hubspot"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

const (
	contact   = "https://api.hubapi.com/crm/v3/objects/contacts/1"
	batch     = "POST https://api.hubapi.com/crm/v3/objects/contacts/batch/read"
	search    = "POST https://api.hubapi.com/crm/v3/objects/contacts/search"
	newSearch = "POST https://api.hubapi.com/crm/objects/2026-03/contacts/search"
)

// refusal is the documented body of a 429.
func refusal(message, policy string) string {
	return fmt.Sprintf(`{"status":"error","message":%q,"errorType":"RATE_LIMIT","correlationId":"c033cdaa","policyName":%q,"requestId":"3d3e35b7"}`, message, policy)
}

var (
	daily    = refusal("You have reached your daily limit.", "DAILY")
	rolling  = refusal("You have reached your ten_secondly_rolling limit.", "TEN_SECONDLY_ROLLING")
	secondly = refusal("You have reached your secondly limit.", "SECONDLY")
)

// short is a refusal without a policyName.
func short(message string) string {
	return fmt.Sprintf(`{"status":"error","message":%q,"correlationId":"de61843f","category":"RATE_LIMITS"}`, message)
}

func TestRefusals(t *testing.T) {
	usual := presettest.Case{Request: contact, Status: 429, Header: presettest.JSON()}
	presettest.Run(t, hubspot.Policies(hubspot.Options{}), usual, []presettest.Case{
		{Name: "the app", Answers: rolling, Closes: "hubspot-app 10s"},
		{Name: "the app, only a message", Answers: short("You have reached your ten_secondly_rolling limit."), Closes: "hubspot-app 10s"},
		{Name: "the app, a time is stated", Header: presettest.JSON("Retry-After", "3"), Answers: rolling, Closes: "hubspot-app 3s"},
		{Name: "the app, a second", Answers: secondly, Closes: "hubspot-app 1s"},
		{Name: "the app, a second, only a message", Answers: short("You have reached your secondly limit."), Closes: "hubspot-app 1s"},
		{Name: "the app, of a POST", Request: batch, Answers: secondly, Closes: "hubspot-app 1s"},
		{Name: "the day", Answers: daily, Closes: "hubspot-day 1h"},
		{Name: "the day, only a message", Answers: short("You have reached your daily limit."), Closes: "hubspot-day 1h"},
		{Name: "the day, a time is stated", Header: presettest.JSON("Retry-After", "60"), Answers: daily, Closes: "hubspot-day 1m"},
		{Name: "a new name", Answers: refusal("You have reached your lunar limit.", "LUNAR"), Closes: "hubspot-app 10s"},
		{Name: "nothing is said", Header: presettest.Header{}, Answers: "error code: 1015", Closes: "hubspot-app 10s"},
		{Name: "a search", Request: search, Answers: short("You have reached your secondly limit."), Closes: "hubspot-search 1s"},
		{Name: "a search, with a name", Request: newSearch, Answers: secondly, Closes: "hubspot-search 1s"},
		{Name: "a search, ten seconds", Request: search, Answers: rolling, Closes: "hubspot-search 10s"},
		{Name: "a search, ten seconds, only a message", Request: search, Answers: short("You have reached your ten_secondly_rolling limit."), Closes: "hubspot-search 10s"},
		{Name: "a search, the day", Request: search, Answers: daily, Closes: "hubspot-day 1h"},
		{Name: "a search, nothing is said", Request: search, Header: presettest.Header{}, Closes: "hubspot-search 1s"},
		{Name: "the account moves", Status: 477, Header: presettest.JSON("Retry-After", "7200"), Answers: `{"status":"error"}`, Closes: "hubspot-day 2h"},
	})
	presettest.Run(t, hubspot.Policies(hubspot.Options{Plan: hubspot.Marketplace}), usual, []presettest.Case{
		{Name: "a day that is not counted", Answers: daily, Closes: "hubspot-day 1h"},
	})
	presettest.Run(t, hubspot.Policies(hubspot.Options{Zone: time.FixedZone("", 3600)}), usual, []presettest.Case{
		{Name: "the day ends in the account's zone", Answers: daily, Closes: "hubspot-day 23h"},
	})
}

// TestLeftOut: what the row that is left out would be closed by stays a refusal.
func TestLeftOut(t *testing.T) {
	presettest.Run(t, hubspot.Policies(hubspot.Options{})[:2], presettest.Case{Status: 429, Header: presettest.JSON()}, []presettest.Case{
		{Name: "the day", Request: contact, Answers: daily},
		{Name: "the day, of a search", Request: search, Answers: daily},
	})
}

func TestOutage(t *testing.T) {
	read := hubspot.Policies(hubspot.Options{})[0].Answer
	away := &http.Response{StatusCode: 503, Header: http.Header{"Retry-After": {"7"}}, Request: presettest.Request(t, contact)}
	for range tablerow.OutageAnswers - 1 {
		require.Zero(t, read(away).Close)
	}
	require.Equal(t, throttle.Refused(7*time.Second), read(away))
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, hubspot.Policies(hubspot.Options{}), presettest.Case{Request: contact, Header: presettest.JSON()}, []presettest.Case{
		{Name: "success", Answers: `{"id":"1","properties":{"message":"You have reached your daily limit.","policyName":"DAILY"}}`},
		{Name: "a body without its status", Answers: daily},
		{Name: "a search without its status", Request: search, Answers: secondly},
		{Name: "done in part", Status: 207, Request: batch, Answers: `{"status":"COMPLETE","errors":[{"category":"RATE_LIMITS"}]}`},
		{Name: "a wrong token", Status: 401, Answers: `{"status":"error","category":"INVALID_AUTHENTICATION"}`},
		{Name: "a scope that is missing", Status: 403, Answers: `{"status":"error","category":"MISSING_SCOPES"}`},
		{Name: "records that are locked", Status: 423, Header: presettest.JSON("Retry-After", "2"), Answers: `{"status":"error"}`},
		{Name: "one 503", Status: 503, Header: presettest.JSON("Retry-After", "5")},
	})
}

func TestWhatIsLeft(t *testing.T) {
	fields := presettest.JSON("X-HubSpot-RateLimit-Max", "100", "X-HubSpot-RateLimit-Remaining", "93",
		"X-HubSpot-RateLimit-Interval-Milliseconds", "10000", "X-HubSpot-RateLimit-Daily", "250000", "X-HubSpot-RateLimit-Daily-Remaining", "249000")
	oauth := presettest.JSON("X-HubSpot-RateLimit-Max", "110", "X-HubSpot-RateLimit-Remaining", "7", "X-HubSpot-RateLimit-Interval-Milliseconds", "10000")
	presettest.Run(t, hubspot.Policies(hubspot.Options{}), presettest.Case{Request: contact, Answers: "{}"}, []presettest.Case{
		{Name: "of ten seconds and the day", Header: fields, Left: "hubspot-app 93 1s, hubspot-day 249000 1s"},
		{Name: "of ten seconds", Header: oauth, Left: "hubspot-app 7 1s"},
		{Name: "in an answer to a search", Request: search, Header: oauth},
		{Name: "of a single second, which is no longer counted", Header: presettest.JSON("X-HubSpot-RateLimit-Secondly-Remaining", "3")},
	})
}

func TestLimits(t *testing.T) {
	limits := func(o hubspot.Options) string { return presettest.Limits(hubspot.Policies(o)) }
	require.Equal(t, "hubspot-app 250/10s, hubspot-search 5/s, hubspot-day 3000000/24h", limits(hubspot.Options{Plan: hubspot.Enterprise, Increases: 2}))
	require.Equal(t, limits(hubspot.Options{Plan: hubspot.Marketplace}), limits(hubspot.Options{Plan: hubspot.Marketplace, Increases: 1}))
	zoned := hubspot.Policies(hubspot.Options{Zone: time.UTC})
	require.Equal(t, throttle.CalendarWindow(250_000, throttle.Day, time.UTC), zoned[2].Limit)
}

func TestCosts(t *testing.T) {
	policies := hubspot.Policies(hubspot.Options{})
	for request, want := range map[string]string{
		contact:   "hubspot-app 1, hubspot-day 1",
		batch:     "hubspot-app 1, hubspot-day 1",
		search:    "hubspot-search 1, hubspot-day 1",
		newSearch: "hubspot-search 1, hubspot-day 1",
		"https://api.hubapi.com/crm/v3/objects/contacts/search":   "hubspot-app 1, hubspot-day 1",
		"POST https://api.hubapi.com/crm/v3/lists/search":         "hubspot-app 1, hubspot-day 1",
		"POST https://api.hubapi.com/cms/v3/objects/pages/search": "hubspot-app 1, hubspot-day 1",
	} {
		require.Equal(t, want, presettest.Costs(t, policies, presettest.Request(t, request)), request)
	}
}

func TestBudgets(t *testing.T) {
	policies := hubspot.Policies(hubspot.Options{Caller: presettest.Headers("App", "Account")})
	require.Equal(t, "hubspot-app App Account, hubspot-day Account", presettest.Splits(t, policies, contact, "App", "Account"))
	require.Equal(t, "hubspot-search Account, hubspot-day Account", presettest.Splits(t, policies, search, "App", "Account"))
	require.True(t, presettest.Shared(t, policies, "hubspot-app", presettest.Request(t, contact), presettest.Request(t, batch)))
	require.True(t, presettest.Shared(t, policies, "hubspot-search", presettest.Request(t, search), presettest.Request(t, newSearch)))
}
