package discord

import (
	"net/http"
	"strings"

	"github.com/fleetthrottle/throttle"
)

// below returns a request's path behind the API's version: "channels/41771983423143937/messages".
func below(r *http.Request) string {
	path := strings.TrimPrefix(throttle.RawPath(r), "/api/")
	if version, rest, _ := strings.Cut(path, "/"); len(version) > 1 && version[0] == 'v' && number(version[1:]) {
		return rest
	}
	return path
}

// route returns a request's path with "*" for each id except the id of the channel,
// guild or webhook at the beginning: "channels/41771983423143937/messages/*".
func route(r *http.Request) string {
	segments := strings.Split(below(r), "/")
	for i := 1; i < len(segments); i++ {
		keepsID := i == 1 && splits(segments[0])
		isID := number(segments[i]) || named(segments[i-1])
		if isID && !keepsID {
			segments[i] = "*"
		}
	}
	return strings.Join(segments, "/")
}

// interactionToken is how the tokens of interactions begin: "interaction:" in base64.
const interactionToken = "aW50ZXJhY3Rpb246"

// A sender is the account in whose name a request is sent. Its global limit holds the request.
type sender int

const (
	bot         sender = iota
	webhook            // a webhook, by the token in the path
	interaction        // an interaction's callback or follow-up, which no global limit holds
)

// senderOf returns the sender of a request, by its path: webhooks and interactions have their token there.
func senderOf(r *http.Request) sender {
	// "webhooks/{id}/{token}", "interactions/{id}/{token}/callback"
	top, rest, _ := strings.Cut(below(r), "/")
	_, rest, _ = strings.Cut(rest, "/") // without the id
	token, action, _ := strings.Cut(rest, "/")
	switch {
	case top == "interactions" && action == "callback":
		return interaction
	case top != "webhooks" || token == "":
		return bot
	case strings.HasPrefix(token, interactionToken):
		return interaction
	}
	return webhook
}

// cost returns the cost of a request under the global limit of a sender: 1 for the sender's own.
func (s sender) cost(r *http.Request) int {
	if senderOf(r) != s {
		return 0
	}
	return 1
}

// splits reports whether each id behind a segment has a budget of its own.
func splits(top string) bool {
	return top == "channels" || top == "guilds" || top == "webhooks"
}

// named reports whether a name, such as an emoji or a code, follows a segment in place of a number.
func named(collection string) bool {
	return collection == "reactions" || collection == "invites" || collection == "templates"
}

// number reports whether a segment has digits only.
func number(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
