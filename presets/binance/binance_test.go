package binance_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/binance"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
)

const depth = "https://api.binance.com/api/v3/depth?symbol=BTCUSDT"

type (
	header = presettest.Header
	closes = map[string]time.Duration
	quotas = map[string]throttle.Quota
)

const (
	banned = `{"code":-1003,"msg":"Way too much request weight used; IP banned until 1620286253180. Please use the websocket for live updates to avoid bans."}`

	// date is 173.18 s before the end of that ban.
	date = "Thu, 06 May 2021 07:28:00 GMT"
)

func TestRefusals(t *testing.T) {
	json := "application/json;charset=UTF-8"
	presettest.Run(t, binance.Policies(binance.Options{}), []presettest.Case{
		{
			Name: "too much", Request: depth, Status: 429,
			Header:  header{"Content-Type": json, "Retry-After": "35"},
			Answers: `{"code":-1003,"msg":"Too much request weight used; current limit is 6000 request weight per 1 MINUTE."}`,
			Closes:  closes{"binance-ip": 35 * time.Second},
		},
		{
			Name: "too much, nobody knows for how long", Request: depth, Status: 429,
			Header: header{"Content-Type": json}, Answers: `{"code":-1003,"msg":"Too many requests."}`,
			Closes: closes{"binance-ip": time.Minute},
		},
		{
			Name: "a ban", Request: depth, Status: 418,
			Header: header{"Content-Type": json, "Retry-After": "170", "Date": date}, Answers: banned,
			Closes: closes{"binance-ip": 170 * time.Second},
		},
		{
			Name: "a ban, with the end that is printed", Request: depth, Status: 418,
			Header: header{"Content-Type": json, "Date": date}, Answers: banned,
			Closes: closes{"binance-ip": 173_180 * time.Millisecond},
		},
		{
			Name: "a ban, nobody knows for how long", Request: depth, Status: 418,
			Header: header{"Content-Type": "text/html"}, Answers: "<html>I'm a teapot</html>",
			Closes: closes{"binance-ip": 2 * time.Minute},
		},
		{
			Name: "a ban of three days", Request: depth, Status: 418,
			Header: header{"Content-Type": json, "Retry-After": "259200"}, Answers: banned,
			Closes: closes{"binance-ip": throttle.MaxPenalty},
		},
		{
			Name: "away, for a while, says one backend", Request: depth, Status: 503, Header: header{"Retry-After": "7"},
		},
	})
}

func TestNoRefusals(t *testing.T) {
	json := header{"Content-Type": "application/json;charset=UTF-8"}
	presettest.Run(t, binance.Policies(binance.Options{}), []presettest.Case{
		{Name: "an answer that quotes a ban", Request: depth, Header: json, Answers: banned},
		{Name: "no such symbol", Request: depth, Status: 400, Header: json, Answers: `{"code":-1121,"msg":"Invalid symbol."}`},
		{Name: "not allowed", Request: depth, Status: 403, Header: header{"Content-Type": "text/html", "Retry-After": "9"}, Answers: "<html>403 ERROR</html>"},
		{
			Name: "no such key", Request: depth, Status: 401, Answers: `{"code":-2015,"msg":"Invalid API-key, IP, or permissions for action."}`,
			Header: header{"Content-Type": "application/json", "X-MBX-USED-WEIGHT-1M": "6000"},
		},
		{Name: "away", Request: depth, Status: 503, Header: json, Answers: `{"code":-1008,"msg":"Server is currently overloaded."}`},
		{Name: "futures", Request: "https://fapi.binance.com/fapi/v1/depth", Status: 418, Header: header{"Retry-After": "170"}},
	})
}

func TestWhatIsLeft(t *testing.T) {
	presettest.Run(t, binance.Policies(binance.Options{}), []presettest.Case{
		{
			Name: "until the minute is over", Request: depth,
			Header: header{"X-MBX-USED-WEIGHT-1M": "5990", "Date": "Thu, 06 May 2021 07:28:20 GMT"},
			Left:   quotas{"binance-ip": {Left: 10, Reset: 40 * time.Second}},
		},
		{
			Name: "more than there is", Request: depth, Header: header{"X-MBX-USED-WEIGHT-1M": "6200", "Date": date},
			Left: quotas{"binance-ip": {Left: 0, Reset: time.Minute}},
		},
		{Name: "unreadable", Request: depth, Header: header{"X-MBX-USED-WEIGHT-1M": "-1"}},
	})
}

func TestOptions(t *testing.T) {
	weight := func(r *http.Request) int {
		if r.URL.Query().Get("limit") == "5000" {
			return 250
		}
		return 5
	}
	policies := binance.Policies(binance.Options{PerMinute: 1200, Weight: weight, Host: "data-api.binance.vision"})
	require.Equal(t, throttle.PerMinute(1200), policies[0].Limit)
	r := presettest.Request(t, "https://data-api.binance.vision/api/v3/depth?symbol=BTCUSDT&limit=5000", nil)
	require.Equal(t, map[string]int{"binance-ip": 250}, presettest.Costs(t, policies, r))
	require.Empty(t, presettest.Rows(t, policies, presettest.Request(t, depth, nil)))
}

func TestAddresses(t *testing.T) {
	budget := func(address, url string) string {
		policies := binance.Policies(binance.Options{Address: address})
		return presettest.Budget(t, policies, "binance-ip", presettest.Request(t, url, nil))
	}
	require.Equal(t, budget("", depth), budget("", "https://api3.binance.com/api/v3/time"))
	require.NotEqual(t, budget("", depth), budget("office", depth))
}

func TestStreamsAreLeftAlone(t *testing.T) {
	r := presettest.Request(t, depth, nil)
	require.Zero(t, presettest.LookedAt(t, binance.Policies(binance.Options{}), r, 200, header{"Content-Type": "application/json"}, "{"))
}

func Example() {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store:    memstore.New(),
		Policies: binance.Policies(binance.Options{Address: "office"}),
	}))
	r, err := http.NewRequest(http.MethodGet, "https://api.binance.com/api/v3/time", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range transport.Explain(r) {
		fmt.Println(c.Budget.Policy, c.Limit)
	}
	// Output:
	// binance-ip 6000/m
}
