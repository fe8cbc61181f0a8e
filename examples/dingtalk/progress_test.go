package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/examples/dingtalk/fake"
)

// halfway is a pull of which some has come in.
func halfway(people int) *pull {
	p := newPull(0)
	for i := range people {
		p.people[fmt.Sprint(i)] = 1
	}
	p.done = []time.Time{time.Now().Add(-time.Minute), time.Now().Add(time.Minute)}
	p.inFlight = map[string]int{pathDepartments: 16, pathPeople: 12}
	p.refused = map[string]int{"90018": 2, "90002": 1, banned: 4}
	return p
}

func TestProgressLine(t *testing.T) {
	var out strings.Builder
	newProgress(&out, fake.New(fake.Options{}), openAddress(t)).show(halfway(750))
	require.Equal(t, "  750/3,000 people   1 calls/s  28 waiting  3 refused  4 banned\n", out.String())

	out.Reset()
	newProgress(&out, nil, openAddress(t)).show(halfway(1234))
	require.Equal(t, "1,234 people   1 calls/s  28 waiting  3 refused  4 banned\n", out.String())
}

// TestProgressIsQuietInABan: of lines in which nothing came, one in ten is printed.
func TestProgressIsQuietInABan(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out, nil, openAddress(t))
	require.NoError(t, p.gauge.limiter.Pause(t.Context(), "", time.Hour))
	for range 11 {
		p.show(halfway(7))
	}
	const line = "7 people   1 calls/s  28 waiting  3 refused  4 banned  address closed for 1h0m0s\n"
	require.Equal(t, line+line, out.String())
	p.show(halfway(8))
	require.Equal(t, 3, strings.Count(out.String(), "\n"), "something came")
}

func TestProgressBar(t *testing.T) {
	p := &progress{total: 3000}
	for people, want := range map[int]string{
		0:    "▕                        ▏ ",
		1500: "▕████████████            ▏ ",
		1520: "▕████████████▏           ▏ ",
		2999: "▕███████████████████████▉▏ ",
		3000: "▕████████████████████████▏ ",
	} {
		require.Equal(t, want, p.drawn(people), people)
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		require.Equal(t, want, thousands(n))
	}
}
