package gmail_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/presets/gmail"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
)

const api = "https://gmail.googleapis.com/gmail/v1/users/me/"

func usual(status int) presettest.Case {
	return presettest.Case{Request: api + "messages", Status: status, Header: presettest.JSON()}
}

// refused is a body with a reason and a message.
func refused(reason, message string) string {
	return `{"error":{"code":403,"message":"` + message + `","errors":[{"domain":"usageLimits","reason":"` + reason + `","message":"` + message + `"}]}}`
}

func TestRefusals(t *testing.T) {
	presettest.Run(t, gmail.Policies(gmail.Options{}), usual(403), []presettest.Case{
		presettest.Recorded(t, "queries.http").As("a user's units", "gmail-user 1m"),
		presettest.Recorded(t, "user.http").As("a user, until", "gmail-user 14m0.196s"),
		presettest.Recorded(t, "concurrent.http").As("a user's requests at once", "gmail-user 1s"),
		{Name: "a project's units", Answers: refused("rateLimitExceeded", "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute' of service 'gmail.googleapis.com'"), Closes: "gmail-project 1m"},
		{Name: "a project's day", Answers: refused("dailyLimitExceeded", "Daily Limit Exceeded"), Closes: "gmail-project 1h"},
		{Name: "a project's day, by message", Answers: refused("rateLimitExceeded", "Quota exceeded for quota metric 'Queries' and limit 'Queries per day' of service"), Closes: "gmail-project 1h"},
		{Name: "a user, that's all", Answers: refused("userRateLimitExceeded", "User Rate Limit Exceeded"), Closes: "gmail-user 1s"},
		{Name: "in the past", Status: 429, Answers: refused("rateLimitExceeded", "Retry after 1999-01-01T00:00:00.000Z"), Closes: "gmail-user 1s"},
		{Name: "Retry-After", Header: presettest.JSON("Retry-After", "7"), Answers: refused("userRateLimitExceeded", "User Rate Limit Exceeded"), Closes: "gmail-user 7s"},
		{Name: "a gateway's page", Status: 429, Header: presettest.Header{"Content-Type": "text/html"}, Answers: "<html>", Closes: "gmail-user 1s"},
	})
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, gmail.Policies(gmail.Options{}), usual(403), []presettest.Case{
		{Name: "not allowed", Answers: refused("insufficientPermissions", "Insufficient Permission")},
		{Name: "not switched on", Answers: refused("accessNotConfigured", "Gmail API has not been used in project 1, limit 'x per minute'")},
		{Name: "a page", Header: presettest.Header{"Content-Type": "text/html"}, Answers: "<html>"},
		{Name: "a message that quotes a refusal", Status: 200, Answers: refused("rateLimitExceeded", "limit 'Queries per minute'")},
		{Name: "one backend is away", Status: 503, Header: presettest.JSON("Retry-After", "9")},
		{Name: "another host", Request: "https://people.googleapis.com/", Status: 429},
	})
}

func TestUnits(t *testing.T) {
	for request, units := range map[string]int{
		"GET profile": 1, "GET messages": 5, "GET messages/1": 20, "POST messages/send": 100, "POST messages/1/modify": 10, "POST messages/1/trash": 20,
		"GET messages/1/attachments/2": 20, "POST messages/batchModify": 50, "DELETE messages/1": 20, "POST messages": 25, "POST messages/import": 25,
		"GET threads": 10, "GET threads/1": 40, "POST drafts": 10, "POST drafts/send": 100, "PUT drafts/1": 15, "GET labels": 1, "PATCH labels/1": 5,
		"GET history": 2, "POST watch": 100, "POST stop": 50, "POST things/1/do": 100, "GET ": 100,
		"GET settings/filters": 1, "POST settings/filters": 5, "DELETE settings/delegates/ada@example.com": 5, "POST settings/delegates": 100,
		"PATCH settings/sendAs/ada@example.com": 100, "PUT settings/pop": 100, "PUT settings/imap": 5, "GET settings": 100,
	} {
		var method, path string
		_, err := fmt.Sscanf(request+" x", "%s %s", &method, &path)
		require.NoError(t, err)
		if request == "GET " {
			path = ""
		}
		r := presettest.Request(t, method+" "+api+path, "")
		require.Equal(t, units, presettest.Cost(t, gmail.Policies(gmail.Options{}), "gmail-user", r), request)
		require.Equal(t, units, presettest.Cost(t, gmail.Policies(gmail.Options{}), "gmail-project", r), request)
	}
	upload := presettest.Request(t, "POST https://gmail.googleapis.com/upload/gmail/v1/users/me/messages/send", "")
	require.Equal(t, 100, presettest.Cost(t, gmail.Policies(gmail.Options{}), "gmail-user", upload))
	require.Equal(t, 50, presettest.Cost(t, gmail.Policies(gmail.Options{PerUser: 50}), "gmail-user", upload), "no more than there is")
}

func TestSharedBudgets(t *testing.T) {
	with := func(user, token string) *http.Request {
		r := presettest.Request(t, "https://gmail.googleapis.com/gmail/v1/users/"+user+"/messages", "")
		r.Header.Set("Authorization", token)
		return r
	}
	for _, c := range []struct {
		name, row  string
		options    gmail.Options
		one, other *http.Request
		same       bool
	}{
		{"a user's tokens", "gmail-user", gmail.Options{}, with("ada@example.com", "x"), with("Ada@example.com", "y"), true},
		{"another user", "gmail-user", gmail.Options{}, with("ada@example.com", "x"), with("bob@example.com", "x"), false},
		{"me", "gmail-user", gmail.Options{}, with("me", "x"), with("me", "x"), true},
		{"somebody else's me", "gmail-user", gmail.Options{}, with("me", "x"), with("me", "y"), false},
		{"the user that the options name", "gmail-user", gmail.Options{User: "ada"}, with("me", "x"), with("me", "y"), true},
		{"all users", "gmail-project", gmail.Options{}, with("ada@example.com", "x"), with("bob@example.com", "y"), true},
		{"another project", "gmail-project", gmail.Options{Caller: func(r *http.Request) (project, user string) { return r.Header.Get("Authorization"), "" }}, with("me", "x"), with("me", "y"), false},
	} {
		require.Equal(t, c.same, presettest.Shared(t, gmail.Policies(c.options), c.row, c.one, c.other), c.name)
	}
}
