package dingtalktest

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fleetthrottle/throttle/internal/stat"
)

// String returns what was counted as a table for people. Quota used is the
// shortest time in which the limit lets so many calls of an application through,
// as a share of the time that they took.
func (s *Server) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "API\tcalls\trefused\tmost in any second\tquota used")
	limit := s.rules.options.Edition.PerSecond
	log := s.Log()
	var apis []string
	calls, refused := make(map[string][]time.Duration), make(map[string]int)
	for _, a := range log {
		if calls[a.API] == nil {
			apis = append(apis, a.API)
		}
		calls[a.API] = append(calls[a.API], a.At.Sub(log[0].At))
		if a.Refusal != "" {
			refused[a.API]++
		}
	}
	slices.Sort(apis)
	for _, api := range apis {
		at := calls[api]
		used := "–"
		shortest, took := (len(at)-1)/limit, at[len(at)-1]-at[0]
		if shortest > 0 && took > 0 {
			used = fmt.Sprintf("%.0f %%", 100*float64(shortest)/took.Seconds())
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d of %d\t%s\n", api, len(at), refused[api], stat.Most(at, time.Second), limit, used)
	}
	w.Flush()
	return b.String() + fmt.Sprintf("bans: %d\n", s.Bans())
}
