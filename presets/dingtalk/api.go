package dingtalk

import (
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/fleetthrottle/throttle"
)

// templates are the APIs of the new host that batch jobs use.
var templates = []string{
	"/v1.0/card/streaming",
	"/v1.0/contact/users/{unionId}",
	"/v1.0/oauth2/accessToken",
	"/v1.0/oauth2/{corpId}/token",
	"/v1.0/robot/groupMessages/send",
	"/v1.0/robot/oToMessages/batchSend",
	"/v1.0/workflow/processInstances",
	"/v1.0/workflow/processes/instanceIds/query",
}

// version is how the paths of the new host begin, and those of the old do not.
var version = regexp.MustCompile(`^/v[0-9]+\.[0-9]+/`)

// apis returns the part of a key that says which API a request calls. On the old
// host that is its path. On the new one it is the first template that fits; what
// fits none shares a budget with all of its product, which is slow but safe: any
// segment may be somebody's id, and must not make a budget of its own.
func apis(own []string) func(*http.Request) string {
	known := make([]template, 0, len(own)+len(templates))
	for _, text := range slices.Concat(own, templates) {
		known = append(known, newTemplate(text))
	}
	return func(r *http.Request) string {
		p := throttle.Path(r)
		if !version.MatchString(p) {
			return p
		}
		segs := segments(path.Clean(r.URL.EscapedPath()))
		for _, t := range known {
			if t.fits(segs) {
				return t.text
			}
		}
		return product(segs)
	}
}

// product is "/v1.0/contact/" of all that begins so.
func product(segs []string) string {
	return "/" + strings.Join(segs[:min(2, len(segs))], "/") + "/"
}

// A template is a path in which segments in braces stand for any one.
type template struct {
	text string
	segs []string
}

func newTemplate(text string) template { return template{text, segments(text)} }

func (t template) fits(segs []string) bool {
	return slices.EqualFunc(t.segs, segs, func(want, seg string) bool {
		return want == seg || strings.HasPrefix(want, "{") && strings.HasSuffix(want, "}")
	})
}

func segments(p string) []string { return strings.Split(strings.Trim(p, "/"), "/") }
