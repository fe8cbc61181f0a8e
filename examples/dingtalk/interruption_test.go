package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/demo/chart"
	"github.com/fleetthrottle/throttle/examples/dingtalk/fake"
)

// banOfAMinute is a log: two calls, the outsider, a ban that two calls meet, and
// three calls after it.
func banOfAMinute(begin time.Time) []fake.Arrival {
	var log []fake.Arrival
	at := func(ms int, api, refusal string) {
		log = append(log, fake.Arrival{At: begin.Add(time.Duration(ms) * time.Millisecond), API: api, Refusal: refusal})
	}
	at(0, pathToken, "")
	at(1900, pathPeople, "")
	at(2000, outsiderPath, "40014")
	at(2001, outsiderPath, fake.Banned)
	at(2010, pathPeople, fake.Banned)
	at(2030, pathDepartments, fake.Banned)
	at(62_030, pathPeople, "")
	at(63_029, pathPeople, "")
	at(63_030, pathPeople, "")
	return log
}

func TestInterruption(t *testing.T) {
	begin := time.Unix(0, 0)
	log := banOfAMinute(begin)
	i := interruptionIn(log)
	require.Equal(t, &interruption{
		outsiders: 2, answered: 2, from: log[4].At, stopped: 20 * time.Millisecond, to: log[6].At, back: 2,
	}, i)
	require.Equal(t, chart.Gap{From: 3, To: 62, Name: "silent for 60.0 s"}, i.gap(begin))
	var out strings.Builder
	i.print(&out)
	require.Equal(t, `outsider   2 calls from the same address, without the library
stopped    20 ms after the first answer with the ban; 2 calls had it
silent     for 60.0 s
back       with 2 calls in the first second
`, out.String())
}

func TestInterruptionWithoutAnEnd(t *testing.T) {
	begin := time.Unix(0, 0)
	i := interruptionIn(banOfAMinute(begin)[:6])
	require.Zero(t, i.back)
	require.Equal(t, chart.Gap{From: 3, To: 3, Name: "silent for 0 ms"}, i.gap(begin), "none")
	require.Nil(t, interruptionIn(banOfAMinute(begin)[:4]), "nobody of ours met it")
}

func TestPictureHasTheSilence(t *testing.T) {
	log := banOfAMinute(time.Unix(0, 0))
	r := &report{config: config{edition: "standard", provoke: true}, ban: interruptionIn(log), apis: usages(log)}
	file := filepath.Join(t.TempDir(), "calls.svg")
	require.NoError(t, r.picture(file))
	svg, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(svg), "silent for 60.0 s")
}
