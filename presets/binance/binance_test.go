package binance_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/binance"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
)

const depth = "https://api.binance.com/api/v3/depth?symbol=BTCUSDT"

type header = presettest.Header

const (
	banned = `{"code":-1003,"msg":"Way too much request weight used; IP banned until 1620286253180. Please use the websocket for live updates to avoid bans."}`

	// date is 173.18 s before the end of that ban.
	date = "Thu, 06 May 2021 07:28:00 GMT"
)

func TestRefusals(t *testing.T) {
	json := "application/json;charset=UTF-8"
	presettest.Run(t, binance.Policies(binance.Options{}), presettest.Case{Request: depth, Status: 418}, []presettest.Case{
		{Name: "too much", Status: 429, Header: header{"Content-Type": json, "Retry-After": "35"},
			Answers: `{"code":-1003,"msg":"Too much request weight used; current limit is 6000 request weight per 1 MINUTE."}`,
			Closes:  "binance-ip 35s"},
		{Name: "too much, nobody knows for how long", Status: 429, Header: header{"Content-Type": json},
			Answers: `{"code":-1003,"msg":"Too many requests."}`, Closes: "binance-ip 1m"},
		{Name: "a ban", Header: header{"Content-Type": json, "Retry-After": "170", "Date": date}, Answers: banned, Closes: "binance-ip 2m50s"},
		{Name: "a ban, with the end that is printed", Header: header{"Content-Type": json, "Date": date}, Answers: banned,
			Closes: "binance-ip 2m53.18s"},
		{Name: "a ban, nobody knows for how long", Header: header{"Content-Type": "text/html"}, Answers: "<html>I'm a teapot</html>",
			Closes: "binance-ip 2m"},
		{Name: "a ban of three days", Header: header{"Content-Type": json, "Retry-After": "259200"}, Answers: banned, Closes: "binance-ip 24h"},
		{Name: "away, for a while, says one backend", Status: 503, Header: header{"Retry-After": "7"}},
	})
}

func TestNoRefusals(t *testing.T) {
	json := header{"Content-Type": "application/json;charset=UTF-8"}
	presettest.Run(t, binance.Policies(binance.Options{}), presettest.Case{Request: depth, Header: json}, []presettest.Case{
		{Name: "an answer that quotes a ban", Answers: banned},
		{Name: "no such symbol", Status: 400, Answers: `{"code":-1121,"msg":"Invalid symbol."}`},
		{Name: "not allowed", Status: 403, Header: header{"Content-Type": "text/html", "Retry-After": "9"}, Answers: "<html>403 ERROR</html>"},
		{Name: "no such key", Status: 401, Answers: `{"code":-2015,"msg":"Invalid API-key, IP, or permissions for action."}`,
			Header: header{"Content-Type": "application/json", "X-MBX-USED-WEIGHT-1M": "6000"}},
		{Name: "away", Status: 503, Answers: `{"code":-1008,"msg":"Server is currently overloaded."}`},
		{Name: "futures", Request: "https://fapi.binance.com/fapi/v1/depth", Status: 418, Header: header{"Retry-After": "170"}},
	})
}

func TestWhatIsLeft(t *testing.T) {
	presettest.Run(t, binance.Policies(binance.Options{}), presettest.Case{Request: depth}, []presettest.Case{
		{Name: "until the minute is over", Header: header{"X-MBX-USED-WEIGHT-1M": "5990", "Date": "Thu, 06 May 2021 07:28:20 GMT"},
			Left: "binance-ip 10 40s"},
		{Name: "more than there is", Header: header{"X-MBX-USED-WEIGHT-1M": "6200", "Date": date}, Left: "binance-ip 0 1m"},
		{Name: "unreadable", Header: header{"X-MBX-USED-WEIGHT-1M": "-1"}},
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
	r := presettest.Request(t, "https://data-api.binance.vision/api/v3/depth?symbol=BTCUSDT&limit=5000")
	require.Equal(t, "binance-ip 250, binance-requests 1", presettest.Costs(t, policies, r))
	require.Empty(t, presettest.Rows(t, policies, presettest.Request(t, depth)))
}

func TestAddresses(t *testing.T) {
	budget := func(address, url string) string {
		policies := binance.Policies(binance.Options{Address: address})
		return presettest.Budget(t, policies, "binance-ip", presettest.Request(t, url))
	}
	require.Equal(t, budget("", depth), budget("", "https://api3.binance.com/api/v3/time"))
	require.NotEqual(t, budget("", depth), budget("office", depth))
}
