package riot

import (
	"net/http"
	"strings"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
)

// token is a [throttle.Policy.Key]: the API key.
var token = caller.Or(throttle.Header("X-Riot-Token"), throttle.Query("api_key"))

// method is the default of [Options.Method]:
// "/lol/match/v5/matches/by-puuid/aB3-…/ids" is
// "/lol/match/v5/matches/by-puuid/*/ids".
func method(r *http.Request) string {
	segments := strings.Split(throttle.RawPath(r), "/")
	for i, s := range segments {
		version := i == 3 // "", "lol", "match", "v5"
		if !version && (strings.Trim(s, "abcdefghijklmnopqrstuvwxyz-") != "" || i > 0 && strings.HasPrefix(segments[i-1], "by-")) {
			segments[i] = "*"
		}
	}
	return throttle.Method(r) + " " + strings.Join(segments, "/")
}

// service is a [throttle.Policy.Key]: the first two segments of the path, as in "/lol/match".
func service(r *http.Request) string {
	segments := strings.SplitN(throttle.RawPath(r), "/", 4)
	return strings.Join(segments[:min(3, len(segments))], "/")
}
