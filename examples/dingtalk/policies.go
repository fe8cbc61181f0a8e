package main

import (
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
)

// An account says whose limits count. Hosts are those of the real DingTalk
// unless the program talks to the fake.
type account struct {
	App       string        // the application's id: the app key. Not the token, which changes
	Egress    string        // a name for the address that the nodes share
	PerSecond int           // 20, 40 or 60: what the edition allows per app and API
	PerMonth  int           // metered calls of the company in a month; 0: not counted here
	Jitter    time.Duration // how long a call may be on its way; 0: the library's default

	OAPI, API, Any string // the old host, the new host and a pattern for both
}

// policies is DingTalk's table of limits, row by row.
func policies(a account) []throttle.Policy {
	app := func(*http.Request) string { return a.App }
	address := func(*http.Request) string { return a.Egress }
	appAPI := closes{
		"90018": time.Second, "QpsLimitForAppkeyAndApi": time.Second,
		"90006": time.Minute, "QpmLimitForAppkeyAndApi": time.Minute,
	}
	rows := []throttle.Policy{
		{
			Name: "dingtalk-ip", Match: a.Any + "/", Key: address,
			Limit:   throttle.SlidingWindow(10_000, 20*time.Second),
			Penalty: closes{banned: 5 * time.Minute}.penalty,
		},
		{ // on the old host the path is the API
			Name: "dingtalk-api", Match: a.OAPI + "/", Key: throttle.Join(app, throttle.Path),
			Limit: throttle.PerSecond(a.PerSecond), Penalty: appAPI.penalty,
		},
		{ // on the new host a template is: one row for each that is used
			Name: "dingtalk-contact-users", Match: a.API + "/v1.0/contact/users/{unionId}", Key: app,
			Limit: throttle.PerSecond(a.PerSecond), Penalty: appAPI.penalty,
		},
		{ // everybody's calls of one API: the threshold is not published, 1,200 has been seen
			Name: "dingtalk-global", Match: a.OAPI + "/", Key: throttle.Path,
			Limit:   throttle.PerSecond(1200),
			Penalty: closes{"90002": time.Second}.penalty,
		},
		{
			Name: "dingtalk-robot", Match: "POST " + a.OAPI + "/robot/send", Key: throttle.Query("access_token"),
			Limit:   throttle.PerMinute(20),
			Penalty: closes{"130101": 10 * time.Minute, "410100": 10 * time.Minute, "660026": 10 * time.Minute}.penalty,
		},
	}
	if a.PerMonth > 0 {
		rows = append(rows, throttle.Policy{
			Name: "dingtalk-month", Match: a.Any + "/", Cost: metered,
			Limit:   throttle.CalendarWindow(a.PerMonth, throttle.Month, time.FixedZone("UTC+8", 8*60*60)),
			Penalty: closes{"90020": throttle.MaxPenalty, "ApiCountLimitForOrg": throttle.MaxPenalty}.penalty,
		})
	}
	for i := range rows {
		rows[i].Jitter = a.Jitter
	}
	return rows
}

// closes says for how long each code closes the budget of one row. Codes that
// are missing are another row's business.
type closes map[string]time.Duration

func (c closes) penalty(resp *http.Response) time.Duration {
	body, err := throttle.PeekBody(resp, 4096)
	if err != nil {
		return 0 // the body's reader gets the error too
	}
	return c[refusal(resp.StatusCode, body)]
}

// metered is the cost under the monthly quota: the address book and tokens are
// free, attendance and approval are not.
func metered(r *http.Request) int {
	for _, prefix := range []string{"/attendance/", "/topapi/attendance/", "/topapi/processinstance/", "/v1.0/workflow/"} {
		if strings.HasPrefix(r.URL.Path, prefix) {
			return 1
		}
	}
	return 0
}
