package dingtalk_test

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/dingtalk/dingtalktest"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/retry"
	"github.com/fleetthrottle/throttle/store"
)

type policy = throttle.Policy

func TestRequestsMeetTheirRows(t *testing.T) {
	const apis = "dingtalk-api, dingtalk-app, dingtalk-company, dingtalk-company-api"
	const all = "dingtalk-ip, dingtalk-global, "
	const free, counted = all + apis, all + apis + ", dingtalk-month"
	with := func(rows string) string { return all + rows + ", " + apis + ", dingtalk-month" }
	rows := dingtalk.Policies(dingtalk.Options{})
	for line, want := range map[string]string{
		listSub:  free,
		contact:  free,
		column:   counted,
		approval: counted,
		result:   counted,
		notice:   with("dingtalk-notices, dingtalk-notices-company"),
		people:   with("dingtalk-robot-code"),
		dings:    with("dingtalk-robot-code, dingtalk-ding"),
		event:    with("dingtalk-calendar"),
		task:     counted, // for nobody
		"POST https://oapi.dingtalk.com/attendance/list":                                counted,
		"GET https://oapi.dingtalk.com/gettoken?appkey=a&appsecret=b":                   counted,
		"POST https://api.dingtalk.com/v1.0/crm/officialAccounts/oToMessages/batchSend": with("dingtalk-service-window"),
		"POST https://api.dingtalk.com/v1.0/crm/officialAccounts/oToMessages/send":      counted,
		"GET https://api.dingtalk.com/v1.0/swform/forms/f/instances":                    with("dingtalk-forms"),
		"POST https://api.dingtalk.com/v1.0/ats/candidates/importCandidateByResume":     with("dingtalk-resumes"),
		"POST https://api.dingtalk.com/v1.0/crm/customerInstances":                      counted,
		"https://open.dingtalk.com/document":                                            free,
		"https://example.com/topapi/v2/department/listsub":                              "",
		send:  all + "dingtalk-robot, dingtalk-webhooks, " + apis,
		reply: all + "dingtalk-session, dingtalk-webhooks, " + apis,
	} {
		require.Equal(t, want, presettest.Rows(t, rows, presettest.Request(t, line)), line)
	}
	vendors := dingtalk.Policies(dingtalk.Options{ISV: "vendor"})
	r := presettest.Request(t, "POST https://api.dingtalk.com/v1.0/crm/customerInstances")
	require.Contains(t, presettest.Rows(t, vendors, r), "dingtalk-customers")
	require.Contains(t, presettest.Rows(t, vendors, presettest.Request(t, notice)), "dingtalk-notices-suite")
	capped := dingtalk.Policies(dingtalk.Options{RobotPerMonth: 500})
	require.Contains(t, presettest.Rows(t, capped, presettest.Request(t, send)), "dingtalk-webhooks, dingtalk-robot-month")
	require.NotContains(t, presettest.Rows(t, capped, presettest.Request(t, reply)), "dingtalk-robot-month", "a session is no robot")
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

// TestEditions has the numbers of each edition, as they are and as old contracts have them, with packages.
func TestEditions(t *testing.T) {
	beijing := time.FixedZone("UTC+8", 8*60*60)
	month := func(n int) string {
		if n == 0 {
			return "unlimited"
		}
		return throttle.CalendarWindow(n, throttle.Month, beijing).String()
	}
	for name, c := range map[string]struct {
		options            dingtalk.Options
		perSecond          string
		perMonth, webhooks int
	}{
		"no edition":     {dingtalk.Options{}, "20/s", 0, 0},
		"standard":       {dingtalk.Options{Edition: dingtalk.Standard}, "20/s", 5_000, 3_000},
		"professional":   {dingtalk.Options{Edition: dingtalk.Professional}, "20/s", 200_000, 50_000},
		"professional 3": {dingtalk.Options{Edition: dingtalk.Professional3}, "20/s", 600_000, 150_000},
		"professional 4": {dingtalk.Options{Edition: dingtalk.Professional4}, "20/s", 800_000, 200_000},
		"exclusive":      {dingtalk.Options{Edition: dingtalk.Exclusive}, "20/s", 0, 0},

		"an old standard":                  {dingtalk.Options{Edition: dingtalk.Standard, OldContract: true}, "20/s", 10_000, 5_000},
		"an old professional":              {dingtalk.Options{Edition: dingtalk.Professional, OldContract: true}, "40/s", 500_000, 0},
		"an old professional 3":            {dingtalk.Options{Edition: dingtalk.Professional3, OldContract: true}, "40/s", 500_000, 0},
		"an old exclusive":                 {dingtalk.Options{Edition: dingtalk.Exclusive, OldContract: true}, "60/s", 5_500_000, 0},
		"an old contract of no edition":    {dingtalk.Options{OldContract: true}, "20/s", 0, 0},
		"an old contract of other numbers": {dingtalk.Options{Edition: dingtalk.Edition{PerMonth: 7}, OldContract: true}, "20/s", 7, 0},

		"a package":               {dingtalk.Options{Edition: dingtalk.Standard, Packages: 1}, "60/s", 5_005_000, 503_000},
		"three packages":          {dingtalk.Options{Edition: dingtalk.Professional, Packages: 3}, "60/s", 15_200_000, 1_550_000},
		"a package of no edition": {dingtalk.Options{Packages: 1}, "60/s", 0, 0},
		"a package, old":          {dingtalk.Options{Edition: dingtalk.Professional, OldContract: true, Packages: 1}, "40/s", 5_500_000, 0},
		"a package, less for us":  {dingtalk.Options{Edition: dingtalk.Edition{PerSecond: 15, PerMonth: 5_000}, Packages: 1}, "15/s", 5_005_000, 0},
		"packages below zero":     {dingtalk.Options{Edition: dingtalk.Standard, Packages: -1}, "20/s", 5_000, 3_000},

		"numbers of one's own": {dingtalk.Options{Edition: dingtalk.Edition{PerSecond: 30, PerMonth: 8, Webhooks: 9}}, "30/s", 8, 9},
		"numbers below zero":   {dingtalk.Options{Edition: dingtalk.Edition{PerMonth: -1, Webhooks: -1}}, "20/s", 0, 0},
	} {
		all := limits(dingtalk.Policies(c.options))
		require.Equal(t, c.perSecond, all["dingtalk-api"].String(), name)
		require.Equal(t, month(c.perMonth), all["dingtalk-month"].String(), name)
		require.Equal(t, month(c.webhooks), all["dingtalk-webhooks"].String(), name)
	}
}

func TestNumbers(t *testing.T) {
	require.Equal(t, "8000/20s", limits(dingtalk.Policies(dingtalk.Options{IPLimit: 8_000}))["dingtalk-ip"].String())

	vendors := limits(dingtalk.Policies(dingtalk.Options{ISV: "vendor", Edition: dingtalk.Standard}))
	require.Equal(t, "unlimited", vendors["dingtalk-month"].String())
	require.Equal(t, "unlimited", vendors["dingtalk-api"].String())
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
		{"/v1.0/drive", "/v1.0/drive/spaces", true},
		{"/v1.0/contact/%2e%2e/oauth2/ding1/token", "/v1.0/oauth2/ding2/token", true},
		{"/v1.0/contact/users/..%2fdepartments/1", "/v1.0/contact/departments/2", true},
		{"/v1.0/contact/users%5c..%5cdepartments/1", "/v1.0/contact/departments/2", true},
		{"/v1.0/contact%5c..%5coauth2/ding1/token", "/v1.0/oauth2/ding2/token", true},
		{"/topapi/%2e%2e/v1.0/drive/spaces", "/v1.0/drive/files", true},
		{"/v1.0/contact/%2e%2e/oauth2/ding1/token", "/v1.0/contact/departments/1", false},
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

// TestTwoTemplatesAreTwoAPIs: an API's day that is used up stops that API, of that method, and no other of
// its product.
func TestTwoTemplatesAreTwoAPIs(t *testing.T) {
	rows := dingtalk.Policies(dingtalk.Options{})
	shared := func(a, b string) bool {
		return presettest.Shared(t, rows, "dingtalk-company-api", presettest.Request(t, a), presettest.Request(t, b))
	}
	require.True(t, shared(pending, pending+"?x=1"))
	require.True(t, shared(contact, contact+"7"), "a known template")
	require.False(t, shared(pending, approval))
	require.False(t, shared(approval, "POST"+approval[3:]))
}

// TestRobotsOfTheNewAPI: robots of one application are told apart by the code in the body, and their
// APIs.
func TestRobotsOfTheNewAPI(t *testing.T) {
	rows := dingtalk.Policies(dingtalk.Options{})
	of := func(row, line, body string) string {
		return presettest.Budget(t, rows, row, presettest.Request(t, line, body))
	}
	a, b := `{"userIds":["u"],"robotCode":"a"}`, `{"robotCode":"b"}`
	require.NotEqual(t, of("dingtalk-robot-code", people, a), of("dingtalk-robot-code", people, b))
	require.Equal(t, of("dingtalk-robot-code", people, a), of("dingtalk-robot-code", people, `{"robotCode":"a","userIds":[]}`))
	require.NotEqual(t, of("dingtalk-robot-code", people, a), of("dingtalk-robot-code", group, a))
	require.NotEqual(t, of("dingtalk-ding", dings, a), of("dingtalk-ding", dings, b))
	require.Equal(t, of("dingtalk-ding", dings, "a=b"), of("dingtalk-ding", dings, "[]"), "no code")
}

// TestPeopleAreCounted: a work notice costs as many people as it is for, in either form of a body.
func TestPeopleAreCounted(t *testing.T) {
	long := `{"msg":"` + strings.Repeat("x", 64<<10) + `","userid_list":"a"}`
	for _, c := range []struct {
		form           bool
		body           string
		company, suite int
		toAll          int
	}{
		{false, `{"userid_list":"a"}`, 1, 1, 0},
		{false, `{"agent_id":1,"msg":{"userid_list":"x,y,z"},"userid_list":"a,b,c"}`, 3, 3, 0},
		{false, `{"userid_list":["a","b"]}`, 2, 2, 0},
		{false, `{"userid_list":"a, b,,","to_all_user":false,"dept_id_list":""}`, 2, 2, 0},
		{false, `{"userid_list":"a","dept_id_list":"7"}`, 5_000, 1_000, 0},
		{false, `{"userid_list":"a","dept_id_list":[7]}`, 5_000, 1_000, 0},
		{false, `{"to_all_user":true}`, 5_000, 1_000, 1},
		{false, `{"to_all_user":"true"}`, 5_000, 1_000, 1},
		{false, `{"userid_list":"` + strings.Repeat("a,", 6_000) + `"}`, 5_000, 1_000, 0},
		{false, `{}`, 1, 1, 0},
		{false, `{"userid_list":`, 5_000, 1_000, 0},
		{false, `{"userid_list":"a","dept_id`, 5_000, 1_000, 0},
		{false, `no JSON`, 5_000, 1_000, 0},
		{false, long, 5_000, 1_000, 0},
		{true, `agent_id=1&userid_list=a%2Cb`, 2, 2, 0},
		{true, `userid_list=a&dept_id_list=7`, 5_000, 1_000, 0},
		{true, `to_all_user=true`, 5_000, 1_000, 1},
		{true, `userid_list=%zz`, 5_000, 1_000, 0},
		{true, `msg=` + strings.Repeat("x", 64<<10) + `&userid_list=a`, 5_000, 1_000, 0},
	} {
		r := presettest.Request(t, notice, c.body)
		if c.form {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
		}
		for isv, want := range map[string]int{"": c.company, "vendor": c.suite} {
			rows := dingtalk.Policies(dingtalk.Options{ISV: isv})
			require.Equal(t, want, presettest.Cost(t, rows, "dingtalk-notices", r), "%q %.80s", isv, c.body)
			require.Equal(t, c.toAll, presettest.Cost(t, rows, "dingtalk-notices-all", r), "%q %.80s", isv, c.body)
		}
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Equal(t, c.body, string(body), "the body is left to be sent")
	}
	unknown := presettest.Request(t, notice)
	require.Equal(t, 5_000, presettest.Cost(t, dingtalk.Policies(dingtalk.Options{}), "dingtalk-notices", unknown), "a body that nobody can look at")
	known := dingtalk.Policies(dingtalk.Options{Receivers: func(*http.Request) int { return 7 }})
	require.Equal(t, 7, presettest.Cost(t, known, "dingtalk-notices", unknown))
	require.Zero(t, presettest.Cost(t, known, "dingtalk-notices", presettest.Request(t, result)))
}

// TestOnePersonsDay: tasks, events and pushes are counted for one person.
func TestOnePersonsDay(t *testing.T) {
	rows := dingtalk.Policies(dingtalk.Options{})
	of := func(row, line string, body ...string) string {
		return presettest.Budget(t, rows, row, presettest.Request(t, line, body...))
	}
	require.NotEqual(t, of("dingtalk-tasks", task, `{"userid":"a"}`), of("dingtalk-tasks", task, `{"userid":"b"}`))
	require.NotEqual(t, of("dingtalk-pushes", push, `{"userid_list":["a"]}`), of("dingtalk-pushes", push, `{"userid_list":["b"]}`))
	require.NotEqual(t, of("dingtalk-calendar", event), of("dingtalk-calendar", strings.Replace(event, "/u/", "/v/", 1)))
	require.Equal(t, of("dingtalk-calendar", event), of("dingtalk-calendar", strings.Replace(event, "primary", "other", 1)))
	require.Zero(t, presettest.Cost(t, rows, "dingtalk-pushes", presettest.Request(t, push, `{"userid_list":["a","b"]}`)))
	require.Zero(t, presettest.Cost(t, rows, "dingtalk-pushes", presettest.Request(t, push, `{"is_to_all":true}`)))
	require.Zero(t, presettest.Cost(t, rows, "dingtalk-tasks", presettest.Request(t, task)), "a body that does not tell")
}

func Example() {
	transport := throttle.Must(throttle.New(throttle.Config{
		MaxWait:  throttle.Forever,
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

// TestACallCostsLittleMemory: the number of rows and of codes costs a call nothing: its answer is read once.
func TestACallCostsLittleMemory(t *testing.T) {
	soak.WithoutRace(t)
	base := answering(`{"errcode":0,"errmsg":"ok","result":{"dept_id":1,"name":"x"},"request_id":"15s4ab8ca3cdz"}`)
	rows := dingtalk.Policies(dingtalk.Options{IPLimit: 1 << 30, Edition: dingtalk.Edition{PerSecond: 1 << 30}})
	transport, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: rows, Base: base})
	require.NoError(t, err)
	for _, line := range []string{listSub, column, contact, approval} {
		r := presettest.Request(t, line)
		call := func(to http.RoundTripper) func() {
			return func() {
				resp, err := to.RoundTrip(r)
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
			}
		}

		// A garbage collection in the middle of a measurement empties pools, which can only add allocations: the least of five counts.
		least := math.Inf(1)
		for range 5 {
			least = min(least, testing.AllocsPerRun(50, call(transport))-testing.AllocsPerRun(50, call(base)))
		}
		require.LessOrEqual(t, least, 4.0+soak.AllocsOf32Bits, line)
	}
}

// The APIs that a fleet calls, with limits of their own.
const (
	oldAPI = "/topapi/v2/department/listsub"
	newAPI = "/v1.0/contact/users/{unionId}"
)

// fleet has four nodes with 16 workers each make n calls of both APIs, and returns how
// long that took. No call may fail.
func fleet(t *testing.T, ding *dingtalktest.Server, o dingtalk.Options, n int) time.Duration {
	t.Helper()
	o.App = "dingabc"
	begin, store, todo := time.Now(), memstore.New(), make(chan bool)
	token := ding.Token(o.App)
	var working sync.WaitGroup
	for range 4 {
		transport, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: dingtalk.Policies(o), Base: ding})
		require.NoError(t, err)
		client := retry.NewClient(transport).StandardClient()
		for range 16 {
			working.Go(func() {
				for old := range todo {
					method, url, want := http.MethodGet, "https://api.dingtalk.com/v1.0/contact/users/7", `"nick"`
					if old {
						method, url, want = http.MethodPost, "https://oapi.dingtalk.com"+oldAPI+"?access_token="+token, `"errcode":0`
					}
					r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
					if err != nil {
						t.Error(err)
						continue
					}
					r.Header.Set("x-acs-dingtalk-access-token", token)
					resp, err := client.Do(r)
					if err != nil {
						t.Error(err)
						continue
					}
					body, err := io.ReadAll(resp.Body)
					if err != nil || !strings.Contains(string(body), want) {
						t.Error(string(body), err)
					}
				}
			})
		}
	}
	for i := range 2 * n {
		todo <- i%2 == 0
	}
	close(todo)
	working.Wait()
	return time.Since(begin)
}

// TestFleetKeepsWithinEveryLimit: nothing is refused, and little of the quota is left, however
// DingTalk counts.
func TestFleetKeepsWithinEveryLimit(t *testing.T) {
	soak.Only(t)
	for _, edition := range []dingtalk.Edition{dingtalk.Standard, dingtalk.Professional, dingtalk.Exclusive} {
		for name, o := range map[string]dingtalktest.Options{
			"any second":          {},
			"clock seconds":       {FixedWindows: true},
			"refused calls count": {CountRefused: true},
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o.Edition = edition
					ding := dingtalktest.New(o)
					took := fleet(t, ding, dingtalk.Options{Edition: edition}, 20*edition.PerSecond)
					require.Empty(t, ding.Refusals())
					require.Equal(t, edition.PerSecond, ding.Most(oldAPI, time.Second), "nearly all, and never more")
					require.Equal(t, edition.PerSecond, ding.Most(newAPI, time.Second))
					// Of 96.6 % that the jitter leaves, a short job loses up to 0.95 s to
					// the pace of the line: 19 of 20.6 s are 92 %.
					require.GreaterOrEqual(t, took, 19*time.Second)
					require.Less(t, took, 21*time.Second)
				})
			})
		}
	}
}

