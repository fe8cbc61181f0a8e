package dingtalk

import (
	"cmp"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/match"
)

// templates are the APIs of the new host that batch jobs use, and the APIs with rows of their own.
var templates = []string{
	"/v1.0/ats/candidates/importCandidateByResume",
	"/v1.0/calendar/users/{userId}/calendars/{calendarId}/events",
	"/v1.0/card/streaming",
	"/v1.0/contact/users/{unionId}",
	"/v1.0/crm/customerInstances",
	"/v1.0/crm/officialAccounts/oToMessages/batchSend",
	"/v1.0/crm/officialAccounts/oToMessages/send",
	"/v1.0/oauth2/accessToken",
	"/v1.0/oauth2/{corpId}/token",
	"/v1.0/robot/ding/send",
	"/v1.0/robot/groupMessages/send",
	"/v1.0/robot/oToMessages/batchSend",
	"/v1.0/swform/forms/{formCode}/instances",
	"/v1.0/workflow/processInstances",
	"/v1.0/workflow/processes/instanceIds/query",
}

// An apiTable is the templates that tell APIs of the new host apart.
type apiTable []string

// newAPITable returns a table of the program's own templates and the built-in templates.
func newAPITable(own []string) apiTable { return slices.Concat(own, templates) }

// api is the part of a key that says which API a request calls. On the old host that is its path. On
// the new one it is the first template that fits. What fits none shares a budget with all of its
// product, which is slow but safe: any segment may be somebody's id, and must not make a budget of its
// own.
func (t apiTable) api(r *http.Request) string {
	p := throttle.RawPath(r)
	if !isNew(p) {
		return p
	}
	p = pathOf(r, p)
	if template := t.find(p); template != "" {
		return template
	}
	return product(p)
}

// exact is api, but what fits no template is an API for each path. It is for budgets without a number:
// they exist only once an answer has closed them.
func (t apiTable) exact(r *http.Request) string {
	p := throttle.RawPath(r)
	if !isNew(p) {
		return p
	}
	return cmp.Or(t.find(pathOf(r, p)), p)
}

// find returns the first template that fits a path, or "".
func (t apiTable) find(p string) string {
	for _, template := range t {
		if fits(template, p) {
			return template
		}
	}
	return ""
}

// fits reports whether a path fits a template, in which segments in braces stand for any one.
func fits(template, p string) bool {
	template, p = strings.Trim(template, "/"), strings.Trim(p, "/")
	for more := true; more; {
		var want, seg string
		var moreOfPath bool
		want, template, more = strings.Cut(template, "/")
		seg, p, moreOfPath = strings.Cut(p, "/")
		wild := strings.HasPrefix(want, "{") && strings.HasSuffix(want, "}")
		if more != moreOfPath || want != seg && !wild {
			return false
		}
	}
	return true
}

// isNew reports whether a path belongs to the new host: "/v1.0", and all paths below.
func isNew(p string) bool {
	version, ok := strings.CutPrefix(p, "/v")
	version, _, _ = strings.Cut(version, "/")
	major, minor, dotted := strings.Cut(version, ".")
	return ok && dotted && isNumber(major) && isNumber(minor)
}

// isNumber reports whether a text is digits, at least one.
func isNumber(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// pathOf returns a request's path as its segments are compared: escaped, where p is its unescaped and
// cleaned form. "%2F" is part of a segment, unless it hides a segment of dots: then servers that decode
// first see p.
func pathOf(r *http.Request, p string) string {
	escaped := r.URL.EscapedPath()
	switch {
	case escaped == p: // as nearly all are
		return p
	case match.HidesDots(escaped):
		return path.Clean(strings.ReplaceAll(p, `\`, "/"))
	}
	return path.Clean(escaped)
}

// product is "/v1.0/contact" of all that is below.
func product(p string) string {
	version, rest, _ := strings.Cut(p[1:], "/")
	name, _, _ := strings.Cut(rest, "/")
	return strings.TrimSuffix(p[:1+len(version)+min(len(rest), 1)+len(name)], "/")
}
