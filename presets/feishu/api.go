package feishu

import (
	"net/http"
	"strings"

	"github.com/fleetthrottle/throttle"
)

// botPath is where custom bots are sent to; what follows is the bot.
const botPath = "/open-apis/bot/v2/hook/"

// unlisted is the cost under the rows of all other APIs: what has rows of its
// own is free.
func (o Options) unlisted(r *http.Request) int {
	path := throttle.Path(r)
	if strings.HasPrefix(path, botPath) {
		return 0
	}
	for api := range o.APIs {
		method, template := split(api)
		if (method == "" || method == throttle.Method(r)) && fits(template, path) {
			return 0
		}
	}
	return 1
}

// family is the service and the version in "/open-apis/im/v1/messages".
func family(r *http.Request) string {
	service, rest, _ := strings.Cut(strings.TrimPrefix(throttle.Path(r), "/open-apis/"), "/")
	version, _, _ := strings.Cut(rest, "/")
	return service + "/" + version
}

// split parts "GET /path"; the method may be missing.
func split(api string) (method, path string) {
	if method, path, ok := strings.Cut(api, " "); ok {
		return method, strings.TrimSpace(path)
	}
	return "", api
}

// fits compares a path with a template, whose "{name}" stands for a segment.
func fits(template, path string) bool {
	want, got := strings.Split(template, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if want[i] != got[i] && !strings.HasPrefix(want[i], "{") {
			return false
		}
	}
	return true
}
