package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

// TestLabels: keys and budgets of a file have names, by the hash of each policy. A file that is wrong is refused as a whole, with the
// lines that are, and without their text.
func TestLabels(t *testing.T) {
	const acme = "shop/f32021364bac"
	require.Equal(t, acme, store.BudgetOf("shop", "acme").String())
	for text, want := range map[string]string{
		"":                                 "",
		"acme\tAcme GmbH\n":                "Acme GmbH",
		"# tenants\r\n\r\nacme\t Acme\r\n": "Acme",
		"acme\tby its key\n" + acme + "\tby its budget": "by its budget",
		"other\tOther\n":                      "",
		"crm/f32021364bac\tof another policy": "",
	} {
		var l labels
		require.NoError(t, l.parse([]byte(text)), text)
		require.Equal(t, want, l.of("shop", acme), text)
		require.Empty(t, l.of("crm", "crm/0123456789ab"))
	}

	for text, want := range map[string]string{
		"acme\n":                         "line 1: it is not a key or a budget, a tab, and a name",
		"a\tA\n\tB\nhidden\t \n":         "line 2: it is not a key or a budget, a tab, and a name\nline 3: it is not a key or a budget, a tab, and a name",
		"a\t" + strings.Repeat("x", 101): "line 1: the name is no text of 100 characters at most",
		"a\t\xff":                        "line 1: the name is no text of 100 characters at most",
		strings.Repeat("a\tA\n", 10_001): "it has more than 10000 names",
	} {
		require.EqualError(t, new(labels).parse([]byte(text)), want)
	}
	err := new(labels).parse([]byte(strings.Repeat("hidden\n", 13)))
	require.ErrorContains(t, err, "and 3 more")
	require.NotContains(t, err.Error(), "hidden")
}

// TestLabelsStayHere: status, top and a recording that is played show the names of a file. Redis, and the recording, do not have them.
func TestLabelsStayHere(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	at := "--redis=" + server.URL()
	client := server.Client(t)
	reporter := made(fleet.Start(client, redisstore.New(client, redisstore.Options{}), fleet.ReporterOptions{Program: "till", Interval: 20 * time.Millisecond}))
	t.Cleanup(reporter.Close)
	l, err := throttle.NewLimiter(reporter, throttle.Policy{Name: "shop", Keyed: true, Limit: throttle.PerHour(9)})
	require.NoError(t, err)
	_, err = l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "acme", 1)
	require.NoError(t, err)

	dir := t.TempDir()
	file, record := filepath.Join(dir, "labels"), filepath.Join(dir, "record")
	require.NoError(t, os.WriteFile(file, []byte("acme\tAcme GmbH\n"), 0o600))
	require.Eventually(t, func() bool {
		return strings.Contains(must(t, "status", "--labels", file, at), "shop/f32021364bac (Acme GmbH)")
	}, time.Minute, 10*time.Millisecond)
	require.NotContains(t, must(t, "status", at), "Acme")

	var s fleet.Snapshot
	require.NoError(t, json.Unmarshal([]byte(must(t, "status", "--labels", file, "--json", at)), &s))
	require.Equal(t, "Acme GmbH", s.Budgets[0].Label)

	const named = "shop/f32021364bac (Acme GmbH)"
	require.Contains(t, must(t, "top", "--once", "--labels", file, "--filter", "gmbh", "--record", record, at), named)
	text, err := os.ReadFile(record)
	require.NoError(t, err)
	require.NotContains(t, string(text), "Acme")
	require.NotContains(t, must(t, "top", "--once", "--replay", record), "Acme")
	require.Contains(t, must(t, "top", "--once", "--replay", record, "--labels", file), named)

	code, out := throttleCommand(t, "status", "--labels", filepath.Join(dir, "none"))
	require.Equal(t, exitUsage, code)
	require.Contains(t, out, "--labels")
}
