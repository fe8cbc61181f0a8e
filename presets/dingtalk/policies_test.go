package dingtalk_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/store"
)

type policy = throttle.Policy

func TestRequestsMeetTheirRows(t *testing.T) {
	const apis = "dingtalk-api, dingtalk-app, dingtalk-company, dingtalk-company-api"
	const every = "dingtalk-ip, dingtalk-global, " + apis
	const counted = every + ", dingtalk-month"
	rows := dingtalk.Policies(dingtalk.Options{})
	for line, want := range map[string]string{
		listSub:  every,
		contact:  every,
		column:   counted,
		approval: counted,
		"POST https://api.dingtalk.com/v1.0/robot/oToMessages/batchSend":              counted,
		"POST https://oapi.dingtalk.com/topapi/message/corpconversation/asyncsend_v2": counted,
		"POST https://oapi.dingtalk.com/attendance/list":                              counted,
		"GET https://oapi.dingtalk.com/gettoken?appkey=a&appsecret=b":                 every,
		"https://example.com/topapi/v2/department/listsub":                            "",
		send: "dingtalk-ip, dingtalk-global, dingtalk-robot, dingtalk-webhooks, " + apis,
	} {
		require.Equal(t, want, presettest.Rows(t, rows, presettest.Request(t, line)), line)
	}
}

// TestACallBooksOnlyLimitsThatExist counts the rows that have a number, of those that a call
// meets. The others cost nothing until an answer closes them.
func TestACallBooksOnlyLimitsThatExist(t *testing.T) {
	for name, c := range map[string]struct {
		options      dingtalk.Options
		meets, books int
	}{
		"a company": {dingtalk.Options{}, 6, 2},
		"a vendor":  {dingtalk.Options{ISV: "vendor"}, 12, 2},
	} {
		rows := dingtalk.Policies(c.options)
		all, books := limits(rows), 0
		meets := strings.Split(presettest.Rows(t, rows, presettest.Request(t, contact)), ", ")
		for _, row := range meets {
			if all[row].Kind() != store.KindUnlimited {
				books++
				require.Less(t, all[row].N(), 1_000_000, row)
			}
		}
		require.Len(t, meets, c.meets, name)
		require.Equal(t, c.books, books, name)
	}
}

// limits returns the limits of rows by name.
func limits(rows []policy) map[string]throttle.Limit {
	all := make(map[string]throttle.Limit)
	for _, p := range rows {
		all[p.Name] = p.Limit
	}
	return all
}

func TestNumbers(t *testing.T) {
	beijing := time.FixedZone("UTC+8", 8*60*60)
	month := func(n int) throttle.Limit { return throttle.CalendarWindow(n, throttle.Month, beijing) }
	for _, c := range []struct {
		options   dingtalk.Options
		ip, month string
		perSecond string
	}{
		{dingtalk.Options{}, "10000/20s", "unlimited", "20/s"},
		{dingtalk.Options{Edition: dingtalk.Edition{PerSecond: 30}}, "10000/20s", "unlimited", "30/s"},
		{dingtalk.Options{Edition: dingtalk.Standard}, "10000/20s", month(5_000).String(), "20/s"},
		{dingtalk.Options{Edition: dingtalk.Professional}, "10000/20s", month(500_000).String(), "40/s"},
		{dingtalk.Options{Edition: dingtalk.Exclusive, IPLimit: 8_000}, "8000/20s", month(5_500_000).String(), "60/s"},
		{dingtalk.Options{Edition: dingtalk.Edition{PerMonth: 10_000}}, "10000/20s", month(10_000).String(), "20/s"},
		{dingtalk.Options{Edition: dingtalk.Edition{PerMonth: -1}}, "10000/20s", "unlimited", "20/s"},
		{dingtalk.Options{ISV: "vendor"}, "10000/20s", "unlimited", "unlimited"},
	} {
		all := limits(dingtalk.Policies(c.options))
		require.Equal(t, c.ip, all["dingtalk-ip"].String())
		require.Equal(t, c.month, all["dingtalk-month"].String())
		require.Equal(t, c.perSecond, all["dingtalk-api"].String())
		require.Equal(t, "20/m", all["dingtalk-robot"].String())
	}
	require.Equal(t, "40/s", limits(dingtalk.Policies(dingtalk.Options{ISV: "vendor"}))["dingtalk-suite-company-api"].String())
	require.Equal(t, "50/s", limits(dingtalk.Policies(dingtalk.Options{ISV: "vendor", PerSuite: 50}))["dingtalk-suite-company-api"].String())
}

