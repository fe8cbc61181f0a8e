package drive_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/presets/drive"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
)

const api = "https://www.googleapis.com/drive/v3/"

func usual(status int) presettest.Case {
	return presettest.Case{Request: api + "files/1", Status: status, Header: presettest.JSON()}
}

func refused(reason, message string) string {
	return `{"error":{"errors":[{"domain":"usageLimits","reason":"` + reason + `","message":"` + message + `"}],"code":403,"message":"` + message + `"}}`
}

func TestRefusals(t *testing.T) {
	presettest.Run(t, drive.Policies(drive.Options{}), usual(403), []presettest.Case{
		presettest.Recorded(t, "user.http").As("a user", "drive-user 1s"),
		{Name: "a user's minute", Answers: refused("userRateLimitExceeded", "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute per user' of service 'drive.googleapis.com'"), Closes: "drive-user 1m"},
		{Name: "a project's minute", Answers: refused("rateLimitExceeded", "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute' of service 'drive.googleapis.com'"), Closes: "drive-project 1m"},
		{Name: "a project's day", Answers: refused("dailyLimitExceeded", "Daily Limit Exceeded"), Closes: "drive-project 1h"},
		{Name: "the backend", Status: 429, Answers: refused("rateLimitExceeded", "Rate Limit Exceeded"), Closes: "drive-user 1s"},
		{Name: "Retry-After", Header: presettest.JSON("Retry-After", "20"), Answers: refused("userRateLimitExceeded", "User Rate Limit Exceeded"), Closes: "drive-user 20s"},
	})
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, drive.Policies(drive.Options{}), usual(403), []presettest.Case{
		{Name: "no room", Answers: refused("storageQuotaExceeded", "The user's Drive storage quota has been exceeded.")},
		{Name: "not allowed", Answers: refused("insufficientFilePermissions", "limit 'x per minute'")},
		{Name: "a file that quotes a refusal", Status: 200, Answers: refused("userRateLimitExceeded", "User Rate Limit Exceeded")},
		{Name: "one backend is away", Status: 503, Header: presettest.JSON("Retry-After", "9")},
		{Name: "another API of the host", Request: "https://www.googleapis.com/calendar/v3/calendars/1", Status: 429},
		{Name: "another host", Request: "https://docs.googleapis.com/drive/v3/files", Status: 429},
	})
}

func TestUnits(t *testing.T) {
	for request, units := range map[string]int{
		"GET " + api + "files/1":                                 5,
		"GET " + api + "about":                                   5,
		"GET " + api + "changes/startPageToken":                  5,
		"GET " + api + "files/1/permissions/2":                   5,
		"GET " + api + "files":                                   100,
		"GET " + api + "changes?pageToken=1":                     100,
		"GET " + api + "files/1/comments/2/replies":              100,
		"GET " + api + "files/files":                             5,
		"GET " + api + "files/1/listLabels":                      100,
		"GET " + api + "files/1?alt=media":                       200,
		"GET " + api + "files/1/export?mimeType=text%2Fplain":    200,
		"POST " + api + "files/1/download":                       200,
		"PATCH " + api + "files/1":                               50,
		"DELETE " + api + "files/1":                              50,
		"POST https://www.googleapis.com/upload/drive/v3/files":  50,
		"GET https://www.googleapis.com/calendar/v3/calendars/1": 0,
		"GET https://www.googleapis.com/":                        0,
	} {
		r, rows := presettest.Request(t, request, ""), drive.Policies(drive.Options{})
		require.Equal(t, units, presettest.Cost(t, rows, "drive-project", r), request)
		require.Equal(t, units, presettest.Cost(t, rows, "drive-user", r), request)
	}
	requests := drive.Options{PerMinute: 12_000, PerUser: 12_000, Units: func(*http.Request) int { return 1 }}
	r := presettest.Request(t, api+"files", "")
	require.Equal(t, 1, presettest.Cost(t, drive.Policies(requests), "drive-user", r))
	require.Equal(t, 50, presettest.Cost(t, drive.Policies(drive.Options{PerUser: 50}), "drive-user", r), "no more than there is")
}

func TestSharedBudgets(t *testing.T) {
	with := func(token string) *http.Request {
		r := presettest.Request(t, api+"files", "")
		r.Header.Set("Authorization", token)
		return r
	}
	for _, c := range []struct {
		name, row string
		options   drive.Options
		other     string
		same      bool
	}{
		{"a user", "drive-user", drive.Options{}, "x", true},
		{"another user", "drive-user", drive.Options{}, "y", false},
		{"a user with two tokens", "drive-user", drive.Options{User: "ada"}, "y", true},
		{"all users", "drive-project", drive.Options{}, "y", true},
		{"another project", "drive-project", drive.Options{Caller: func(r *http.Request) (project, user string) { return r.Header.Get("Authorization"), "" }}, "y", false},
	} {
		require.Equal(t, c.same, presettest.Shared(t, drive.Policies(c.options), c.row, with("x"), with(c.other)), c.name)
	}
}
