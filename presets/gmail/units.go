package gmail

import (
	"net/http"
	"strings"

	"github.com/fleetthrottle/throttle"
)

// dear is the cost of a method outside the table: as much as the dearest.
const dear = 100

// costs is Google's table. A "*" stands for an id.
var costs = map[string]int{
	"GET drafts": 5, "POST drafts": 10, "GET drafts/*": 20, "PUT drafts/*": 15, "DELETE drafts/*": 10, "POST drafts/send": 100,
	"GET history": 2,
	"GET labels":  1, "POST labels": 5, "GET labels/*": 1, "PUT labels/*": 5, "PATCH labels/*": 5, "DELETE labels/*": 5,
	"GET messages": 5, "POST messages": 25, "GET messages/*": 20, "DELETE messages/*": 20,
	"POST messages/batchDelete": 50, "POST messages/batchModify": 50, "POST messages/import": 25, "POST messages/send": 100,
	"POST messages/*/modify": 10, "POST messages/*/trash": 20, "POST messages/*/untrash": 5, "GET messages/*/attachments/*": 20,
	"GET profile": 1,
	"GET threads": 10, "GET threads/*": 40, "DELETE threads/*": 20,
	"POST threads/*/modify": 10, "POST threads/*/trash": 20, "POST threads/*/untrash": 10,
	"POST stop": 50, "POST watch": 100,
}

// actions are the segments in the place of an id that are none.
var actions = map[string]bool{"batchDelete": true, "batchModify": true, "import": true, "send": true}

// called are the segments of the path from the user on: of
// "/upload/gmail/v1/users/me/messages/send" "me", "messages" and "send".
func called(r *http.Request) []string {
	_, rest, _ := strings.Cut(throttle.RawPath(r), "/users/")
	return strings.Split(rest, "/")
}

// units is the default of [Options.Units].
func units(r *http.Request) int {
	method, segments := throttle.Method(r), called(r)[1:]
	if len(segments) > 1 && segments[0] == "settings" {
		return setting(method, segments[1])
	}

	for i := 1; i < len(segments); i += 2 {
		if !actions[segments[i]] {
			segments[i] = "*"
		}
	}

	if n, ok := costs[method+" "+strings.Join(segments, "/")]; ok {
		return n
	}

	return dear
}

// setting is the cost of a method for settings.
func setting(method, name string) int {
	switch {
	case method == http.MethodGet:
		return 1
	case method == http.MethodDelete:
		return 5
	case name == "delegates", name == "forwardingAddresses", name == "sendAs", name == "pop":
		return dear
	}
	return 5
}
