package xero_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/xero"
)

const invoices = "https://api.xero.com/api.xro/2.0/Invoices"

func usual(status int) presettest.Case {
	return presettest.Case{Request: invoices, Sends: presettest.Header{"Xero-Tenant-Id": "t"}, Status: status, Header: presettest.JSON()}
}

func problem(named string) presettest.Header {
	return presettest.Header{"X-Rate-Limit-Problem": named, "Retry-After": "9"}
}

func TestRefusals(t *testing.T) {
	byMinute := presettest.Recorded(t, "minute.http").As("a tenant's minute", "xero-minute 27s")
	byMinute.Left = "xero-minute 0 1s, xero-day 4723 1s, xero-app 9997 1s"
	presettest.Run(t, xero.Policies(xero.Options{}), usual(429), []presettest.Case{
		byMinute,
		presettest.Recorded(t, "day.http").As("a tenant's day", "xero-day 1h"),
		{Name: "a tenant's day, until", Header: problem("day"), Closes: "xero-day 9s"},
		{Name: "in flight", Header: presettest.Header{"X-Rate-Limit-Problem": "concurrent"}, Closes: "xero-concurrency 1s"},
		{Name: "the app", Header: problem("appminute"), Closes: "xero-app 9s"},
		{Name: "in other letters", Header: problem("Day limit"), Closes: "xero-day 9s"},
		{Name: "a word that nobody knows", Header: problem("fortnight"), Closes: "xero-minute 9s"},
		{Name: "no word", Header: presettest.Header{}, Closes: "xero-minute 1m"},
		{Name: "no tenant", Request: "https://api.xero.com/connections", Header: problem("minute"), Closes: "xero-app 9s"},
	})
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, xero.Policies(xero.Options{}), usual(200), []presettest.Case{
		{Name: "an answer that names a limit", Header: problem("day")},
		{Name: "not allowed", Status: 403, Header: problem("minute")},
		{Name: "one backend is away", Status: 503, Header: presettest.JSON("Retry-After", "9")},
		{Name: "another host", Request: "https://identity.xero.com/connect/token", Status: 429},
	})
}

func TestSharedBudgets(t *testing.T) {
	with := func(tenant string) *http.Request {
		r := presettest.Request(t, invoices, "")
		r.Header.Set("Xero-Tenant-Id", tenant)
		return r
	}
	byHeader := xero.Options{Caller: func(r *http.Request) (app, tenant string) { return r.Header.Get("Xero-Tenant-Id"), "" }}
	for _, c := range []struct {
		name, row string
		options   xero.Options
		same      bool
	}{
		{"another tenant", "xero-minute", xero.Options{}, false},
		{"another tenant of the app", "xero-app", xero.Options{}, true},
		{"the tenant that the options name", "xero-day", xero.Options{Tenant: "t"}, true},
		{"another app", "xero-app", byHeader, false},
	} {
		require.Equal(t, c.same, presettest.Shared(t, xero.Policies(c.options), c.row, with("t"), with("u")), c.name)
	}
	none := presettest.Request(t, "https://api.xero.com/connections/1", "")
	require.Zero(t, presettest.Cost(t, xero.Policies(xero.Options{}), "xero-minute", none))
	require.Equal(t, 1, presettest.Cost(t, xero.Policies(xero.Options{}), "xero-app", none))
}
