package sheets_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/sheets"
)

const api = "https://sheets.googleapis.com/v4/spreadsheets/1/"

func usual(status int) presettest.Case {
	return presettest.Case{Request: api + "values/A1", Status: status, Header: presettest.JSON()}
}

func exceeded(limit string) string {
	return `{"error":{"code":429,"message":"Quota exceeded for quota metric 'x' and limit '` + limit + `' of service 'sheets.googleapis.com'","status":"RESOURCE_EXHAUSTED"}}`
}

func TestRefusals(t *testing.T) {
	presettest.Run(t, sheets.Policies(sheets.Options{}), usual(429), []presettest.Case{
		presettest.Recorded(t, "read.http").As("a user's reads", "sheets-read-user 1m"),
		{Name: "a project's reads", Answers: exceeded("Read requests per minute"), Closes: "sheets-read-project 1m"},
		{Name: "a user's writes", Request: "PUT " + api + "values/A1", Answers: exceeded("Write requests per minute per user"), Closes: "sheets-write-user 1m"},
		{Name: "a project's writes", Request: "POST " + api + "values:batchUpdate", Answers: exceeded("Write requests per minute"), Closes: "sheets-write-project 1m"},
		{Name: "Retry-After", Header: presettest.JSON("Retry-After", "20"), Answers: exceeded("Read requests per minute"), Closes: "sheets-read-project 20s"},
		{Name: "it names no limit", Answers: `{"error":{"code":429,"message":"Resource has been exhausted (e.g. check quota)."}}`, Closes: "sheets-read-user 1s"},
		{Name: "a 403", Status: 403, Answers: `{"error":{"code":403,"errors":[{"reason":"userRateLimitExceeded"}]}}`, Closes: "sheets-read-user 1s"},
		{Name: "a gateway's page", Header: presettest.Header{"Content-Type": "text/html"}, Answers: "<html>", Closes: "sheets-read-user 1s"},
	})
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, sheets.Policies(sheets.Options{}), usual(200), []presettest.Case{
		{Name: "a cell that quotes a refusal", Answers: exceeded("Read requests per minute")},
		{Name: "not allowed", Status: 403, Answers: `{"error":{"code":403,"message":"The caller does not have permission, limit 'x per minute'","status":"PERMISSION_DENIED"}}`},
		{Name: "one backend is away", Status: 503, Header: presettest.JSON("Retry-After", "9")},
		{Name: "another host", Request: "https://docs.googleapis.com/", Status: 429},
	})
}

func TestReads(t *testing.T) {
	for request, reads := range map[string]int{
		"GET " + api + "values/A1":                           1,
		"GET " + api + "values:batchGet":                     1,
		"POST " + api + "values:batchGetByDataFilter":        1,
		"POST " + api + "developerMetadata:search":           1,
		"POST " + api[:len(api)-1] + ":getByDataFilter":      1,
		"POST " + api[:len(api)-1] + ":batchUpdate":          0,
		"POST " + api + "values/A1:append":                   0,
		"POST " + api + "values:batchUpdateByDataFilter":     0,
		"PUT " + api + "values/A1":                           0,
		"POST https://sheets.googleapis.com/v4/spreadsheets": 0,
	} {
		r, rows := presettest.Request(t, request, ""), sheets.Policies(sheets.Options{})
		for row, cost := range map[string]int{"sheets-read-project": reads, "sheets-read-user": reads, "sheets-write-project": 1 - reads, "sheets-write-user": 1 - reads} {
			require.Equal(t, cost, presettest.Cost(t, rows, row, r), "%s: %s", request, row)
		}
	}
}

func TestSharedBudgets(t *testing.T) {
	with := func(token string) *http.Request {
		r := presettest.Request(t, api, "")
		r.Header.Set("Authorization", token)
		return r
	}
	for _, c := range []struct {
		name, row string
		options   sheets.Options
		other     string
		same      bool
	}{
		{"a user", "sheets-read-user", sheets.Options{}, "x", true},
		{"another user", "sheets-read-user", sheets.Options{}, "y", false},
		{"a user with two tokens", "sheets-read-user", sheets.Options{User: "ada"}, "y", true},
		{"all users", "sheets-read-project", sheets.Options{}, "y", true},
		{"another project", "sheets-read-project", sheets.Options{Caller: func(r *http.Request) (project, user string) { return r.Header.Get("Authorization"), "" }}, "y", false},
	} {
		require.Equal(t, c.same, presettest.Shared(t, sheets.Policies(c.options), c.row, with("x"), with(c.other)), c.name)
	}
}
