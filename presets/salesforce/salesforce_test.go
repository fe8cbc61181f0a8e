package salesforce_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
	"github.com/fleetthrottle/throttle/presets/salesforce"
)

const (
	query    = "https://acme.my.salesforce.com/services/data/v66.0/query?q=SELECT+Id+FROM+Account"
	versions = "https://acme.my.salesforce.com/services/data/"

	used       = `[{"message":"TotalRequests Limit exceeded.","errorCode":"REQUEST_LIMIT_EXCEEDED"}]`
	concurrent = `[{"message":"ConcurrentRequests (Concurrent API Requests) Limit exceeded.","errorCode":"REQUEST_LIMIT_EXCEEDED"}]`
)

func TestRefusals(t *testing.T) {
	presettest.Run(t, salesforce.Policies(salesforce.Options{}), presettest.Case{Request: query, Status: 403, Header: presettest.JSON()}, []presettest.Case{
		{Name: "the 24 hours", Answers: used, Closes: "salesforce-day 5m"},
		{Name: "the 24 hours, the order turned", Answers: `[{"errorCode":"REQUEST_LIMIT_EXCEEDED","message":"TotalRequests Limit exceeded."}]`, Closes: "salesforce-day 5m"},
		{Name: "the 24 hours, a time is stated", Header: presettest.JSON("Retry-After", "60"), Answers: used, Closes: "salesforce-day 1m"},
		{Name: "long requests at once", Answers: concurrent, Closes: "salesforce-org 5s"},
		{Name: "long requests at once, a time is stated", Header: presettest.JSON("Retry-After", "60"), Answers: concurrent, Closes: "salesforce-org 1m"},
		{Name: "a new text", Answers: `[{"message":"Lunar limit exceeded.","errorCode":"REQUEST_LIMIT_EXCEEDED"}]`, Closes: "salesforce-org 5s"},
		{Name: "no text", Answers: `[{"errorCode":"REQUEST_LIMIT_EXCEEDED"}]`, Closes: "salesforce-org 5s"},
		{Name: "of a request that does not count", Request: versions, Answers: concurrent, Closes: "salesforce-org 5s"},
		{Name: "too many, and a time is stated", Status: 429, Header: presettest.JSON("Retry-After", "7"), Closes: "salesforce-org 7s"},
	})
}

// TestLeftOut: what the row that is left out would be closed by stays a refusal.
func TestLeftOut(t *testing.T) {
	presettest.Run(t, salesforce.Policies(salesforce.Options{})[1:], presettest.Case{Request: query, Status: 403, Header: presettest.JSON()}, []presettest.Case{
		{Name: "the 24 hours", Answers: used},
	})
}

func TestOutage(t *testing.T) {
	read := salesforce.Policies(salesforce.Options{})[1].Answer
	away := &http.Response{StatusCode: 503, Header: http.Header{"Retry-After": {"7"}}}
	for range tablerow.OutageAnswers - 1 {
		require.Zero(t, read(away).Close)
	}
	require.Equal(t, throttle.Refused(7*time.Second), read(away))
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, salesforce.Policies(salesforce.Options{}), presettest.Case{Request: query, Header: presettest.JSON()}, []presettest.Case{
		{Name: "success", Answers: `{"records":[{"message":"TotalRequests Limit exceeded.","errorCode":"REQUEST_LIMIT_EXCEEDED"}]}`},
		{Name: "a body without its status", Answers: used},
		{Name: "no permission", Status: 403, Answers: `[{"message":"You do not have access to this.","errorCode":"INSUFFICIENT_ACCESS"}]`},
		{Name: "no permission, for an object with that name", Status: 403, Answers: `[{"message":"TotalRequests__c","errorCode":"INSUFFICIENT_ACCESS"}]`},
		{Name: "an API that is off", Status: 403, Answers: `[{"message":"The REST API is not enabled for this Organization.","errorCode":"API_DISABLED_FOR_ORG"}]`},
		{Name: "a session that is over", Status: 401, Answers: `[{"message":"Session expired or invalid","errorCode":"INVALID_SESSION_ID"}]`},
		{Name: "a row that is locked", Status: 400, Answers: `[{"message":"unable to obtain exclusive access","errorCode":"UNABLE_TO_LOCK_ROW"}]`},
		{Name: "one 503", Status: 503, Header: presettest.JSON("Retry-After", "5")},
		{Name: "too many of something", Status: 429, Answers: `[]`},
	})
}

func TestWhatIsLeft(t *testing.T) {
	field := func(text string) presettest.Header { return presettest.JSON("Sforce-Limit-Info", text) }
	presettest.Run(t, salesforce.Policies(salesforce.Options{}), presettest.Case{Request: query, Answers: "{}"}, []presettest.Case{
		{Name: "of the organization", Header: field("api-usage=18/5000"), Left: "salesforce-day 4982 1s"},
		{Name: "with bursts", Header: field("api-usage=10018/100000; api-bursts=1/750"), Left: "salesforce-day 89982 1s"},
		{Name: "with those of an app", Header: field("per-app-api-usage=17/250(appName=sample); api-usage=25/5000"), Left: "salesforce-day 4975 1s"},
		{Name: "more is used than there was", Header: field("api-usage=5003/5000"), Left: "salesforce-day 0 1s"},
		{Name: "in an answer out of a cache", Header: presettest.JSON("Sforce-Limit-Info", "api-usage=18/5000", "Age", "60")},
		{Name: "of an app only", Header: field("per-app-api-usage=17/250(appName=sample)")},
		{Name: "without numbers", Header: field("api-usage=many/5000")},
	})
}

func TestCosts(t *testing.T) {
	policies := salesforce.Policies(salesforce.Options{})
	for request, want := range map[string]string{
		query:    "salesforce-day 1, salesforce-org 1",
		versions: "salesforce-org 1",
		"https://acme.my.salesforce.com/services/data":                           "salesforce-org 1",
		"https://acme.my.salesforce.com/services/data/v66.0":                     "salesforce-day 1, salesforce-org 1",
		"POST https://acme.my.salesforce.com/services/apexrest/x":                "salesforce-day 1, salesforce-org 1",
		"https://acme--dev.sandbox.my.salesforce.com/services/data/v66.0/limits": "salesforce-day 1, salesforce-org 1",
		"https://acme.my.salesforce.com/home/home.jsp":                           "",
	} {
		require.Equal(t, want, presettest.Costs(t, policies, presettest.Request(t, request)), request)
	}
}

func TestBudgets(t *testing.T) {
	const another = "https://globex.my.salesforce.com/services/data/v66.0/limits"
	shared := func(o salesforce.Options) bool {
		return presettest.Shared(t, salesforce.Policies(o), "salesforce-day", presettest.Request(t, query), presettest.Request(t, another))
	}
	require.False(t, shared(salesforce.Options{}), "another host")
	require.True(t, shared(salesforce.Options{Organization: "00D000000000062"}), "hosts of one organization")
	require.False(t, shared(salesforce.Options{Caller: throttle.Header("Org")}), "a caller who does not know")
	require.Equal(t, "salesforce-day Org, salesforce-org Org",
		presettest.Splits(t, salesforce.Policies(salesforce.Options{Caller: throttle.Header("Org")}), query, "Org"))
}
