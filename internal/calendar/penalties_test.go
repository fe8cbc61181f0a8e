package calendar_test

import (
	"archive/zip"
	"go/build"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
)

// allZones returns the names of all zones that come with Go.
func allZones(t *testing.T) (names []string) {
	t.Helper()
	database, err := zip.OpenReader(filepath.Join(build.Default.GOROOT, "lib", "time", "zoneinfo.zip"))
	require.NoError(t, err)
	defer database.Close()
	for _, f := range database.File {
		if !strings.HasSuffix(f.Name, "/") {
			names = append(names, f.Name)
		}
	}
	require.Greater(t, len(names), 400)
	return names
}

// TestPenaltiesUntilMidnight: in every zone, around every change of its clocks, a penalty until midnight
// ends at the first minute that shows a later date, and one until the first of the month at the first
// minute of a later month. No penalty is negative or zero.
func TestPenaltiesUntilMidnight(t *testing.T) {
	soak.WithoutRace(t)
	checked := 0
	for _, name := range allZones(t) {
		loc := zone(t, name)
		midnight, first := feedback.UntilMidnight(loc), feedback.UntilFirst(loc)
		for _, change := range changes(loc, soak.Most(1995, 2023), 2031) {
			from := change.Add(-27 * time.Hour)
			edges := dayEdges(from, change.Add(30*time.Hour), loc)
			for at := edges[0]; at.Before(change.Add(3 * time.Hour)); at = at.Add(11 * time.Minute) {
				later := edges[slices.IndexFunc(edges, at.Before):]
				resp := &http.Response{StatusCode: 429, Header: http.Header{"Date": {at.UTC().Format(http.TimeFormat)}}}
				require.Equal(t, min(later[0].Sub(at), throttle.MaxPenalty), midnight(resp).Close, "%s at %s", name, at)

				want := throttle.MaxPenalty
				month := func(edge time.Time) bool { return firstOf(edge.In(loc)) > firstOf(later[0].Add(-time.Second).In(loc)) }
				if i := slices.IndexFunc(later, month); i >= 0 {
					want = min(want, later[i].Sub(at))
				}
				require.Equal(t, want, first(resp).Close, "%s at %s", name, at)
				checked++
			}
		}
	}
	require.Greater(t, checked, 100_000)
}
