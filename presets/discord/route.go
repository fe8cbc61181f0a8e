package discord

import (
	"net/http"
	"strings"

	"github.com/fleetthrottle/throttle"
)

// route returns a request's path with its ids left out, apart from the first
// channel, guild or webhook: "channels/41771983423143937/messages/*".
func route(r *http.Request) string {
	path := strings.TrimPrefix(throttle.Path(r), "/api/")
	segments := strings.Split(path, "/")
	if version := segments[0]; len(version) > 1 && version[0] == 'v' && number(version[1:]) {
		segments = segments[1:]
	}
	for i := 1; i < len(segments); i++ {
		if top := i == 1 && splits(segments[0]); !top && (number(segments[i]) || named(segments[i-1])) {
			segments[i] = "*"
		}
	}
	return strings.Join(segments, "/")
}

// splits reports whether what follows has buckets of its own.
func splits(top string) bool {
	return top == "channels" || top == "guilds" || top == "webhooks"
}

// named reports whether what follows is a name and no number: an emoji, a code.
func named(collection string) bool {
	return collection == "reactions" || collection == "invites" || collection == "templates"
}

func number(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
