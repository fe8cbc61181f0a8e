package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// sends finds where the guide has its program send requests.
var sends = regexp.MustCompile(`<!-- the program sends (\d+): (\d+) shadowed, (\d+) refused -->`)

// moment finds what differs from run to run.
var moment = regexp.MustCompile(`next start in \S+`)

// TestShadowGuide walks through docs/run/change.md: its files are written, its commands run, and the
// program sends where the page says so, under the policies that it has come to.
func TestShadowGuide(t *testing.T) {
	page, err := filepath.Abs("../../docs/run/change.md")
	require.NoError(t, err)
	written, err := os.ReadFile(page)
	require.NoError(t, err)
	server := redistest.Single(t)
	t.Setenv("REDIS_URL", "redis://"+server.Addr)
	t.Chdir(t.TempDir())
	client := redis.NewClient(server.Options())
	defer client.Close()
	reporter := made(fleet.Start(client, redisstore.New(client, redisstore.Options{}), fleet.ReporterOptions{Program: "importer", Interval: 50 * time.Millisecond}))
	defer reporter.Close()
	shadowed, refused := 0, 0
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: reporter, Base: answers{}, MaxWait: -1,
		Observe: func(_ context.Context, e throttle.Event) {
			if e.Kind == throttle.EventShadowed {
				require.Equal(t, "orders", e.Policy)
				require.InDelta(t, time.Hour, e.Duration, float64(time.Minute))
				shadowed++
			}
		},
	}))
	walk := &transcript{T: t}
	var replayed strings.Builder
	rest := string(written)
	for {
		at := sends.FindStringSubmatchIndex(rest)
		if at == nil {
			replayed.WriteString(walk.replay(rest))
			break
		}
		replayed.WriteString(walk.replay(rest[:at[0]]) + rest[at[0]:at[1]])
		number := func(i int) int { n, _ := strconv.Atoi(rest[at[2*i]:at[2*i+1]]); return n }
		f, err := policyfile.Load("policies.yaml")
		require.NoError(t, err)
		require.NoError(t, transport.SetPolicies(f.Policies))
		shadowed, refused = 0, 0
		for range number(1) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com/v1/orders", nil)
			require.NoError(t, err)
			if _, err = transport.RoundTrip(req); err != nil {
				require.True(t, errors.Is(err, throttle.ErrLimited), err)
				refused++
			}
		}
		require.Equal(t, number(2), shadowed)
		require.Equal(t, number(3), refused)
		rest = rest[at[1]:]
	}
	samePage(t, page, string(written), replayed.String(), moment)
	require.Eventually(t, func() bool {
		var out strings.Builder
		run(t.Context(), []string{"status", "--redis", "redis://" + server.Addr}, &out, &out)
		return strings.Contains(out.String(), "orders") && strings.Contains(out.String(), "3 of 2 used")
	}, 10*time.Second, 50*time.Millisecond)
}