// TestCrowdedAPIIsTriedAgain: others use what the application could.
func TestCrowdedAPIIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ding := dingtalktest.New(dingtalktest.Options{PerAPI: 19}) // one less than the application may
		fleet(t, ding, dingtalk.Options{}, 100)
		require.Positive(t, ding.Refusals()["90002"])
		require.Len(t, ding.Refusals(), 1)
	})
}

// TestFleetWaitsForTheEndOfABan: an outsider gets the address banned, whatever the ban then looks
// like. All stop, and all come back.
func TestFleetWaitsForTheEndOfABan(t *testing.T) {
	answers := func(status int, media, body string) dingtalktest.Options {
		return dingtalktest.Options{BanAnswer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}}
	}
	for name, o := range map[string]dingtalktest.Options{
		"as documented":    {},
		"short":            {Ban: 2 * time.Second},
		"page":             answers(200, "text/html; charset=utf-8", "<!DOCTYPE html><html><body>deny</body></html>"),
		"forbidden":        answers(403, "application/json", denied),
		"called a page":    answers(200, "text/html", denied),
		"called a text":    answers(200, "text/plain", denied),
		"without a length": answers(200, "application/json", `{"status":1111,"source":"x5","punish":"deny"}`),
		"prolonged":        {BanProlongs: true},
		"clock windows":    {FixedWindows: true},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "as documented" {
				soak.Only(t)
			}
			synctest.Test(t, func(t *testing.T) {
				o.IPLimit = 1000 // of which the fleet needs 300
				ding := dingtalktest.New(o)
				time.AfterFunc(3500*time.Millisecond, func() {
					for client := (&http.Client{Transport: ding}); ding.Bans() == 0; {
						resp, err := client.Get("https://oapi.dingtalk.com/outsider")
						if err == nil {
							resp.Body.Close()
						}
					}
				})
				ban := 5 * time.Minute
				if o.Ban > 0 {
					ban = o.Ban
				}
				took := fleet(t, ding, dingtalk.Options{Ban: o.Ban}, 150)
				require.Equal(t, 1, ding.Bans())
				refused := ding.Refusals()
				delete(refused, "unknown") // the outsider's
				refused[dingtalktest.Banned]--
				require.Len(t, refused, 1)
				require.LessOrEqual(t, refused[dingtalktest.Banned], 2, "those that were on their way")
				require.LessOrEqual(t, ding.Most(oldAPI, time.Second), 20, "not one too many, afterwards either")
				require.Greater(t, took, ban)
				require.Less(t, took, ban+12*time.Second, "no more than the ban was lost")
			})
		})
	}
}