// TestAPIs says which requests share the second of an API.
func TestAPIs(t *testing.T) {
	rows := dingtalk.Policies(dingtalk.Options{APIs: []string{"/v1.0/todo/users/{unionId}/tasks/{taskId}"}})
	of := func(path string) string {
		host := "https://oapi.dingtalk.com"
		if path[:2] == "/v" {
			host = "https://api.dingtalk.com"
		}
		return presettest.Budget(t, rows, "dingtalk-api", presettest.Request(t, host+path))
	}
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"/topapi/v2/user/list", "/topapi/v2/user/list/?access_token=t", true},
		{"/v1.0/contact/users/me", "/v1.0/contact/users/z21?x=1", true},
		{"/v1.0/contact/users/me", "/v1.0/contact/users/a%2Fb", true},
		{"/v1.0/oauth2/ding1/token", "/v1.0/oauth2/ding2/token", true},
		{"/v1.0/todo/users/1/tasks/2", "/v1.0/todo/users/3/tasks/4", true},
		{"/v1.0/calendar/users/1/events", "/v1.0/calendar/users/2/events/3", true},
		{"/v1.0", "/v1.0/", true},
		{"/topapi/v2/user/list", "/topapi/v2/user/get", false},
		{"/v1.0/contact/users/me", "/v1.0/contact/departments/1", false},
		{"/v1.0/oauth2/accessToken", "/v1.0/oauth2/ding2/token", false},
		{"/v1.0/todo/users/1/tasks/2", "/v1.0/todo/users/1/tasks", false},
		{"/v1.0/calendar/users/1/events", "/v2.0/calendar/users/1/events", false},
		{"/v1.0/calendar/users", "/v1.0/drive/spaces", false},
	} {
		require.Equal(t, c.same, of(c.a) == of(c.b), c)
	}
}

// TestCallersHaveBudgetsOfTheirOwn says what parts two callers.
func TestCallersHaveBudgetsOfTheirOwn(t *testing.T) {
	parted := func(a, b dingtalk.Options) string {
		r := presettest.Request(t, send)
		as, bs := dingtalk.Policies(a), dingtalk.Policies(b)
		var names []string
		for _, name := range strings.Split(presettest.Rows(t, as, r), ", ") {
			if presettest.Budget(t, as, name, r) != presettest.Budget(t, bs, name, r) {
				names = append(names, name)
			}
		}
		return strings.Join(names, ", ")
	}
	require.Equal(t, "dingtalk-api, dingtalk-app", parted(dingtalk.Options{App: "a"}, dingtalk.Options{App: "b"}))
	require.Equal(t, "dingtalk-webhooks, dingtalk-company, dingtalk-company-api", parted(dingtalk.Options{Company: "a"}, dingtalk.Options{Company: "b"}))
	require.Equal(t, "dingtalk-isv-company-api, dingtalk-isv-company, dingtalk-isv-api, dingtalk-isv",
		parted(dingtalk.Options{ISV: "a"}, dingtalk.Options{ISV: "b"}))
	caller := func(*http.Request) (app, company string) { return "a", "b" }
	require.Empty(t, parted(dingtalk.Options{App: "a", Company: "b"}, dingtalk.Options{Caller: caller}))
}

// TestMeteredIsAQuestion: what counts for the month can be said.
func TestMeteredIsAQuestion(t *testing.T) {
	rows := dingtalk.Policies(dingtalk.Options{Metered: func(r *http.Request) bool { return r.URL.Host == "api.dingtalk.com" }})
	require.Contains(t, presettest.Rows(t, rows, presettest.Request(t, contact)), "dingtalk-month")
	require.NotContains(t, presettest.Rows(t, rows, presettest.Request(t, column)), "dingtalk-month")
}

func Example() {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store:    memstore.New(), // redisstore for a fleet
		Policies: dingtalk.Policies(dingtalk.Options{App: "dingabc"}),
	}))

	req := httptest.NewRequest(http.MethodPost, "https://oapi.dingtalk.com/robot/send?access_token=secret", nil)
	for _, charge := range transport.Explain(req) {
		fmt.Println(charge.Budget.Policy, charge.Limit)
	}
	// Output:
	// dingtalk-ip 10000/20s
	// dingtalk-global unlimited
	// dingtalk-robot 20/m
	// dingtalk-webhooks unlimited
	// dingtalk-api 20/s
	// dingtalk-app unlimited
	// dingtalk-company unlimited
	// dingtalk-company-api unlimited
}
